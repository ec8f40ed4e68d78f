"""Mailbox: the notices that wait for one channel, are being sent, or were sent, in the row of one task.

    hand over ──▶ pending ──group is over──▶ begun ──▶ delivered ────────────────▶ done
                     ▲                         ├─────▶ nothing arrived ──▶ pending, and tried again later
                     │                         └─────▶ may have arrived ─▶ the same letter again, or done
                     └── args, written by incidents          memory, written by the mailbox itself

A try is stored (`Try`, as the task's progress) before the letter is sent. If the mailbox finds a stored try whose end
is not in its memory, the worker was interrupted: the letter may have arrived.

Promises: at most one letter that may have arrived contains a notice, however often the notice is handed over and
whenever a worker dies. A letter that may have arrived is sent again only under its own id, and only to a channel that
drops repeats. A notice that could not be delivered for GIVE_UP_S is given up. Pure.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.alerting import Notice, ready_at
from everpoll.monitors.definition import hashed
from everpoll.monitors.kinds import MAILBOX_KIND
from everpoll.policy import Backoff

KIND = MAILBOX_KIND
MAILBOX = "everpoll.mailbox"
QUEUES = "everpoll.alerts."
GIVE_UP_S = 86_400.0
KEPT_S = GIVE_UP_S + 3_600.0
"""Done notices are remembered for longer than a notice is accepted: else a late repeat would count as new."""
MAX_DONE = 50_000
MAX_PENDING = 10_000
DETAILED = 100
"""How many pending notices keep their texts; a message lists fewer."""
IDLE_S = 3_600.0
RETRY = Backoff("10s", factor=2, cap="15m", jitter=0.1)
INTERRUPTED = "its worker was lost or stopped while it was being sent"


class Try(Struct, frozen=True, kw_only=True):
    """One try to send one letter."""

    number: int
    """The number of the try in this mailbox."""
    letter: str
    """The id of the letter: the same for all its tries."""
    made_at: float
    """When the letter was made."""
    ids: tuple[str, ...]


class Mail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory of a mailbox."""

    tries: int = 0
    """The number of the last try with a known end."""
    repeat: Try | None = None
    """A letter that may have arrived, and is sent again unchanged."""
    failures: int = 0
    """Tries in a row that failed."""
    retry_at: float | None = None
    error: str | None = None
    """Why the last try failed."""
    delivered_at: float | None = None
    done: dict[str, int] = {}
    """Hashes of the notices that are delivered or given up, and when, in seconds since the epoch."""
    since: float = 0.0
    """Earlier notices are not accepted: they may be done and forgotten."""
    seq: int = 0
    """The number of the last event."""


class Pending(Struct, frozen=True):
    """The arguments of a mailbox."""

    notices: tuple[Notice, ...] = ()


class Plan(NamedTuple):
    """What to do with a mailbox now."""

    mail: Mail
    send: Try | None = None
    """Store this try, then send its letter; None: there is nothing to send now."""
    rest_until: float = 0.0
    """When to plan again if there is nothing to send."""
    given_up: tuple[str, ...] = ()
    """Notices that are not tried any more, because of their age."""
    unclear: tuple[str, ...] = ()
    """Notices of an interrupted try that are not sent again."""


class Appended(NamedTuple):
    """Arguments with more notices in them."""

    args: dict[str, Any]
    new: int
    """How many notices were added; 0: the arguments are unchanged."""
    dropped: int
    """How many notices were dropped, because the mailbox is full."""


def queue_of(channel: str) -> str:
    """Return the queue of a channel's mailbox: processes lease from the queues of the channels that they have."""
    return f"{QUEUES}{channel}"


def append(held: Any, notices: Iterable[Notice]) -> Appended:
    """Add notices to the arguments of a mailbox, each once.

    `held` are the arguments as JSON; unknown fields, which a later release wrote, are kept.
    """
    args = held if isinstance(held, dict) else {}
    there = list(args.get("notices", ()))
    known = {one["id"] for one in there}
    new = list({one.id: one for one in notices if one.id not in known}.values())
    kept = new[: max(0, MAX_PENDING - len(there))]
    short = [one if place < DETAILED else _short(one) for place, one in enumerate(kept, len(there))]
    return Appended({**args, "notices": there + msgspec.to_builtins(short)}, len(kept), len(new) - len(kept))


def without_done(held: Any, mail: Mail) -> dict[str, Any] | None:
    """Return the arguments without the notices that are done; None if none is done."""
    there = held.get("notices", ()) if isinstance(held, dict) else ()
    left = [one for one in there if _mark(one["id"]) not in mail.done]
    return None if len(left) == len(there) else {**held, "notices": left}


