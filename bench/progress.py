"""What runs now, on stderr: results go to stdout."""

import sys
import time


class Progress:
    """The lines of one benchmark."""

    def __init__(self, bench: str) -> None:
        self._bench = bench
        self._began = time.monotonic()

    def begin(self, what: str) -> None:
        """Something takes its time."""
        elapsed = int(time.monotonic() - self._began)
        print(f"  {elapsed // 60}:{elapsed % 60:02d}  {self._bench}: {what} … ", end="", file=sys.stderr, flush=True)

    def end(self, result: str = "done") -> None:
        """And has ended."""
        print(result, file=sys.stderr, flush=True)
