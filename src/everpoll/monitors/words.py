"""Words: the meaning of the status words of all formats, in upper or lower case.

A word means the same in every format, so that a body with the shape of one format and the words of another one can be
read.
"""

from everpoll.monitors.report import Status

_UP = ("up", "ok", "pass", "healthy", "working")
_DEGRADED = ("degraded", "warn", "warning", "partially available")
_DOWN = ("down", "error", "fail", "unhealthy", "critical", "unavailable", "out_of_service", "shutting_down")
_UNKNOWN = ("unknown",)
_LONGEST_CHARS = 32

_MEANINGS = {
    word: status
    for status, words in (
        (Status.UP, _UP),
        (Status.DEGRADED, _DEGRADED),
        (Status.DOWN, _DOWN),
        (Status.UNKNOWN, _UNKNOWN),
    )
    for word in words
}
# As the frameworks write them, so that the usual case needs no lower().
_MEANINGS |= {word.upper(): status for word, status in _MEANINGS.items()} | {
    word.title(): status for word, status in _MEANINGS.items()
}


def meaning(word: object) -> Status | None:
    """Return the status that a word means; None for an unfamiliar word or for anything but text."""
    if type(word) is not str:
        return None
    found = _MEANINGS.get(word)
    if found is None and len(word) <= _LONGEST_CHARS:
        return _MEANINGS.get(word.strip().lower())
    return found
