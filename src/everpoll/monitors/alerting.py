"""Alerting: when failed looks become an incident, which notices are sent, and how notices become messages.

    Alert     the rule of one service: when an incident opens and closes, after which delay it alerts, which channels
    Notice    one piece of news about one incident for one channel: alert, reminder or recovered
    Message   the text of all notices of one channel within one minute

Promises: the id of a notice is made from its incident, channel and kind, so that a repeat after a crash has the same
id. All alerts of one minute are in one message. This module never sends anything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.policy import Duration, human, seconds, shown, whole_number

MAX_WITHIN = 60
"""The largest `within`: the looks are remembered as bits of one number."""
MAX_CHANNELS = 20
MAX_CHANNEL_CHARS = 100
SHORTEST_REMINDER_S = 60.0
GROUP_S = 60.0
"""Alerts of this span go into one message."""
LISTED = 20
"""How many incidents one message lists; it counts the rest."""

NoticeKind = Literal["alert", "reminder", "recovered"]
_ORDER: dict[NoticeKind, int] = {"alert": 0, "reminder": 1, "recovered": 2}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Alert:
    """When an incident opens, closes and alerts: `Alert(after=2, delay="1m", to=["ops"])`.

    `after` failed looks in a row open an incident; with `within=5`, `after` failed looks among the last 5; with
    `lasting="5m"`, looks that have failed for 5 minutes. `recover` good looks in a row close it.
    """

    after: int
    within: int | None
    lasting_s: float | None
    recover: int
    delay_s: float
    """How long an incident must be open before it alerts."""
    reminder_s: float | None
    """How often an open incident that is not acknowledged alerts again; None: never."""
    to: tuple[str, ...]
    """The names of channels; none: the incident is recorded, and nothing is sent."""

    def __init__(
        self,
        after: int | None = None,
        within: int | None = None,
        lasting: Duration | None = None,
        recover: int = 1,
        delay: Duration = 0,
        reminder: Duration | None = None,
        to: Iterable[str] = (),
    ) -> None:
        put = object.__setattr__
        # With `lasting`, the time decides: the default count must not delay the incident.
        default = 2 if lasting is None else 1
        put(self, "after", _count("after", default if after is None else after, "how many failed looks open it"))
        put(self, "within", None if within is None else _within(within, self.after))
        put(self, "lasting_s", None if lasting is None else seconds(lasting, name="lasting", positive=True))
        put(self, "recover", _count("recover", recover, "how many good looks in a row close it"))
        put(self, "delay_s", seconds(delay, name="delay"))
        put(self, "reminder_s", None if reminder is None else _reminder_s(reminder))
        put(self, "to", _channels(to))
        if self.within is not None and self.lasting_s is not None:
            raise BadInput("Alert: within= counts looks and lasting= counts time; write one of them")

    def __repr__(self) -> str:
        parts = [f"after={self.after}"]
        parts += [] if self.within is None else [f"within={self.within}"]
        parts += [] if self.lasting_s is None else [f"lasting={human(self.lasting_s)!r}"]
        parts += [f"recover={self.recover}", f"delay={human(self.delay_s)!r}"]
        parts += [] if self.reminder_s is None else [f"reminder={human(self.reminder_s)!r}"]
        return f"Alert({', '.join(parts)}, to={list(self.to)})"


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of news for one channel. A step that is repeated makes it with the same id."""

    id: str
    incident: str
    channel: str
    kind: NoticeKind
    at: float
    service: str
    dependency: str | None = None
    since: float
    """When the first of the failed looks was."""
    error: str | None = None
    held_by: tuple[str, ...] = ()
    """Failed roots that held this alert back until now."""
    affected: tuple[str, ...] = ()
    """The failed services above it, whose alerts were held back because of it."""
    number: int = 0
    """The number of a reminder, from 1."""
    reason: str | None = None
    """Why the incident was closed without a recovery: the service was removed, or stopped reporting the dependency."""

    @property
    def thing(self) -> str:
        """The failed thing in words: a service, or a dependency of a service."""
        return self.service if self.dependency is None else f"{self.dependency} of {self.service}"


class Message(Struct, frozen=True, kw_only=True):
    """One message to one channel."""

    channel: str
    subject: str
    lines: tuple[str, ...]
    notices: tuple[str, ...]
    """The ids of its notices."""
    id: str = ""
    """The id of the message: the same for every try to send it."""


def notice_id(incident: str, channel: str, kind: NoticeKind, number: int = 0) -> str:
    """Return the id of a notice; the outbox keeps one notice for each id."""
    return f"{incident}/{kind}{number or ''}/{channel}"


