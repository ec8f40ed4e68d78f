"""Visible texts: makes text from remotes safe for a terminal or a log: control characters are shown as escapes.

Promises: the result has no control character except tab and line feed, none that changes the direction of a line, and
none that UTF-8 cannot represent. Never changes any other character.
"""

import re

# Control characters except tab and line feed, characters that change the direction, and those that cannot be encoded.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Return the text with each control character as its escape sequence."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped(json: str) -> str:
    """Return the same JSON, with control characters in its texts as JSON escapes them; the ASCII ones already are."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
