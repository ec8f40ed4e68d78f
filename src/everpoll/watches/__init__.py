"""Watches: operations that run elsewhere, looked at until they have ended."""

from everpoll.watches.cadence import Cadence, History, Learned
from everpoll.watches.context import LookContext
from everpoll.watches.options import WatchOptions
from everpoll.watches.past_runs import PastRun
from everpoll.watches.registry import Watches
from everpoll.watches.run_info import RunInfo
from everpoll.watches.verdicts import Done, Fail, Started, Verdict, Verify, Wait
from everpoll.watches.watch import Watch
from everpoll.watches.watch_run import RunEvent, WatchRun

__all__ = [
    "Cadence",
    "Done",
    "Fail",
    "History",
    "Learned",
    "LookContext",
    "PastRun",
    "RunEvent",
    "RunInfo",
    "Started",
    "Verdict",
    "Verify",
    "Wait",
    "Watch",
    "WatchOptions",
    "WatchRun",
    "Watches",
]
