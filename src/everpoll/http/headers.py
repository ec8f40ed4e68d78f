"""Headers: names in lower case and look-up in any case; and a check whether HTTP can send a header.

Pure. A header that cannot be sent is refused without repeating its value, which may be a secret.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from everpoll.errors import BadInput

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,16384}")
_CARRIED = "it must be text of at most 16,384 latin-1 characters, without line breaks"


class Headers(dict[str, str]):
    """Headers of an answer: `headers["Content-Type"]` and `headers["content-type"]` are the same one.

    The values of a header that was sent several times are joined with ", "; `first` returns the first one.
    """

    __slots__ = ("_repeated",)

    def __init__(self, pairs: Iterable[tuple[str, str]] | Mapping[str, str] = ()) -> None:
        super().__init__()
        self._repeated: dict[str, str] | None = None
        if pairs:
            for name, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
                self.add(name.lower(), value)

    at = dict.get
    """`get` for a name that is written in lower case."""

    def add(self, name: str, value: str) -> None:
        """Add one header; `name` must be in lower case."""
        before = dict.get(self, name)
        if before is None:
            dict.__setitem__(self, name, value)
            return
        if self._repeated is None:
            self._repeated = {}
        self._repeated.setdefault(name, before)
        dict.__setitem__(self, name, f"{before}, {value}")

    def first(self, name: str, default: str = "") -> str:
        """Return the first value of a header that should have only one, such as Location."""
        name = name.lower()
        if self._repeated is not None and name in self._repeated:
            return self._repeated[name]
        return dict.get(self, name, default)

    def __getitem__(self, name: str) -> str:
        return dict.__getitem__(self, name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and dict.__contains__(self, name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        """Return the header's value, or `default`."""
        return dict.get(self, name.lower(), default)


def is_sendable(value: str) -> bool:
    """Return True if HTTP can carry this as the value of a header."""
    return _VALUE.fullmatch(value) is not None


def sendable(headers: Mapping[Any, Any]) -> Mapping[str, str]:
    """Return the headers if HTTP can send them; else raise `BadInput`."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(f"{str(name)[:40]!r} is not a valid name of a header: write letters, digits and -")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise BadInput(f"the header {name} cannot be sent: {_CARRIED}")
    return headers
