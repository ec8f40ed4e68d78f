"""The error tree. A message says what happened, to which name, and what to do about it.

EverpollError
├── BadInput (ValueError)       a value that everpoll cannot use
│   ├── BadDuration             not a duration: the message shows what is accepted
│   └── WrongState              the state of the task or run does not allow the call
├── NotFound (LookupError)      nothing has that name or id; base of the errors of all fronts
│   ├── JobNotFound             … no job of that name is registered here
│   ├── WatchNotFound           … no watch of that name is registered here
│   ├── LoopNotFound            … no loop has that name
│   ├── ServiceNotFound         … no service has that name
│   ├── TableNotFound           … no table of that name is adopted here
│   ├── TaskNotFound            … no task, or run of a watch, has that id
│   └── IncidentNotFound        … no incident has that id
├── NotRunning                  the call needs a started app
├── AlreadyRunning              the app was entered a second time
├── StoreUnavailable            the database cannot be reached, or broke off; it may work again later
│   └── CannotConnect           … with this address: wrong password, no such database, unknown host
│       └── RightsMissing       … as this role: it lacks a right; the message has the GRANT
├── SchemaOutdated              the database's schema is older than this release, and migrating is turned off
├── TableUnfit                  an adopted table lacks columns that its mapping names; carries the DDL
├── LeaseLost                   this worker was declared dead; other workers run its tasks now
├── KeyTaken                    `enqueue` with on_conflict="reject": another task has the key; carries that task
├── JobTimeout (TimeoutError)   a run took longer than its timeout
├── ProcessEnded                the process of a job with run="process" ended before it answered
├── NoThreadLeft                every thread for plain functions is blocked by a function past its timeout
├── RolledBack                  a job called `complete()` in a transaction that was not committed when the job ended
├── Hopeless                    your function raises it: another try cannot succeed; the job or run fails at once
├── JobFailed                   `result()` of a job that failed; carries the last error
├── JobCanceled                 `result()` of a job that was canceled
├── RunFailed                   `result()` of a watch's run that failed; carries the evidence
│   └── RunTimedOut             … its budget was spent
├── RunCanceled                 `result()` of a run that was canceled
└── NothingLeftToWait           virtual time: every task waits and no timer is set

EverpollWarning (UserWarning)   it works, but probably not as intended
"""

import typing as _typing


class EverpollError(Exception):
    """Base of all errors of everpoll."""


class BadInput(EverpollError, ValueError):
    """A value that everpoll cannot use; the message says what to write instead."""


class BadDuration(BadInput):
    """The value is not a duration."""


class WrongState(BadInput):
    """The call is not allowed in the state of the task or run; the message names the state."""


class NotFound(EverpollError, LookupError):
    """Nothing has that name or id; if there are few names, the message lists them."""


class JobNotFound(NotFound):
    """No job of that name is registered here."""


class WatchNotFound(NotFound):
    """No watch of that name is registered here."""


class LoopNotFound(NotFound):
    """No loop has that name."""


class ServiceNotFound(NotFound):
    """No service has that name."""


class TableNotFound(NotFound):
    """No table of that name is adopted here."""


class TaskNotFound(NotFound):
    """No task, or run of a watch, has that id."""


class IncidentNotFound(NotFound):
    """No incident has that id."""


class NotRunning(EverpollError):
    """The call needs a started app."""


class AlreadyRunning(EverpollError):
    """The app was entered a second time."""


class StoreUnavailable(EverpollError):
    """The database cannot be reached, or broke off in the middle; it may work again later."""


class CannotConnect(StoreUnavailable):
    """The database cannot be reached with this address: wrong password, no such database, unknown host."""


class RightsMissing(CannotConnect):
    """The role of this address lacks rights in the database; the message names them and the GRANT that gives them."""


class SchemaOutdated(EverpollError):
    """The schema is older than this release needs, and migrating is turned off."""


class TableUnfit(EverpollError):
    """An adopted table lacks columns; the message names them, and `ddl` has the statements that add them."""

    def __init__(self, message: str, ddl: list[str] | None = None) -> None:
        super().__init__(message)
        self.ddl = ddl or []


class LeaseLost(EverpollError):
    """This incarnation of the worker was declared dead."""


class KeyTaken(EverpollError):
    """Another task has the key, and the enqueue has `on_conflict="reject"`; `task` is that task."""

    def __init__(self, message: str, task: _typing.Any = None) -> None:
        super().__init__(message)
        self.task = task


class JobTimeout(EverpollError, TimeoutError):
    """One run took longer than its timeout, which counts as a failure."""


class ProcessEnded(EverpollError):
    """The process that ran a job ended before it answered; the message has its exit code or its signal."""


class NoThreadLeft(EverpollError):
    """Every thread for plain functions, replaced ones included, is blocked by a function past its timeout."""


class RolledBack(EverpollError):
    """The transaction in which a job called `complete()` was not committed when the job ended; the attempt failed."""


class JobFailed(EverpollError):
    """The job failed; the message and `error` carry the cause of its last attempt."""

    def __init__(self, message: str, error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.error = error


class JobCanceled(EverpollError):
    """The job was canceled."""


class Hopeless(EverpollError):
    """Another try cannot succeed: the job or the run fails at once."""


class RunFailed(EverpollError):
    """The watched operation failed; `evidence` is what the remote said."""

    def __init__(self, message: str, evidence: object = None) -> None:
        super().__init__(message)
        self.evidence = evidence


class RunTimedOut(RunFailed):
    """The watched operation had not ended when its budget was spent."""


class RunCanceled(EverpollError):
    """The run was canceled; `evidence` is what the remote said."""

    def __init__(self, message: str, evidence: object = None) -> None:
        super().__init__(message)
        self.evidence = evidence


class NothingLeftToWait(EverpollError):
    """Under a virtual clock, every task waits and no timer can wake one."""


class EverpollWarning(UserWarning):
    """A warning: the program works, but probably not as its author intended."""
