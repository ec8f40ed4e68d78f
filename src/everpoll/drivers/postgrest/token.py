"""The key of a project: a text, or a function that returns a fresh one.

Promises: no repr and no error shows a key. The function is called for the first request, and again after a token was
refused.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from everpoll.errors import BadInput, StoreUnavailable

Token = str | Callable[[], str | Awaitable[str]]
"""A key, or a function that returns a fresh one: asked again when the last one was refused."""
VARIABLE = "SUPABASE_SERVICE_KEY"
ASK_S = 10.0
MASK = "***"


class Key:
    """The token in use, and the source of the next one. `name`: of its user, for errors. `threads` run a function."""

    def __init__(self, token: Token | None, name: str, threads: Executor) -> None:
        given = os.environ.get(VARIABLE) if token is None else token
        if not given or not (isinstance(given, str) or callable(given)):
            raise BadInput(
                f"{name}: its service key is missing: give token=…, a text or a function that returns one, "
                f"or set ${VARIABLE}"
            )
        self._source: Callable[[], str | Awaitable[str]] | None = None if isinstance(given, str) else given
        self._now = _checked(given) if isinstance(given, str) else None
        self._used: set[str] = set() if self._now is None else {self._now}
        self._home: asyncio.AbstractEventLoop | None = None
        self._threads = threads

    def __repr__(self) -> str:
        return f"Key({MASK})"

    def masked(self, text: str) -> str:
        """Mask every token that was ever used in a text."""
        for token in list(self._used):
            text = text.replace(token, MASK)
        return text

    def settle_on(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Remember the event loop on which coroutines of the user must run, whichever thread needs a token."""
        self._home = event_loop

    async def current(self) -> str:
        """Return the token in use; ask for the first one."""
        return await self.renewed(None) if self._now is None else self._now

    async def renewed(self, refused: str | None) -> str:
        """Return another token than the refused one, if the user's function has one; else the same."""
        if self._source is None or (self._now is not None and self._now != refused):
            assert self._now is not None, "a text is known from the beginning"
            return self._now
        try:
            async with asyncio.timeout(ASK_S):
                token = _checked(await self._asked(self._source))
        except TimeoutError:
            raise StoreUnavailable(f"the function that knows the token did not return within {ASK_S:g} s") from None
        except Exception as error:  # noqa: BLE001 - whatever it is, the next call may succeed
            # Without the words of the error, and not as its cause: they may contain the token.
            raise StoreUnavailable(f"the function that knows the token failed: {type(error).__name__}") from None
        self._used.add(token)
        self._now = token
        return token

    async def _asked(self, source: Callable[[], str | Awaitable[str]]) -> str:
        event_loop = asyncio.get_running_loop()
        if inspect.iscoroutinefunction(source):
            return await self._on_own_event_loop(source())
        answered = await event_loop.run_in_executor(self._threads, source)
        return answered if isinstance(answered, str) else await self._on_own_event_loop(answered)

    async def _on_own_event_loop(self, answering: Awaitable[str]) -> str:
        """Await on the app's event loop: a client of the user's belongs to it, not to that of the heartbeat."""
        home = self._home
        if home is None or home is asyncio.get_running_loop() or not home.is_running():
            return await answering
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(answering), home))


async def _awaited(answering: Awaitable[str]) -> str:
    return await answering


def _checked(token: object) -> str:
    if (
        not isinstance(token, str)
        or not token.strip()
        or not token.strip().isascii()
        or not token.strip().isprintable()
    ):
        raise BadInput("the token is not valid in a header: it must be printable ASCII, and not empty")
    return token.strip()
