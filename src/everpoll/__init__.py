"""everpoll: durable polling for Python. Look, judge, decide when to look again."""

from everpoll.app import Everpoll, Health
from everpoll.errors import (
    AlreadyRunning,
    BadDuration,
    BadInput,
    EverpollError,
    EverpollWarning,
    JobCanceled,
    JobFailed,
    JobTimeout,
    LeaseLost,
    LoopNotFound,
    NotRunning,
    SchemaOutdated,
    StoreUnavailable,
    TableUnfit,
    TaskNotFound,
    UnknownJob,
)
from everpoll.jobs import Job, Retry, Task
from everpoll.loops import Failed, Loop, LoopPolicy, LoopState, Ok, Outcome, Phase, Stop
from everpoll.policy import Adaptive, Backoff, Breaker, Budget, Cancel, PauseReason, Snooze
from everpoll.stores.contract import TaskInfo
from everpoll.version import __version__

__all__ = [
    "Adaptive",
    "AlreadyRunning",
    "Backoff",
    "BadDuration",
    "BadInput",
    "Breaker",
    "Budget",
    "Cancel",
    "Everpoll",
    "EverpollError",
    "EverpollWarning",
    "Failed",
    "Health",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobTimeout",
    "LeaseLost",
    "Loop",
    "LoopNotFound",
    "LoopPolicy",
    "LoopState",
    "NotRunning",
    "Ok",
    "Outcome",
    "PauseReason",
    "Phase",
    "Retry",
    "SchemaOutdated",
    "Snooze",
    "Stop",
    "StoreUnavailable",
    "TableUnfit",
    "Task",
    "TaskInfo",
    "TaskNotFound",
    "UnknownJob",
    "__version__",
]
