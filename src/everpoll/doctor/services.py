"""Judgements about monitoring: services that are not looked at, alerts that are not delivered. Pure."""

from collections.abc import Sequence

import msgspec

from everpoll.doctor.diagnosis import Verdict, counted, fine, listed, problem, warning, worst_of
from everpoll.monitors.alerting import GROUP_S
from everpoll.monitors.alerts.mailbox import Mail, Pending, waiting
from everpoll.monitors.checks.assignment import KIND as CHECK
from everpoll.policy import human
from everpoll.stores.contract import TaskInfo
from everpoll.stores.examination import DueTasks

STALE_S = 60.0
"""A look that has been due for longer is reported as late."""
UNSENT_S = 2 * GROUP_S
"""A notice that has waited for longer is reported: its group should have been sent."""


def stale(due: Sequence[DueTasks]) -> Verdict:
    """Judge whether services are looked at when they are due."""
    late = [one for one in due if one.kind == CHECK and one.oldest_s >= STALE_S]
    if not late:
        return fine("all looks at services are on time")
    number, oldest_s = sum(one.tasks for one in late), max(one.oldest_s for one in late)
    keys, verb = listed(key for one in late for key in one.keys), "is" if number == 1 else "are"
    return problem(
        f"{counted(number, 'look')} at services {verb} late, the oldest by {human(round(oldest_s))}: {keys}",
        "start a worker, or more of them: `everpoll run`; `everpoll why SERVICE` says what one of them waits for",
    )


def outbox(mailboxes: Sequence[TaskInfo], now: float) -> Verdict:
    """Judge whether alerts leave their mailboxes."""
    found = [verdict for one in mailboxes if one.ended_at is None and (verdict := _mailbox(one, now)) is not None]
    number = sum(one.ended_at is None for one in mailboxes)
    return worst_of(
        found, fine(f"{counted(number, 'channel')}, and no alert is stuck" if number else "no channel has alerts")
    )


def _mailbox(one: TaskInfo, now: float) -> Verdict | None:
    try:
        mail = Mail() if one.memory is None else msgspec.convert(one.memory, Mail)
        unsent = waiting(mail, msgspec.convert(one.args, Pending).notices)
    except msgspec.ValidationError:
        return warning(f"the mailbox of channel {one.key!r} cannot be read by this release", "upgrade everpoll here")
    if not unsent:
        return None
    oldest_s = now - min(notice.at for notice in unsent)
    age = human(max(0, round(oldest_s)))
    says = f"channel {one.key!r} has {counted(len(unsent), 'message')} to send, the oldest for {age}"
    if mail.error is not None and mail.failures:
        return problem(
            f"{says}; {counted(mail.failures, 'attempt')} in a row failed: {mail.error}",
            f"mend the channel {one.key!r}: `everpoll services incidents` shows what waits",
        )
    if oldest_s < UNSENT_S:
        return None
    return problem(says, f"run a process that has the channel {one.key!r}, and services: `everpoll run`")