def waiting(mail: Mail, pending: Iterable[Notice]) -> list[Notice]:
    """Return the notices that are neither delivered nor given up."""
    return [one for one in pending if _mark(one.id) not in mail.done]


def plan(
    mail: Mail, pending: Iterable[Notice], begun: Try | None, now: float, group_s: float, *, drops_repeats: bool
) -> Plan:
    """Decide what to send now. `begun` is the last stored try."""
    mail, unclear = _interrupted(mail, begun, now, drops_repeats=drops_repeats)
    mail, ready, given_up = _aged(mail, pending, now)
    if mail.repeat is not None:
        due_at = mail.retry_at or now
        number = mail.tries + 1
        send = replace(mail.repeat, number=number) if now >= due_at else None
        return Plan(mail, send, due_at, given_up, unclear)
    if not ready:
        return Plan(mail, None, now + IDLE_S, given_up, unclear)
    due_at = max(ready_at(ready, group_s=group_s), mail.retry_at or 0.0)
    send = _first_try(mail, ready, now) if now >= due_at else None
    return Plan(mail, send, due_at, given_up, unclear)


def delivered(mail: Mail, sent: Try, now: float) -> Mail:
    """Return the memory after a try that succeeded."""
    calm = replace(mail, tries=sent.number, repeat=None, failures=0, retry_at=None, error=None, delivered_at=now)
    return _done(calm, sent.ids, now)


def failed(mail: Mail, sent: Try, why: str, now: float, wait_s: float) -> Mail:
    """Return the memory after a try whose letter did not arrive (an earlier try of the same letter may have)."""
    return replace(mail, tries=sent.number, failures=mail.failures + 1, retry_at=now + wait_s, error=why)


def undecided(mail: Mail, sent: Try, why: str, now: float, wait_s: float, *, drops_repeats: bool) -> Mail:
    """Return the memory after a try whose letter may have arrived."""
    after = failed(mail, sent, why, now, wait_s)
    if drops_repeats:
        return replace(after, repeat=sent)
    return _done(replace(after, failures=0, retry_at=None), sent.ids, now)


def _interrupted(mail: Mail, begun: Try | None, now: float, *, drops_repeats: bool) -> tuple[Mail, tuple[str, ...]]:
    if begun is None or begun.number <= mail.tries:
        return mail, ()
    known = replace(mail, tries=begun.number, error=INTERRUPTED)
    if drops_repeats:
        return replace(known, repeat=begun, retry_at=now), ()
    return _done(known, begun.ids, now), begun.ids


def _aged(mail: Mail, pending: Iterable[Notice], now: float) -> tuple[Mail, list[Notice], tuple[str, ...]]:
    """Give up notices that are too old; return the memory, the other notices, and the ids of those given up."""
    oldest = now - GIVE_UP_S
    given_up: list[str] = []
    if mail.repeat is not None and mail.repeat.made_at < oldest:
        given_up += mail.repeat.ids
        mail = _done(replace(mail, repeat=None), given_up, now)
    on_the_way = set() if mail.repeat is None else set(mail.repeat.ids)
    left = [one for one in waiting(mail, pending) if one.id not in on_the_way]
    oldest = max(oldest, mail.since)
    old = [one.id for one in left if one.at < oldest]
    if not old:
        return mail, left, tuple(given_up)
    young = [one for one in left if one.at >= oldest]
    return _done(mail, old, now), young, (*given_up, *old)


def _done(mail: Mail, ids: Iterable[str], now: float) -> Mail:
    """Remember notices as done, and forget those that are too old to be handed over again."""
    done = mail.done | {_mark(one): int(now) for one in ids}
    since = mail.since
    if len(done) > MAX_DONE:
        since = max(since, float(sorted(done.values())[len(done) - MAX_DONE]))
    kept = {one: at for one, at in done.items() if at >= max(since, now - KEPT_S)}
    return replace(mail, done=kept, since=since)


def _first_try(mail: Mail, ready: list[Notice], now: float) -> Try:
    ids = tuple(one.id for one in ready)
    number = mail.tries + 1
    return Try(number=number, letter=hashed([number, now, ids]), made_at=now, ids=ids)


def _mark(notice_id: str) -> str:
    return hashed(notice_id)


def _short(notice: Notice) -> Notice:
    return replace(notice, error=None, held_by=(), affected=())


write = msgspec.json.Encoder().encode
read = msgspec.json.Decoder(Mail).decode
read_pending = msgspec.json.Decoder(Pending).decode
