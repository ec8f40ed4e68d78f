"""Quiet: waits for an idle machine before a timed piece, for every system alike, and reports its load afterwards.

Drops no result: what others used of the machine meanwhile is reported beside it.
"""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
LIMIT_S = 6.0
BUDGET_S = 180.0
"""For one run: on a machine that is never quiet, waiting longer does not help."""
IDLE_SHARE = 0.9
SPAN_S = 0.15
TICKS = os.sysconf("SC_CLK_TCK")

_waited_s = 0.0


def wait_until_quiet() -> bool:
    """True once the cores were idle for a moment; False if that did not come in time, or cannot be measured here."""
    global _waited_s  # noqa: PLW0603 - the budget is that of the whole run
    began = now = time.monotonic()
    is_quiet = False
    while STAT.exists() and not is_quiet and now - began < min(LIMIT_S, max(SPAN_S, BUDGET_S - _waited_s)):
        idle, total = _ticks()
        time.sleep(SPAN_S)
        idle_then, total_then = _ticks()
        is_quiet = idle_then - idle >= IDLE_SHARE * (total_then - total)
        now = time.monotonic()
    _waited_s += now - began
    return is_quiet


def machine_cpu_s() -> tuple[float, float]:
    """Return the CPU time that all processes of this machine have used so far, and how much there was."""
    if not STAT.exists():
        return 0.0, 0.0
    idle, total = _ticks()
    return (total - idle) / TICKS, total / TICKS


def process_cpu_s(pid: int) -> float:
    """Of one process. The sum over its threads is finer than clock ticks, but forgets threads that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    in_ticks = (int(words[11]) + int(words[12])) / TICKS
    return max(in_ticks, sum(schedule_s(thread) for thread in Path(f"/proc/{pid}/task").iterdir()))


def schedule_s(process: Path) -> float:
    """CPU time of one folder of /proc; none for what has ended."""
    try:
        return int((process / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def _ticks() -> tuple[int, int]:
    ticks = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)
