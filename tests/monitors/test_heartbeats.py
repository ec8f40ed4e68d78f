"""Services that call everpoll: a late call means down, and everpoll's own absence means nothing."""

from everpoll.monitors import Status
from everpoll.monitors.alerting import Alert
from everpoll.monitors.decision import beat, register, wake

from .scenes import NOON, Story, service

BEATS = service(target="beat:", every="1m", timeout="10s")


def test_the_first_beat_is_awaited_for_an_interval_and_the_timeout() -> None:
    decision = register(BEATS, NOON)
    assert decision.next_at == NOON + 70
    assert decision.control.status is Status.UNKNOWN
    late = wake(BEATS, decision.control, NOON + 70).decision
    assert late is not None
    assert late.control.status is Status.DOWN
    assert late.control.error == "no heartbeat yet; expected every 1m"
    assert late.next_at == NOON + 130


def test_a_beat_in_time_keeps_it_up() -> None:
    control = register(BEATS, NOON).control
    for minute in range(1, 100):
        decision = beat(BEATS, control, NOON + minute * 60)
        control = decision.control
        assert control.status is Status.UP
        assert decision.next_at == NOON + minute * 60 + 70
        assert decision.opened == ()


def test_a_late_beat_means_down_once_more_with_each_interval() -> None:
    control = beat(BEATS, register(BEATS, NOON).control, NOON + 30).control
    times, opened = [], []
    at = control.due_at
    for _ in range(3):
        late = wake(BEATS, control, at).decision
        assert late is not None
        times.append(at - NOON)
        control, at = late.control, late.next_at
        opened.append(len(late.opened))
    assert times == [100, 160, 220]
    assert opened == [0, 1, 0]
    assert control.error == "no heartbeat for 3m10s; expected every 1m"
    assert control.failures == 3
    back = beat(BEATS, control, NOON + 250)
    assert back.control.status is Status.UP
    assert len(back.closed) == 1


def test_nothing_is_ever_asked() -> None:
    control = register(BEATS, NOON).control
    for at in (NOON + 1, NOON + 70, NOON + 500):
        assert not wake(BEATS, control, at).looks
        assert not wake(BEATS, control, at, is_forced=True).looks


def test_missed_beats_open_no_breaker() -> None:
    control = register(BEATS, NOON).control
    kinds = []
    for _ in range(20):
        late = wake(BEATS, control, control.due_at).decision
        assert late is not None
        control = late.control
        kinds += [event.kind for event in late.events]
    assert "circuit:open" not in kinds
    assert control.failures == 20


def test_a_deadline_that_passed_without_any_worker_says_nothing() -> None:
    """All workers were away for an hour: beats may have come and were lost."""
    control = beat(BEATS, register(BEATS, NOON).control, NOON + 30).control
    decision = wake(BEATS, control, NOON + 3_700).decision
    assert decision is not None
    assert decision.control.status is Status.UNKNOWN
    assert decision.control.error == "not asked: no worker was running at the deadline"
    assert decision.next_at == NOON + 3_770
    late = wake(BEATS, decision.control, NOON + 3_770).decision
    assert late is not None
    assert late.control.status is Status.DOWN


def test_a_row_that_is_due_too_early_waits_on() -> None:
    control = beat(BEATS, register(BEATS, NOON).control, NOON + 30).control
    decision = wake(BEATS, control, NOON + 40).decision
    assert decision is not None
    assert decision.next_at == NOON + 100
    assert decision.control.status is Status.UP


def test_another_interval_holds_at_once_and_another_token_waits_anew() -> None:
    control = beat(BEATS, register(BEATS, NOON).control, NOON + 30).control
    slower = service(target="beat:", every="1h", timeout="5m")
    decision = wake(slower, control, NOON + 40).decision
    assert decision is not None
    assert decision.next_at == NOON + 30 + 3_600 + 300
    other = service(target="beat:0123456789abcdef", every="1m", timeout="10s")
    decision = wake(other, control, NOON + 1_000).decision
    assert decision is not None
    assert decision.next_at == NOON + 1_070
    assert decision.opened == ()


def test_a_beat_may_say_that_the_service_is_not_well() -> None:
    definition = service(target="beat:", every="1m", alert=Alert(after=1))
    decision = beat(definition, register(definition, NOON).control, NOON + 5, Status.DOWN)
    assert decision.control.status is Status.DOWN
    assert len(decision.opened) == 1


def test_a_service_that_turns_into_a_heartbeat_is_not_late_at_once() -> None:
    story = Story(service())
    story.answers()
    decision = wake(BEATS, story.control, story.due_at).decision
    assert decision is not None
    assert decision.next_at == story.due_at + 70
