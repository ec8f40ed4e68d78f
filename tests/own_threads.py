"""The threads that a test has started: those of other tests before it in the same process are not its business."""

import threading

_before: frozenset[threading.Thread] = frozenset()


def remember() -> None:
    """A test begins."""
    global _before  # noqa: PLW0603 - one test at a time
    _before = frozenset(threading.enumerate())


def started(name: str = "everpoll") -> list[threading.Thread]:
    """Those of that name, as it begins, which live and did not live before."""
    return [one for one in threading.enumerate() if one not in _before and one.name.startswith(name)]
