"""The key: a text, or a function that returns a fresh one.

Promises: it is shown nowhere, neither in a repr nor in an error. A function is asked when the first request is made
and again when a token was refused.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import BadInput, StoreUnavailable
from everpoll.tables.contract import Token

VARIABLE = "SUPABASE_SERVICE_KEY"
ASK_S = 10.0
MASK = "***"


class Key:
    """The token that is used at present, and where the next one comes from."""

    def __init__(self, token: Token | None, table: str) -> None:
        given = os.environ.get(VARIABLE) if token is None else token
        if not given or not (isinstance(given, str) or callable(given)):
            raise BadInput(
                f"table {table!r}: its service key is missing: give token=…, a text or a function that returns one, "
                f"or set ${VARIABLE}"
            )
        self._source: Callable[[], str | Awaitable[str]] | None = None if isinstance(given, str) else given
        self._now = _checked(given) if isinstance(given, str) else None
        self._used: set[str] = set() if self._now is None else {self._now}
        self._home: asyncio.AbstractEventLoop | None = None
        self._threads = DaemonThreads(limit=2, name="everpoll-token")

    def __repr__(self) -> str:
        return f"Key({MASK})"

    def masked(self, text: str) -> str:
        """The text without any token that was ever used."""
        for token in list(self._used):
            text = text.replace(token, MASK)
        return text

    def settle_on(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Coroutines of the user run here, whichever thread needs a token."""
        self._home = event_loop

    async def current(self) -> str:
        """The one in use."""
        return await self.renewed(None) if self._now is None else self._now

    async def renewed(self, refused: str | None) -> str:
        """Another one than that, if there is another to be had, else the same."""
        if self._source is None or (self._now is not None and self._now != refused):
            assert self._now is not None, "a text is known from the beginning"
            return self._now
        try:
            async with asyncio.timeout(ASK_S):
                token = _checked(await self._asked(self._source))
        except TimeoutError:
            raise StoreUnavailable(f"the function that knows the token did not return within {ASK_S:g} s") from None
        except Exception as error:  # noqa: BLE001 - whatever it is, the next call may succeed
            # Not its own words, and not as the cause: they may hold what it was about to return.
            raise StoreUnavailable(f"the function that knows the token failed: {type(error).__name__}") from None
        self._used.add(token)
        self._now = token
        return token

    async def _asked(self, source: Callable[[], str | Awaitable[str]]) -> str:
        event_loop = asyncio.get_running_loop()
        if inspect.iscoroutinefunction(source):
            return await self._at_home(source())
        answered = await event_loop.run_in_executor(self._threads, source)
        return answered if isinstance(answered, str) else await self._at_home(answered)

    async def _at_home(self, answering: Awaitable[str]) -> str:
        """A client of the user's own belongs to the event loop of the app, not to that of the heartbeat."""
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
