"""Storable texts: which texts every database can store unchanged, and how to change the others so that it can.

Promises: a text without a flaw is stored and read back unchanged by every store.

Never reads a clock, draws a random number, or does any I/O.
"""

ERROR_LIMIT = 2_000
"""The longest text of an error that is stored, in bytes."""


def unstorable(text: str) -> str | None:
    """Return what in the text some database cannot store; None if every database can store it."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        return f"half a character, {text[error.start]!a}, which UTF-8 cannot represent"
    return "a NUL character, which databases cannot keep" if "\0" in text else None


def flaw_of(value: object, limit: int) -> str | None:
    """Return why the value is not a text of 1 to `limit` characters that can be stored; None if it is one."""
    if not isinstance(value, str):
        return f"is {'None' if value is None else 'of type ' + type(value).__name__}, not a text"
    if not value:
        return "is empty"
    if len(value) > limit:
        return f"has {len(value):,} characters"
    unfit = unstorable(value)
    return None if unfit is None else f"has {unfit}"


def storable(text: str, limit: int | None = None, *, keep_end: bool = False) -> str:
    """Return the text in a form that every database can store, cut to `limit` bytes.

    Texts of errors may contain half characters, which UTF-8 cannot represent, and NUL, which databases cannot store.
    """
    encoded = text.encode("utf-8", "backslashreplace").replace(b"\x00", b"\\x00")
    if limit is not None and len(encoded) > limit:
        encoded = encoded[-limit:] if keep_end else encoded[:limit]
    return encoded.decode("utf-8", "ignore")  # leaves out a character that was cut in two
