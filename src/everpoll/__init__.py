"""everpoll: durable polling for Python. Look, judge, decide when to look again.

A name is imported when it is first used: a command such as `everpoll jobs list` loads only what it needs.
"""

import importlib as _importlib
import typing as _typing

from everpoll.version import __version__

if _typing.TYPE_CHECKING:
    from everpoll.app import Everpoll
    from everpoll.engine.health import Health
    from everpoll.errors import (
        AlreadyRunning,
        BadDuration,
        BadInput,
        CannotConnect,
        EverpollError,
        EverpollWarning,
        Hopeless,
        IncidentNotFound,
        JobCanceled,
        JobFailed,
        JobTimeout,
        KeyTaken,
        LeaseLost,
        LoopNotFound,
        NoThreadLeft,
        NotRunning,
        ProcessEnded,
        RightsMissing,
        RolledBack,
        RunCanceled,
        RunFailed,
        RunTimedOut,
        SchemaOutdated,
        ServiceNotFound,
        StoreUnavailable,
        TableUnfit,
        TaskNotFound,
        UnknownJob,
        WrongState,
    )
    from everpoll.jobs import Group, Job, Retry, Task
    from everpoll.loops import Failed, Loop, LoopPolicy, LoopState, Ok, Outcome, Phase, Stop
    from everpoll.monitors import Alert, Service, ServiceInfo
    from everpoll.policy import Adaptive, Backoff, Breaker, Budget, Cancel, PauseReason, Rate, Snooze
    from everpoll.stores.contract import TaskInfo

__all__ = [
    "Adaptive",
    "Alert",
    "AlreadyRunning",
    "Backoff",
    "BadDuration",
    "BadInput",
    "Breaker",
    "Budget",
    "Cancel",
    "CannotConnect",
    "Everpoll",
    "EverpollError",
    "EverpollWarning",
    "Failed",
    "Group",
    "Health",
    "Hopeless",
    "IncidentNotFound",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobTimeout",
    "KeyTaken",
    "LeaseLost",
    "Loop",
    "LoopNotFound",
    "LoopPolicy",
    "LoopState",
    "NoThreadLeft",
    "NotRunning",
    "Ok",
    "Outcome",
    "PauseReason",
    "Phase",
    "ProcessEnded",
    "Rate",
    "Retry",
    "RightsMissing",
    "RolledBack",
    "RunCanceled",
    "RunFailed",
    "RunTimedOut",
    "SchemaOutdated",
    "Service",
    "ServiceInfo",
    "ServiceNotFound",
    "Snooze",
    "Stop",
    "StoreUnavailable",
    "TableUnfit",
    "Task",
    "TaskInfo",
    "TaskNotFound",
    "UnknownJob",
    "WrongState",
    "__version__",
]

_NAMES = {
    "everpoll.app": "Everpoll",
    "everpoll.engine.health": "Health",
    "everpoll.jobs": "Group Job Retry Task",
    "everpoll.loops": "Failed Loop LoopPolicy LoopState Ok Outcome Phase Stop",
    "everpoll.monitors": "Alert Service ServiceInfo",
    "everpoll.policy": "Adaptive Backoff Breaker Budget Cancel PauseReason Rate Snooze",
    "everpoll.stores.contract": "TaskInfo",
}
"""Where names are at home, for the interpreter; all others are errors. Type checkers read the imports above."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
_ROOMS = frozenset(
    {"app", "errors", "jobs", "logs", "loops", "monitors", "policy", "stores", "tables", "testing", "watches"}
)

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _ROOMS:
            return _importlib.import_module(f"everpoll.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'everpoll' has no attribute {name!r}")
        found = globals()[name] = getattr(_importlib.import_module(_HOMES.get(name, "everpoll.errors")), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
