"""Remotes with scripted answers: a list of answers for each call, and a record of the calls.

    cloud = ScriptedRemote(start=[{"id": "7"}], status=["queued", TimeoutError("slow"), "complete"])

Promises: answers come in order, and the last one is repeated. An exception is raised, a function is called with the
arguments. Each call passes two crash points: `before_<call>`, and `after_<call>`, when the remote has done its work.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everpoll.errors import BadInput
from everpoll.testing.points import crash_point


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One call that reached the remote."""

    name: str
    at: float
    """The instant of the request, by the event loop's clock."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class ScriptedRemote:
    """A remote system with scripted answers."""

    def __init__(self, **answers: Sequence[Any] | Callable[..., Any]) -> None:
        self._answers: dict[str, list[Any] | Callable[..., Any]] = {
            name: given if callable(given) else _listed(name, given) for name, given in answers.items()
        }
        self.calls: list[RemoteCall] = []

    def count(self, name: str) -> int:
        """Return how often this was called."""
        return sum(1 for call in self.calls if call.name == name)

    def times(self, name: str) -> list[float]:
        """Return when this was called."""
        return [call.at for call in self.calls if call.name == name]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name.startswith("_") or name not in self._answers:
            raise AttributeError(f"this remote has no {name!r}; it was scripted with {', '.join(self._answers)}")

        async def call(*args: Any, **kwargs: Any) -> Any:
            await crash_point(f"before_{name}")
            self.calls.append(RemoteCall(name, asyncio.get_running_loop().time(), args, kwargs))
            answer = await self._answer(name, args, kwargs)
            await crash_point(f"after_{name}")
            if isinstance(answer, BaseException):
                # The same exception may be raised many times: remove the traceback of the last time.
                raise answer.with_traceback(None)
            return answer

        call.__name__ = name
        return call

    async def _answer(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answers = self._answers[name]
        if callable(answers):
            answer: Any = answers
        else:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer) and not isinstance(answer, BaseException):
            try:
                answer = answer(*args, **kwargs)
                return await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # noqa: BLE001 - the script's own answer
                return error
        return answer


def _listed(name: str, given: Sequence[Any]) -> list[Any]:
    if isinstance(given, str) or not given:
        raise BadInput(f"{name}={given!r}: write a list of answers, at least one, or a function")
    return list(given)
