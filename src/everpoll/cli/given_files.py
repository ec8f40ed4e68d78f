"""Reads files that a user names on the command line, within a limit; a mistake is one line."""

from pathlib import Path
from typing import Any

import msgspec

from everpoll.errors import BadInput

MAX_FILE_BYTES = 10_000_000


def text_of(path: Path, label: str) -> str:
    """Return the text of a file; `label` is what a message calls it, such as `--mapping health.json`."""
    try:
        with path.open("rb") as file:
            # The size of a device or a pipe is not known before it is read.
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{label}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(f"{label}: must have at most {MAX_FILE_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{label}: must be UTF-8") from None


def json_of(path: Path, label: str) -> Any:
    """Return the value in a JSON file."""
    try:
        return msgspec.json.decode(text_of(path, label))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{label}: must be JSON: {error}") from None
