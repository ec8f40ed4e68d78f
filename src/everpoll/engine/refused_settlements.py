"""Settlements that the store refuses although it can be reached: a user's trigger, a constraint, an unusual value.

    locked ──▶ tried again, with a backoff, for as long as another transaction holds its row
    refused ──▶ tried again, with a backoff, for `patience_s` ──▶ substitutes, each plainer than the one before
                                                                    └── all refused: stuck, and tried again for ever

Promises: a task whose settlement is refused ends or is handed back within `patience_s` and a few seconds, and its trail
says why. If the store refuses that, too, `stuck` names the task, so that the rescue can take it back. A value that the
store cannot keep (`BadInput`) will not be accepted later: its substitutes are tried at once. A settlement that waits
for a lock has no substitutes. Other tasks are settled meanwhile.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from everpoll.drivers.locks import LockHeld
from everpoll.engine.failure_events import failure_event
from everpoll.errors import BadInput
from everpoll.logs.context import about
from everpoll.policy import LONGEST_S, Backoff, human
from everpoll.policy.storable_texts import ERROR_LIMIT, storable
from everpoll.stores.contract import Again, Ended, EndState, Settlement, encode

logger = logging.getLogger("everpoll.engine")

PAUSE = Backoff("500ms", cap="5s", jitter=0.2)
# Each try keeps other settlements waiting for as long as it waits for the lock.
LOCKED = Backoff("500ms", cap="20s", jitter=0.2)
STUCK_S = 30.0
"""The time between two tries to settle a stuck task."""
REST_S = 60.0
"""The delay after which a task runs again that was handed back because its end was refused."""

Settle = Callable[[int, Settlement, bool], Awaitable[None]]
"""Takes the incarnation, the settlement, and True if an earlier try, whose answer got lost, may have settled it."""


class RefusedSettlements:
    """The refused settlements of one worker; an asyncio task for each keeps trying."""

    def __init__(self, settle: Settle, patience_s: float, on_shorter: Callable[[], None]) -> None:
        self._settle = settle
        self._patience_s = patience_s
        self._on_shorter = on_shorter
        self._trying: set[asyncio.Task[None]] = set()
        self._stuck: dict[tuple[int, int], str] = {}
        self._rng = random.Random()  # noqa: S311 - jitter needs no secrecy

    def __len__(self) -> int:
        return len(self._trying)

    def add(self, incarnation: int, settlement: Settlement, error: Exception, is_repeat: bool = False) -> None:
        """Keep trying to write this settlement, which the store refused with that error."""
        trying = asyncio.get_running_loop().create_task(
            self._keep_trying(incarnation, settlement, error, is_repeat), name=f"everpoll-refused {settlement.id}"
        )
        self._trying.add(trying)
        trying.add_done_callback(self._ended)

    def stuck(self) -> list[tuple[int, int]]:
        """Return the id and the sequence of each task that can neither end nor be handed back."""
        return list(self._stuck)

    async def stop(self) -> None:
        """Stop trying: the rescue takes the tasks back."""
        trying = list(self._trying)
        for one in trying:
            one.cancel()
        await asyncio.gather(*trying, return_exceptions=True)

    def _ended(self, trying: "asyncio.Task[None]") -> None:
        self._trying.discard(trying)
        self._on_shorter()

    async def _keep_trying(self, incarnation: int, settlement: Settlement, error: Exception, is_repeat: bool) -> None:
        fence = (settlement.id, settlement.sequence)
        try:
            refusal = await self._settle_once_unlocked(incarnation, settlement, is_repeat) if _is_lock(error) else error
            if refusal is None:
                return
            error = refusal
            if not isinstance(error, BadInput) and await self._settled_later(incarnation, settlement, error, is_repeat):
                return
            while not await self._substituted(incarnation, settlement, error):
                if fence not in self._stuck:
                    self._stuck[fence] = str(error)
                    text = "task %d can neither end nor be handed back: %s; it is left to the rescue"
                    logger.error(text, fence[0], error, extra=about(task_id=fence[0]))
                await asyncio.sleep(STUCK_S)
                if await self._is_accepted(incarnation, settlement, is_repeat):
                    return
        finally:
            self._stuck.pop(fence, None)

    async def _settle_once_unlocked(
        self, incarnation: int, settlement: Settlement, is_repeat: bool
    ) -> Exception | None:
        """Try again until no other transaction locks the row; return None, or the error if it is then refused."""
        text = "task %d cannot be settled while another transaction holds its row, as one that was left open"
        logger.warning(text, settlement.id, extra=about(task_id=settlement.id))
        failures = 0
        while True:
            failures += 1
            await asyncio.sleep(LOCKED.delay(failures, self._rng))
            try:
                await self._settle(incarnation, settlement, is_repeat)
            except Exception as error:  # noqa: BLE001 - returned, unless it is the lock
                if not _is_lock(error):
                    return error.__cause__ if isinstance(error.__cause__, Exception) else error
            else:
                return None

    async def _settled_later(self, incarnation: int, settlement: Settlement, error: Exception, is_repeat: bool) -> bool:
        """Try again for `patience_s`; return True if the settlement was written, or its lease is lost."""
        logger.warning(
            "task %d: the store refuses its settlement: %s; trying again for %s",
            settlement.id,
            error,
            human(self._patience_s),
            extra=about(task_id=settlement.id),
        )
        event_loop = asyncio.get_running_loop()
        until, failures = event_loop.time() + self._patience_s, 0
        while event_loop.time() < until:
            failures += 1
            await asyncio.sleep(PAUSE.delay(failures, self._rng))
            if await self._is_accepted(incarnation, settlement, is_repeat):
                return True
        return False

    async def _substituted(self, incarnation: int, settlement: Settlement, error: Exception) -> bool:
        for substitute in substitutes(settlement, error):
            if await self._is_accepted(incarnation, substitute):
                what = "is handed back" if isinstance(substitute, Again) else f"ends as {substitute.state}"
                text = "task %d %s: the store refuses its settlement: %s"
                logger.error(text, settlement.id, what, error, extra=about(task_id=settlement.id))
                return True
        return False

    async def _is_accepted(self, incarnation: int, settlement: Settlement, is_repeat: bool = False) -> bool:
        try:
            await self._settle(incarnation, settlement, is_repeat)
        except Exception as error:  # noqa: BLE001 - the error is known, or is logged once no substitute is accepted
            logger.debug("task %d: refused again: %s", settlement.id, error)
            return False
        return True


def _is_lock(error: BaseException) -> bool:
    return isinstance(error, LockHeld) or isinstance(error.__cause__, LockHeld)


def substitutes(settlement: Settlement, error: Exception) -> list[Settlement]:
    """Return the settlements to write in place of one that the store refuses, the best first.

    A task that has ended does not run again if it can end in any way: running it again would do its work twice.
    """
    fence = (settlement.id, settlement.sequence)
    if isinstance(settlement, Again):
        why = storable(f"the store refuses its settlement: {error}", ERROR_LIMIT)
        return [
            *_handed_back(fence, _usable(settlement.delay_s), why, settlement.refund),
            *_ended(fence, "failed", why),
        ]
    what = "its end" if settlement.result is None else "its result"
    why = storable(f"{what} cannot be stored: {error}", ERROR_LIMIT)
    state: EndState = "failed" if settlement.state == "done" else settlement.state
    return [*_ended(fence, state, why), *_handed_back(fence, REST_S, why, refund=False)]


def _ended(fence: tuple[int, int], state: EndState, why: str) -> list[Ended]:
    note = {"what": state, "error": why}
    return [Ended(*fence, state, None, encode(note), failure_event(note)), Ended(*fence, state)]


def _handed_back(fence: tuple[int, int], delay_s: float | None, why: str, refund: bool) -> list[Again]:
    note = encode({"what": "hand-back", "why": why})
    return [Again(*fence, delay_s, refund, note), Again(*fence, delay_s, refund)]


def _usable(delay_s: float | None) -> float | None:
    """Return the delay, or REST_S if the delay may be the reason of the refusal."""
    return delay_s if delay_s is None or 0.0 <= delay_s <= LONGEST_S else REST_S
