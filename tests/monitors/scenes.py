"""Services and looks for the tests of decisions, and a story that plays them in order."""

from typing import Any

from everpoll.monitors import Dependency, Report, Status
from everpoll.monitors.control import Control, breaker_phase
from everpoll.monitors.decision import Decision, decide, register, wake
from everpoll.monitors.definition import Definition
from everpoll.monitors.dependencies import Changes, Known, compare
from everpoll.monitors.look import Look
from everpoll.monitors.options import define

NOON = 1_800_000_000.0
"""Seconds since the epoch at which every story begins."""


def service(name: str = "billing", target: str = "http://127.0.0.1:8080/health", **options: Any) -> Definition:
    return define(name, target, options)  # type: ignore[arg-type]


def answer(at: float, status: Status = Status.UP, took_s: float = 0.0, **more: Any) -> Look:
    return Look(started_at=at, ended_at=at + took_s, reached=True, status=status, http_status=200, **more)


def refusal(at: float, took_s: float = 0.0, **more: Any) -> Look:
    return Look(started_at=at, ended_at=at + took_s, reached=False, error="connection refused", **more)


def report(*dependencies: Dependency, status: Status = Status.UP, **more: Any) -> Report:
    return Report(status=status, format=more.pop("format", "proactive-deps"), dependencies=dependencies, **more)


def dependency(name: str = "db", status: Status = Status.UP, **more: Any) -> Dependency:
    return Dependency(name=name, status=status, **more)


class Story:
    """One service over time: every look is made exactly when it is due, unless a test says otherwise."""

    def __init__(self, definition: Definition, now: float = NOON) -> None:
        self.definition = definition
        self.decision: Decision = register(definition, now)
        self.known: dict[str, Known] = {}
        self.decisions: list[Decision] = [self.decision]

    @property
    def control(self) -> Control:
        return self.decision.control

    @property
    def due_at(self) -> float:
        return self.decision.next_at

    def look(self, look: Look, now: float | None = None, chance: float = 0.5) -> Decision:
        changes = Changes()
        if look.report is not None:
            changes = compare(self.definition.name, self.known, look.report, look.ended_at, {})
            self.known |= {one.name: one for one in changes.upserts}
        now = look.ended_at if now is None else now
        return self._take(decide(self.definition, self.control, look, now, changes, chance))

    def answers(self, status: Status = Status.UP, took_s: float = 0.0, **more: Any) -> Decision:
        self._expect_a_look()
        return self.look(answer(self.due_at, status, took_s, **more))

    def refuses(self, took_s: float = 0.0, **more: Any) -> Decision:
        self._expect_a_look()
        return self.look(refusal(self.due_at, took_s, **more))

    def sleeps_until(self, now: float) -> Decision:
        """The row is leased at that time, and there is nothing to look at."""
        woken = wake(self.definition, self.control, now)
        assert woken.decision is not None, "a look was due"
        return self._take(woken.decision)

    def phase(self, now: float) -> str:
        return breaker_phase(self.definition, self.control, now).value

    def kinds(self) -> list[str]:
        return [event.kind for decision in self.decisions for event in decision.events]

    def _expect_a_look(self) -> None:
        assert wake(self.definition, self.control, self.due_at).looks, "no look is due"

    def _take(self, decision: Decision) -> Decision:
        self.decision = decision
        self.decisions.append(decision)
        return decision
