"""Whatever happens in whatever order, never are two probes out, and the breaker never refuses for ever."""

from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.policy import Breaker, BreakerPhase, BreakerState

reproducible = settings(derandomize=True, deadline=None, max_examples=300)
EVENTS = ("ask", "force", "succeeded", "failed", "abandoned", "crash")
steps = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from([0.0, 1.0, 29.0, 30.0, 31.0, 70.0])), max_size=60)


class History:
    """Plays events against a breaker and keeps, apart from its state, the instant at which a probe left."""

    def __init__(self, breaker: Breaker) -> None:
        self.breaker, self.state, self.now = breaker, BreakerState(), 1000.0
        self.probe_left_at: float | None = None

    def probe_is_out(self) -> bool:
        return self.probe_left_at is not None and self.now < self.probe_left_at + self.breaker.cooldown_s

    def ask(self, force: bool) -> None:
        was_closed = self.breaker.phase(self.state, self.now) is BreakerPhase.CLOSED
        self.state, allowed = self.breaker.ask(self.state, self.now, force=force)
        if was_closed:
            assert allowed
        elif allowed:
            assert not self.probe_is_out(), "a second probe left while one was out"
            self.probe_left_at = self.now

    def report(self, event: str) -> None:
        # Only a probe that is out, or a call made while closed, has anything to report.
        if not self.probe_is_out() and self.breaker.phase(self.state, self.now) is not BreakerPhase.CLOSED:
            return
        if event == "succeeded":
            self.state = self.breaker.succeeded(self.state)
        elif event == "failed":
            self.state = self.breaker.failed(self.state, self.now)
        elif event == "abandoned":
            self.state = self.breaker.abandoned(self.state)
        self.probe_left_at = None if event != "crash" else self.probe_left_at


@reproducible
@given(steps)
def test_two_probes_are_never_out_at_once(events: list[tuple[str, float]]) -> None:
    history = History(Breaker(3, "30s"))
    for event, later_s in events:
        history.now += later_s
        if event in ("ask", "force"):
            history.ask(force=event == "force")
        else:
            history.report(event)


@reproducible
@given(steps)
def test_retry_at_is_the_first_instant_at_which_asking_helps(events: list[tuple[str, float]]) -> None:
    history = History(Breaker(3, "30s"))
    for event, later_s in events:
        history.now += later_s
        if event in ("ask", "force"):
            history.ask(force=event == "force")
        else:
            history.report(event)
        retry_at = history.breaker.retry_at(history.state, history.now)
        assert retry_at >= history.now
        assert history.breaker.ask(history.state, retry_at)[1]
        if retry_at > history.now:
            assert not history.breaker.ask(history.state, (history.now + retry_at) / 2)[1]
            assert not history.breaker.ask(history.state, history.now)[1]
