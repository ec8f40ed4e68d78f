"""Visible texts: makes text of others safe for a terminal or a log: control characters are shown as escapes.

Promises: the result has no control character but tab and line feed, nothing that turns the direction of a line around,
and nothing that UTF-8 cannot represent. Never changes any other character.
"""

import re

# Control characters but for tab and line feed, what turns the direction of a line around, and what cannot be encoded.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """Return the text with each control character as its escape sequence."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped(json: str) -> str:
    """Return the same JSON, with control characters in its texts as JSON escapes them; the ASCII ones already are."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json)