def ready_at(pending: Sequence[Notice], *, group_s: float = GROUP_S, quiet_s: float | None = None) -> float:
    """Return when the pending notices of one channel are to be sent, as one message.

    A group collects notices for `group_s` from its first one on. With `quiet_s`, it ends earlier if no notice came for
    that long.
    """
    assert pending, "a group has at least one notice"
    first_at = min(notice.at for notice in pending)
    if quiet_s is None:
        return first_at + group_s
    return min(first_at + group_s, max(notice.at for notice in pending) + quiet_s)


def message(pending: Sequence[Notice], now: float) -> Message:
    """Make one message of the pending notices of one channel: new alerts first, then reminders, then recoveries.

    Each incident has one line, however many of its notices wait.
    """
    assert pending, "a message tells about at least one notice"
    notices = sorted(pending, key=lambda notice: (_ORDER[notice.kind], notice.at, notice.id))
    kinds: dict[str, set[NoticeKind]] = {}
    for notice in notices:
        kinds.setdefault(notice.incident, set()).add(notice.kind)
    latest = {notice.incident: notice.id for notice in notices if notice.kind == _last_kind(kinds[notice.incident])}
    listed = [notice for notice in notices if latest[notice.incident] == notice.id]
    lines = [_line(notice, now, is_new="alert" in kinds[notice.incident]) for notice in listed[:LISTED]]
    if len(listed) > LISTED:
        lines.append(f"… and {len(listed) - LISTED} more")
    return Message(
        channel=notices[0].channel,
        subject=_subject(listed),
        lines=tuple(lines),
        notices=tuple(notice.id for notice in notices),
    )


def _last_kind(kinds: set[NoticeKind]) -> NoticeKind:
    """Return the kind of notice that supersedes the others about the same incident."""
    return "recovered" if "recovered" in kinds else "alert" if "alert" in kinds else "reminder"


def _subject(notices: Sequence[Notice]) -> str:
    failed = list(dict.fromkeys(notice.thing for notice in notices if notice.kind != "recovered"))
    over = [notice for notice in notices if notice.kind == "recovered"]
    recovered = list(dict.fromkeys(notice.thing for notice in over if notice.reason is None))
    closed = list(dict.fromkeys(notice.thing for notice in over if notice.reason is not None))
    parts = []
    if failed:
        parts.append(f"{_names(failed)} {'is' if len(failed) == 1 else 'are'} down")
    if recovered:
        parts.append(f"{_names(recovered)} recovered")
    if closed:
        parts.append(f"{_names(closed)} {'is' if len(closed) == 1 else 'are'} not watched any more")
    return "; ".join(parts)


def _names(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"


def _line(notice: Notice, now: float, *, is_new: bool) -> str:
    lasted = human(round(max(0.0, now - notice.since)))
    why = f": {notice.error}" if notice.error else ""
    if notice.kind == "recovered":
        down_s = human(round(max(0.0, notice.at - notice.since)))
        if notice.reason is not None:
            return f"{notice.thing} was down for {down_s}, until its incident was closed: {notice.reason}"
        news = f"was down for {down_s} and recovered{why}" if is_new else f"recovered after {down_s}"
        return f"{notice.thing} {news}"
    again = f" (reminder {notice.number})" if notice.kind == "reminder" else ""
    held = f"; held back while {_names(notice.held_by)} was down" if notice.held_by else ""
    affects = f"; affects {_names(notice.affected)}" if notice.affected else ""
    return f"{notice.thing} has been down for {lasted}{again}{why}{held}{affects}"


def _count(name: str, value: int, meaning: str) -> int:
    return whole_number(value, name=name, at_least=1, accepted=f"{meaning}, at least 1")


def _within(value: int, after: int) -> int:
    accepted = f"the number of looks among which {after} must have failed, from {after} to {MAX_WITHIN}"
    checked = whole_number(value, name="within", at_least=after, accepted=accepted)
    if checked > MAX_WITHIN:
        raise BadInput(f"within={shown(value)}: too large; write {accepted}")
    return checked


def _reminder_s(value: Duration) -> float:
    reminder_s = seconds(value, name="reminder", positive=True)
    if reminder_s < SHORTEST_REMINDER_S:
        raise BadInput(f'reminder={shown(value)}: must be at least {human(SHORTEST_REMINDER_S)}; write "1h"')
    return reminder_s


def _channels(value: Any) -> tuple[str, ...]:
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(map(is_channel_name, names)):
        raise BadInput(f'to={shown(value)}: must be names of channels; write to=["ops"]')
    if len(names) > MAX_CHANNELS:
        raise BadInput(f"to={shown(value)}: must have at most {MAX_CHANNELS} channels")
    return tuple(dict.fromkeys(names))


def is_channel_name(name: Any) -> bool:
    """Return True if a channel may have this name."""
    return isinstance(name, str) and 1 <= len(name) <= MAX_CHANNEL_CHARS and name.isprintable()
