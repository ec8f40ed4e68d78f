"""Reads headers of the command line: `--header 'Name: value'`, repeatable."""

import re

from everpoll.errors import BadInput

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)[ \t]*:[ \t]*([^\r\n\0]*?)[ \t]*")


def headers_from(given: list[str]) -> dict[str, str]:
    """Return the headers by name. An error does not repeat the text of a header: it may be a secret."""
    headers: dict[str, str] = {}
    for number, one in enumerate(given, 1):
        found = _HEADER.fullmatch(one)
        if found is None or not found[2].isascii():
            raise BadInput(f"--header, number {number}, cannot be read: write --header 'Name: value', in ASCII")
        headers[found[1]] = found[2]
    return headers
