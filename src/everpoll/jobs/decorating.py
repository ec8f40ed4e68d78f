"""What type checkers know of `@app.job(…)`: a job is enqueued as its function is called, without its task.

A function whose first parameter is annotated `Task` is enqueued without that one. For a task anywhere else, type
checkers cannot leave a parameter out: for them, the caller passes it.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from everpoll.jobs.job import Job
from everpoll.jobs.task import Task

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:

    class AsyncJob(Job[P, R]):
        """A job whose function is async: calling it returns a coroutine."""

        def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]
            """Call the function here and now."""

else:
    AsyncJob = Job


class JobDecorator(Protocol):
    """`app.job(…)`, to be written above a function."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Task[Any], P], Coroutine[Any, Any, R]], /
    ) -> "AsyncJob[P, R]": ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> "AsyncJob[P, R]": ...

    @overload
    def __call__(self, function: Callable[Concatenate[Task[Any], P], R], /) -> Job[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
