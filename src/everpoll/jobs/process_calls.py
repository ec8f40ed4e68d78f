"""`run="process"`: calls of plain functions in child processes, which a timeout or a cancel ends.

Promises: a function that another process cannot import is refused when the job is registered. An error of the function
is reported with its own type, text and traceback.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from everpoll.engine.child_processes import ChildProcesses
from everpoll.engine.work import Run
from everpoll.errors import BadInput, EverpollError
from everpoll.jobs.verdicts import ORDINARY, Verdict
from everpoll.policy import Cancel, Snooze, shown

CHILD = "everpoll.jobs.child"


class Request(Struct, frozen=True):
    """A call, as it is sent to a child."""

    module: str
    file: str | None
    """The file of the program, used in place of the module if the program cannot be imported by name."""
    name: str
    args: str
    path: list[str]
    """The import path of the worker."""
    job: str
    """The name of the job."""


class Answer(Struct, frozen=True, omit_defaults=True):
    """The result of a call, as the child sends it."""

    value: Raw | UnsetType = UNSET
    snooze_s: float | None = None
    cancel: str | None = None
    not_stored: str | None = None
    """Why the returned value cannot be stored as JSON."""
    error: dict[str, str] | None = None
    verdict: Verdict = ORDINARY


class UnstorableResult(Struct, frozen=True):
    """Takes the place of a result that cannot be stored: the function has done its work."""

    why: str


class RaisedInProcess(EverpollError):
    """Takes the place of an error that a function raised in another process; `description` is stored."""

    def __init__(self, description: dict[str, str], verdict: Verdict) -> None:
        super().__init__(f"{description.get('type', 'error')}: {description.get('error', '')}")
        self.description = description
        self.verdict = verdict
        self.add_note(description.get("traceback", ""))


_answer = msgspec.json.Decoder(Answer).decode


class ProcessCalls:
    """Calls the function of one job in another process."""

    def __init__(
        self, job: str, where: str, function: Callable[..., Any], children: Callable[[], ChildProcesses]
    ) -> None:
        self._job = job
        self._children = children
        self._name = str(getattr(function, "__qualname__", ""))
        self._module = str(getattr(function, "__module__", ""))
        self._file: str | None = None
        if inspect.iscoroutinefunction(function):
            raise BadInput(f'{where}: run="process" is for plain functions; an async one runs on the event loop')
        if "<" in self._name or not self._name:
            raise BadInput(
                f'{where}: run="process" needs a function that another process can import: {self._name or function!r} '
                "is not at the top of its module"
            )
        if self._module == "__main__":
            main = sys.modules["__main__"]
            spec = getattr(main, "__spec__", None)
            self._file = None if spec is not None else getattr(main, "__file__", None)
            self._module = "__main__" if spec is None else spec.name.removesuffix(".__main__")
            if spec is None and self._file is None:
                raise BadInput(f'{where}: run="process" needs a module or a file; this program is typed in by hand')

    async def __call__(self, run: Run, args: str, timeout_s: float | None, begin: Callable[[], None]) -> Any:
        """Run the call in a child process; return the value of the function, or raise its error."""
        # While it waits for a free process it has no deadline.
        run.ends_by(None)
        request = Request(self._module, self._file, self._name, args, sys.path, self._job)
        answer = _answer(await self._children().call(request, timeout_s, begin))
        if answer.error is not None:
            raise RaisedInProcess(answer.error, answer.verdict)
        if answer.snooze_s is not None:
            return Snooze(answer.snooze_s)
        if answer.cancel is not None:
            return Cancel(answer.cancel)
        if answer.not_stored is not None:
            return UnstorableResult(answer.not_stored)
        return None if answer.value is UNSET else msgspec.json.decode(answer.value)


def checked_run(where: str, run: object) -> bool:
    """Return True if the job runs in a process; raise `BadInput` for anything but "process" and None."""
    if run not in (None, "process"):
        raise BadInput(f'{where}: run={shown(run)}: write run="process", or leave it out')
    return run == "process"
