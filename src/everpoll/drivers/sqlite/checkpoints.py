"""Checkpoints: the write-ahead log (`-wal`) stays within a bound, also beside readers.

    log > bound ──▶ copy what can be copied, waiting for nothing ──▶ the next commit starts the log anew
                     └── it did not: a reader prevented it ──▶ stop the writers, wait for the readers, start anew
                          └── a reader stayed: try again every two seconds, and wait longer when the log has doubled

Promises: the file is at most as large as LOG_BYTES, MEASURE_BYTES and one transaction together, as long as no reader
stays for more than READERS_S. While a reader stays longer, the file grows with each write; that is logged, and RETRY_S
after the reader has ended the file is back within its bound. The log stops growing before it has taken the disk space
that is needed to empty it; writing is then an outage, which ends when there is space again, or when the reader has
ended. Never: stops the writers for longer than LONGEST_READERS_S at a time, nor before callers have their answers.

The size of the file shows how full the log is: `journal_size_limit` cuts it to LOG_BYTES at the first commit of a new
log. To empty the file each time would cost a fifth of the commits, because appending is slower than overwriting.
"""

import logging
import time
from collections.abc import Callable

from everpoll.drivers.sqlite.connection import LOG_BYTES, Connection, Mode
from everpoll.errors import StoreUnavailable

logger = logging.getLogger("everpoll.stores")

READERS_S, LONGEST_READERS_S = 1.0, 2.0
RETRY_S = 2.0
SHORT_READERS_S = 0.05
"""How long to wait for readers in the tries between two long waits."""
COMMIT_BYTES, MEASURE_BYTES = 32 * 1024, 256 * 1024
"""About how much a group of operations writes in addition to its payloads; after how many bytes the log is measured."""
LARGE = 4
"""Warn of a reader that stays once the log is this many times its bound."""


class Checkpoints:
    """Decides when one writer checkpoints, and how."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unmeasured = 0
        self._copied = False
        self._retry_at = 0.0
        self._waited_at_bytes = 0
        self._is_full = False
        self._log_bytes = 0
        self._warned = False

    def refuse_if_full(self, con: Connection) -> None:
        """Raise before a transaction if the disk was full and still is."""
        if self._is_full:
            con.check_room()

    def disk_is_full(self) -> None:
        """Release the disk space of the log."""
        self._is_full = True

    def wrote(self, size: int) -> None:
        """Count a committed group of operations with that many bytes of payload."""
        self._unmeasured += COMMIT_BYTES + size

    def keep(self, con: Connection, *, is_idle: bool) -> None:
        """Bring the log back within its bound if it is larger. Raises the errors of SQLite."""
        if is_idle or con.log_bytes > LOG_BYTES or self._unmeasured >= MEASURE_BYTES:
            self._unmeasured = 0
            con.paths.measure_log()
        self._notice_little_room(con)
        log_bytes = con.log_bytes
        if log_bytes <= LOG_BYTES and not self._is_full:
            self._copied, self._waited_at_bytes, self._warned = False, 0, False
        elif not self._copied and not self._is_full:
            self._copied = True
            con.checkpoint("passive", 0.0)
        elif self._clock() >= self._retry_at:
            self._start_anew(con, log_bytes, is_idle)

    def _notice_little_room(self, con: Connection) -> None:
        """Check the disk space if the log has grown: it may have taken the last of it."""
        if con.log_bytes > self._log_bytes:
            try:
                con.check_room()
            except StoreUnavailable:
                self.disk_is_full()
        self._log_bytes = con.log_bytes

    def _start_anew(self, con: Connection, log_bytes: int, is_idle: bool) -> None:
        waits = log_bytes >= 2 * self._waited_at_bytes
        readers_s = READERS_S if self._waited_at_bytes == 0 else LONGEST_READERS_S
        # After a restart of the log, the next commit cuts the file; an idle writer makes no commit.
        is_cut = is_idle or self._is_full or log_bytes > 2 * LOG_BYTES
        mode: Mode = "truncate" if is_cut else "restart"
        self._retry_at = self._clock() + RETRY_S
        if con.checkpoint(mode, readers_s if waits else SHORT_READERS_S).is_done:
            self._copied, self._is_full, self._waited_at_bytes, self._retry_at = False, False, 0, 0.0
        elif waits:
            self._waited_at_bytes = max(log_bytes, 1)
        if self._waited_at_bytes > LARGE * LOG_BYTES and not self._warned:
            self._warned = True
            logger.warning(
                "%s-wal has grown to %d MB, because another program keeps a read transaction open: end it",
                con.path,
                log_bytes >> 20,
            )
