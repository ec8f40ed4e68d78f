"""The decisions of a mailbox, over any order of hand-overs, tries, failures and interruptions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.monitors.alerting import Notice
from everpoll.monitors.alerts import mailbox
from everpoll.monitors.alerts.mailbox import (
    DETAILED,
    GIVE_UP_S,
    MAX_DONE,
    MAX_PENDING,
    Mail,
    Try,
    append,
    delivered,
    failed,
    plan,
    undecided,
    without_done,
)

from .notices import NOON, notice

ENDS = st.sampled_from(["delivered", "failed", "unclear", "interrupted", "lost"])


class Box:
    """A mailbox over time, and a receiver that gets what may have arrived."""

    def __init__(self, *, drops_repeats: bool) -> None:
        self.drops_repeats = drops_repeats
        self.args: object = {}
        self.mail = Mail()
        self.begun: Try | None = None
        self.arrived: list[tuple[str, tuple[str, ...]]] = []

    def step(self, now: float, end: str) -> None:
        pending = mailbox.read_pending(mailbox.write(self.args)).notices
        found = plan(self.mail, pending, self.begun, now, 60.0, drops_repeats=self.drops_repeats)
        self.args = without_done(self.args, self.mail) or self.args
        if end == "lost":
            return  # the worker died before it settled
        self.mail = found.mail
        if found.send is None:
            return
        # As the worker does: a memory that changed is settled before anything is sent.
        pending = mailbox.read_pending(mailbox.write(self.args)).notices
        found = plan(self.mail, pending, self.begun, now, 60.0, drops_repeats=self.drops_repeats)
        if found.send is None or found.mail != self.mail:
            self.mail = found.mail
            return
        sent = self.begun = found.send
        if end != "failed":
            self.arrived.append((sent.letter, sent.ids))
        if end == "delivered":
            self.mail = delivered(self.mail, sent, now)
        elif end == "failed":
            self.mail = failed(self.mail, sent, "refused", now, 30.0)
        elif end == "unclear":
            self.mail = undecided(self.mail, sent, "silence", now, 30.0, drops_repeats=self.drops_repeats)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 4_000), ENDS), max_size=40),
    st.booleans(),
)
def test_no_notice_is_in_two_letters_that_may_have_arrived(
    story: list[tuple[int, float, str]], drops_repeats: bool
) -> None:
    box, now = Box(drops_repeats=drops_repeats), NOON
    made: dict[int, Notice] = {}
    for number, later_s, end in story:
        now += later_s
        # The same notice is handed over many times, as an incident does after a crash.
        one = made.setdefault(number, notice(f"s{number}", at=now))
        box.args = append(box.args, [one]).args
        box.step(now, end)
    letters: dict[str, tuple[str, ...]] = {}
    for letter, ids in box.arrived:
        assert letters.setdefault(letter, ids) == ids, "a letter that is repeated is the same"
    messages = [one for ids in letters.values() for one in ids]
    assert len(messages) == len(set(messages))
    if not drops_repeats:
        assert len(box.arrived) == len(letters), "none is sent a second time"


@given(st.lists(st.tuples(st.floats(0, 300), ENDS), max_size=20))
def test_whatever_happened_a_mailbox_gets_everything_out_in_the_end(story: list[tuple[float, str]]) -> None:
    box, now = Box(drops_repeats=True), NOON
    for place, (later_s, end) in enumerate(story):
        now += later_s
        box.args = append(box.args, [notice(f"s{place}", at=now)]).args
        box.step(now, end)
    for _ in range(6):
        now += 61
        box.step(now, "delivered")
    assert {one for _, ids in box.arrived for one in ids} == {notice(f"s{place}").id for place in range(len(story))}
    assert without_done(box.args, box.mail) is None
    assert box.mail.repeat is None


def test_a_group_is_over_after_its_time() -> None:
    one, two = notice("a"), notice("b", at=NOON + 59)
    assert plan(Mail(), [one, two], None, NOON + 59, 60.0, drops_repeats=False).rest_until == NOON + 60
    send = plan(Mail(), [one, two], None, NOON + 60, 60.0, drops_repeats=False).send
    assert send is not None
    assert send.ids == (one.id, two.id)


def test_what_waits_and_what_is_remembered_is_bounded() -> None:
    many = [notice(f"s{number}", error="x" * 500, at=NOON + number / 1_000) for number in range(MAX_PENDING + 100)]
    args, new, dropped = append({}, many)
    assert (new, dropped) == (MAX_PENDING, 100)
    assert len(mailbox.write(args)) < 3_000_000
    assert sum("error" in one for one in args["notices"]) == DETAILED
    mail, now = Mail(), NOON
    for place in range(8):
        now += 60
        batch = tuple(f"{place}-{number}" for number in range(MAX_PENDING))
        mail = delivered(mail, Try(number=place + 1, letter="x", made_at=now, ids=batch), now)
    assert len(mail.done) <= MAX_DONE + MAX_PENDING
    assert mail.since > NOON
    # What may be forgotten is not accepted any more.
    early = notice(at=mail.since - 1)
    assert plan(mail, [early], None, now, 60.0, drops_repeats=False).given_up == (early.id,)


def test_a_day_later_it_is_forgotten_and_still_not_sent_again() -> None:
    one = notice()
    mail = delivered(Mail(), Try(number=1, letter="x", made_at=NOON + 60, ids=(one.id,)), NOON + 60)
    for later_s in (3_600, GIVE_UP_S, GIVE_UP_S + 3_000, 2 * GIVE_UP_S, 30 * GIVE_UP_S):
        found = plan(mail, [one], None, NOON + later_s, 60.0, drops_repeats=False)
        assert found.send is None
        mail = found.mail
    assert plan(mail, [], None, NOON + 60 * GIVE_UP_S, 60.0, drops_repeats=False).send is None


def test_what_a_later_release_wrote_is_kept() -> None:
    held = {"notices": [{"id": "x/alert/ops", "new_field": 1}], "more": True}
    args = append(held, [notice()]).args
    assert args["more"] is True
    assert args["notices"][0] == {"id": "x/alert/ops", "new_field": 1}
