"""Delivery: the engine runs it for a mailbox: clean up, plan, store the try, send, settle.

    lease ──▶ plan ──nothing to send──▶ settle, due again when the group is over
                └──▶ store the try (fenced) ──▶ channel ──▶ settle, with the result of the try

Promises: a worker that lost its lease sends nothing, because it stores the try with its fence before it sends. The row
never ends, whatever a channel does. A mailbox has a queue of its own, from which only processes with its channel lease.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from everpoll.engine.work import Run, Work
from everpoll.monitors.alerting import Notice
from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.channels import Channels, RegisteredChannel
from everpoll.monitors.alerts.letter import Letter, compose
from everpoll.monitors.alerts.mailbox import KIND, MAILBOX, RETRY, Mail, Plan, Try
from everpoll.monitors.alerts.message_events import (
    MAX_LISTED,
    MessageDelivered,
    MessageEvent,
    MessageGivenUp,
    MessageUnclear,
    numbered,
)
from everpoll.monitors.checks.assignment import QUEUE
from everpoll.monitors.checks.run_or_retry import run_or_retry
from everpoll.policy import human
from everpoll.stores.contract import Again, Lease, Settlement, Store, encode
from everpoll.stores.operations import Revision

logger = logging.getLogger("everpoll.monitors")

SEND_S = 120.0
"""The time limit for a channel that has none of its own."""


class Deliveries:
    """Sends the notices in the mailboxes that this process leases."""

    def __init__(self, store: Store, channels: Channels, tools: Tools) -> None:
        self._store = store
        self._channels = channels
        self._tools = tools
        self._rng = random.Random()  # noqa: S311 - jitter needs no secure randomness
        self.outcomes: Counter[str] = Counter()
        """How many messages were sent, and how many failed."""
        self.work = Work(MAILBOX, QUEUE, self.run, handles_cancel=True, kind="mailbox")

    async def run(self, run: Run) -> Settlement:
        """Send, drop or keep the notices of one mailbox, as its plan says."""
        return await run_or_retry(run, self._run, "mailbox")

    async def _run(self, run: Run) -> Settlement:
        lease = run.lease
        now = run.now(asyncio.get_running_loop().time())
        mail = Mail() if lease.memory is None else mailbox.read(lease.memory)
        notices = mailbox.read_pending(lease.args).notices
        await self._clean(lease, mail)
        known = self._channels.get(lease.key or "")
        assert known is not None, "a process leases the mailboxes of its channels"
        repeats = known.channel.drops_repeats
        plan = mailbox.plan(mail, notices, None, now, known.group_s, drops_repeats=repeats)
        if plan.send is not None:
            begun = await self._begun(lease)
            plan = mailbox.plan(mail, notices, begun, now, known.group_s, drops_repeats=repeats)
        if plan.mail != mail:
            # Settle first: the next try would overwrite the stored one.
            return self._settled(lease, plan.mail, self._dropped(lease, plan, now))
        if plan.send is None:
            return _rested(lease, plan.rest_until - now)
        return await self._send(run, known, plan.send, mail, notices)

    async def _send(
        self, run: Run, known: RegisteredChannel, sent: Try, mail: Mail, notices: tuple[Notice, ...]
    ) -> Settlement:
        lease = run.lease
        if not await self._store.progress(run.incarnation, lease, encode(sent)):
            # Another worker has leased the mailbox. The store will reject this settlement, too.
            return Again(lease.id, lease.sequence, refund=True)
        wanted = set(sent.ids)
        letter = compose(sent.letter, [one for one in notices if one.id in wanted], sent.made_at)
        error = await self._failure(known, letter, run)
        self.outcomes["sent" if error is None else "failed"] += 1
        now = run.now(asyncio.get_running_loop().time())
        if error is not None:
            return self._undelivered(lease, known, sent, mail, error, now)
        event = MessageDelivered(message_id=sent.letter, **_about(lease, sent.ids, now))
        return self._settled(lease, mailbox.delivered(mail, sent, now), [event])

    async def _failure(self, known: RegisteredChannel, letter: Letter, run: Run) -> Undelivered | None:
        """Send a letter; return the error if it was not delivered, else None."""
        now = run.now(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(SEND_S):
                await known.channel.deliver(letter, now, self._tools)
        except Undelivered as error:
            return error
        except TimeoutError:
            return Undelivered(f"it took longer than {human(SEND_S)}", is_certain=False)
        except Exception as error:
            logger.exception("channel %r: failed inside everpoll", run.lease.key)
            return Undelivered(type(error).__name__, is_certain=False)
        return None

    def _undelivered(
        self, lease: Lease, known: RegisteredChannel, sent: Try, mail: Mail, error: Undelivered, now: float
    ) -> Settlement:
        why = str(error)
        wait_s = RETRY.delay(mail.failures + 1, self._rng, at_least_s=error.retry_after_s or 0.0)
        repeats = known.channel.drops_repeats
        if error.is_certain or repeats:
            logger.warning("channel %r: not delivered: %s; trying again in %s", lease.key, why, human(round(wait_s)))
        if error.is_certain:
            return self._settled(lease, mailbox.failed(mail, sent, why, now, wait_s))
        after = mailbox.undecided(mail, sent, why, now, wait_s, drops_repeats=repeats)
        events = [] if repeats else [self._unclear(lease, sent.ids, why, now)]
        return self._settled(lease, after, events)

    def _dropped(self, lease: Lease, plan: Plan, now: float) -> list[MessageEvent]:
        """Log the notices that are not sent any more, and return their events."""
        events: list[MessageEvent] = []
        if plan.unclear:
            events.append(self._unclear(lease, plan.unclear, mailbox.INTERRUPTED, now))
        if plan.given_up:
            why = plan.mail.error
            text = "channel %r: %d notices are given up: they could not be delivered for a day%s"
            logger.error(text, lease.key, len(plan.given_up), "" if why is None else f"; the last error: {why}")
            events.append(MessageGivenUp(error=why, **_about(lease, plan.given_up, now)))
        return events

    def _unclear(self, lease: Lease, ids: tuple[str, ...], why: str, now: float) -> MessageUnclear:
        text = "channel %r: a message about %d notices may not have been delivered: %s; it is not sent again"
        logger.error(text, lease.key, len(ids), why)
        return MessageUnclear(error=why, **_about(lease, ids, now))

    async def _begun(self, lease: Lease) -> Try | None:
        row = (await self._store.info([lease.id])).get(lease.id)
        return None if row is None or row.progress is None else msgspec.convert(row.progress, Try)

    async def _clean(self, lease: Lease, mail: Mail) -> None:
        """Remove done notices from the arguments. If these have changed meanwhile, the next run does it."""
        left = mailbox.without_done(msgspec.json.decode(lease.args), mail)
        if left is not None:
            await self._store.revise([Revision(KIND, lease.key or "", encode(left), expects=lease.args)])

    def _settled(self, lease: Lease, mail: Mail, events: Sequence[MessageEvent] = ()) -> Settlement:
        """Settle with a new memory, due again at once: the next run plans from it."""
        known = msgspec.structs.replace(mail, seq=mail.seq + len(events))
        written = numbered(events, known.seq)
        memory = mailbox.write(known).decode()
        return Again(lease.id, lease.sequence, 0.0, refund=True, memory=memory, events=written)


def _rested(lease: Lease, delay_s: float) -> Settlement:
    # Writing a memory marks the run as successful: workers that died before do not count any more.
    memory = lease.memory if lease.rescues else None
    return Again(lease.id, lease.sequence, max(0.0, delay_s), refund=True, memory=memory)


def _about(lease: Lease, ids: tuple[str, ...], now: float) -> dict[str, Any]:
    return {"channel": lease.key or "", "timestamp": now, "notices": ids[:MAX_LISTED], "count": len(ids)}
