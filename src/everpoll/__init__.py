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
        JobNotFound,
        JobTimeout,
        KeyTaken,
        LeaseLost,
        LoopNotFound,
        NotFound,
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
        TableNotFound,
        TableUnfit,
        TaskNotFound,
        WatchNotFound,
        WrongState,
    )
    from everpoll.jobs import Group, Job, Retry, Task
    from everpoll.loops import Failed, Loop, LoopPolicy, LoopState, Ok, Outcome, Phase, Stop
    from everpoll.monitors import Alert, Service, ServiceInfo
    from everpoll.policy import Adaptive, Backoff, Breaker, Budget, Cancel, PauseReason, Rate, Snooze
    from everpoll.stores.contract import TaskInfo
    from everpoll.tables import AdoptedTable, Row, Table
    from everpoll.watches import Done, Fail, Learned, LookContext, RunInfo, Started, Wait, Watch, WatchRun

__all__ = [
    "Adaptive",
    "AdoptedTable",
    "Alert",
    "AlreadyRunning",
    "Backoff",
    "BadDuration",
    "BadInput",
    "Breaker",
    "Budget",
    "Cancel",
    "CannotConnect",
    "Done",
    "Everpoll",
    "EverpollError",
    "EverpollWarning",
    "Fail",
    "Failed",
    "Group",
    "Health",
    "Hopeless",
    "IncidentNotFound",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobNotFound",
    "JobTimeout",
    "KeyTaken",
    "Learned",
    "LeaseLost",
    "LookContext",
    "Loop",
    "LoopNotFound",
    "LoopPolicy",
    "LoopState",
    "NoThreadLeft",
    "NotFound",
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
    "Row",
    "RunCanceled",
    "RunFailed",
    "RunInfo",
    "RunTimedOut",
    "SchemaOutdated",
    "Service",
    "ServiceInfo",
    "ServiceNotFound",
    "Snooze",
    "Started",
    "Stop",
    "StoreUnavailable",
    "Table",
    "TableNotFound",
    "TableUnfit",
    "Task",
    "TaskInfo",
    "TaskNotFound",
    "Wait",
    "Watch",
    "WatchNotFound",
    "WatchRun",
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
    "everpoll.tables": "AdoptedTable Row Table",
    "everpoll.watches": "Done Fail Learned LookContext RunInfo Started Wait Watch WatchRun",
}
"""The module of each name, for the interpreter; other names are in `errors`. Type checkers read the imports above."""
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
