"""The cases of `conformance/health`, for the tests that read them."""

import base64
from pathlib import Path
from typing import Any

import msgspec

from everpoll.monitors import Report

FOLDER = Path(__file__).parents[2] / "conformance" / "health"


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """One answer, and the whole report that it must be read to."""

    name: str
    content_type: str | None
    status: int
    expect: Report
    body: str | None = None
    base64: str | None = None
    format: str = "auto"
    mapping: dict[str, Any] | None = None

    @property
    def data(self) -> bytes:
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        return (self.body or "").encode("utf-8")


def read_cases() -> list[tuple[str, Case]]:
    decoder = msgspec.json.Decoder(list[Case])
    return [(path.stem, case) for path in sorted(FOLDER.glob("*.json")) for case in decoder.decode(path.read_bytes())]


CASES = read_cases()
