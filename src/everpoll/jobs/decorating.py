"""The types of `@app.job(…)` for type checkers: `enqueue` takes the arguments of the function, without its task.

If the first parameter of a function is annotated `Task`, `enqueue` has all others. A task at another place cannot be
left out for type checkers: for them, the caller passes it.
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
    """The decorator that `app.job(…)` returns."""

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
