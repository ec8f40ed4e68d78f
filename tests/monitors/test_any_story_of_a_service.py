"""Any looks, crashes, changes of definition, mutes and roots, in any order: one incident a thing, one alert a channel.

The machine plays a store: rows of a service and of its incidents, and an outbox. A crash drops what a worker decided
before it was written, and another worker repeats it later.
"""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from everpoll import Backoff, Breaker
from everpoll.monitors import Report, Status
from everpoll.monitors.alerting import Alert, Notice
from everpoll.monitors.control import Control, Streak, read, write
from everpoll.monitors.decision import Decision, decide, register, remove, wake
from everpoll.monitors.definition import Definition
from everpoll.monitors.dependencies import NO_CHANGES, Changes, Known, compare
from everpoll.monitors.incident import Incident, Situation, acknowledge, close, next_step
from everpoll.monitors.incident import read as read_incident
from everpoll.monitors.incident import write as write_incident
from everpoll.monitors.look import Look

from .scenes import NOON, dependency, report, service

definitions = st.builds(
    service,
    target=st.sampled_from(("https://a.example/health", "https://b.example/health")),
    every=st.sampled_from(("5s", "30s")),
    breaker=st.sampled_from((Breaker(3, "1m"), Breaker(1, "10m"))),
    backoff=st.sampled_from((Backoff("1s", cap="5m", jitter=0), None)),
    alert=st.sampled_from(
        (
            Alert(to=["ops"]),
            Alert(after=1, to=["ops", "mail"], reminder="1h"),
            Alert(after=2, within=4, recover=2, to=["ops"], delay="1m"),
            Alert(lasting="90s", to=["ops"], delay="30s"),
            Alert(after=3),
        )
    ),
)
reports = st.builds(
    lambda statuses, only: report(
        *(dependency(name, status) for name, status in statuses.items()), lists_failures_only=only
    ),
    st.dictionaries(st.sampled_from(("db", "cache")), st.sampled_from(Status), max_size=2),
    st.booleans(),
)
found = st.fixed_dictionaries(
    {
        "reached": st.sampled_from((True, True, True, False, False, None)),
        "status": st.sampled_from(Status),
        "report": st.none() | reports,
        "is_witnessed": st.sampled_from((None, None, None, False)),
        "is_forced": st.sampled_from((False, False, False, True)),
        "late_s": st.sampled_from((0.0, 0.0, 1.0, 400.0)),
        "crashes": st.sampled_from((0, 0, 0, 1, 2)),
    }
)


class Services(RuleBasedStateMachine):
    """One service in a store of its own."""

    @initialize(definition=definitions)
    def begin(self, definition: Definition) -> None:
        self.now = NOON
        self.roots: tuple[str, ...] = ()
        self.muted_until: float | None = None
        self.incidents: dict[str, Incident] = {}
        self.due: dict[str, float | None] = {}
        self.outbox: dict[str, Notice] = {}
        self.closed: set[str] = set()
        self.seen_ids: set[str] = set()
        self.definition = definition
        self._begin_row(register(definition, self.now))

    def _begin_row(self, decision: Decision) -> None:
        self.memory = write(decision.control)
        self.row_due = decision.next_at
        self.known: dict[str, Known] = {}
        self.seq = decision.control.seq

    @property
    def control(self) -> Control:
        return read(self.memory)

    @rule(what=found)
    def row_is_leased(self, what: dict[str, Any]) -> None:
        """The row is due, or a caller forces a look; some workers crash before one of them writes its decision."""
        if not what["is_forced"]:
            self.now = max(self.now, self.row_due)
        self.now += what["late_s"]
        looks: list[Decision] = []
        changes = NO_CHANGES
        decision: Decision | None = None
        for _ in range(1 + what["crashes"]):
            self.now += 0.5
            woken = wake(self.definition, self.control, self.now, is_forced=what["is_forced"])
            decision, changes = woken.decision, NO_CHANGES
            if decision is None:
                look = self._look(what)
                changes = self._changes(look)
                decision = decide(self.definition, self.control, look, self.now, changes)
                looks.append(decision)
                self._check_repeats(looks)
        assert decision is not None
        assert self.now < decision.next_at
        self._settle(decision, changes)

    def _look(self, what: dict[str, Any]) -> Look:
        return Look(
            started_at=self.now,
            ended_at=self.now,
            reached=what["reached"],
            status=what["status"],
            report=what["report"] if what["reached"] else None,
            is_witnessed=what["is_witnessed"],
            is_forced=what["is_forced"],
        )

    def _changes(self, look: Look) -> Changes:
        reported: Report | None = look.report
        return NO_CHANGES if reported is None else compare("billing", self.known, reported, self.now, {})

    def _check_repeats(self, decided: list[Decision]) -> None:
        """The same look, repeated later from the same memory, opens the same incidents; time may open one more."""
        earlier, later = decided[0], decided[-1]
        ids = [incident.id for incident in later.opened]
        assert [incident.id for incident in earlier.opened] == ids[: len(earlier.opened)]
        assert [closing.id for closing in earlier.closed] == [closing.id for closing in later.closed]

    def _settle(self, decision: Decision, changes: Changes) -> None:
        """One transaction: the row, its incidents and its events."""
        self.seq += len(decision.events)
        assert decision.control.seq == self.seq
        for incident in decision.opened:
            assert incident.id not in self.seen_ids, "an id is used once"
            self.seen_ids.add(incident.id)
            self.incidents[incident.id] = incident
            self.due[incident.id] = self.now
        self._close(decision)
        self.known |= {one.name: one for one in changes.upserts}
        self.memory, self.row_due = write(decision.control), decision.next_at

    def _close(self, decision: Decision) -> None:
        for closing in decision.closed:
            assert closing.id not in self.closed, "an incident closes once"
            self.closed.add(closing.id)
            self.incidents[closing.id] = close(self.incidents[closing.id], closing.why, closing.at)
            self.due[closing.id] = self.now

    @precondition(lambda self: any(due is not None for due in self.due.values()))
    @rule(data=st.data(), crashes=st.booleans())
    def incident_is_leased(self, data: st.DataObject, crashes: bool) -> None:
        due = sorted(name for name, at in self.due.items() if at is not None)
        name = data.draw(st.sampled_from(due))
        self.now = max(self.now, self.due[name] or 0.0)
        situation = Situation(muted_until=self.muted_until, roots=self.roots)
        before = read_incident(write_incident(self.incidents[name]))
        step = next_step(before, self.now, situation)
        if crashes:
            self.now += 3
            again = next_step(before, self.now, situation)
            assert {one.id for one in step.notices} <= {one.id for one in again.notices}
            step = again
        for notice in step.notices:
            assert notice.id not in self.outbox, "a notice is made once"
            self.outbox[notice.id] = notice
            if notice.kind == "alert":
                assert not self.roots
            if notice.kind != "recovered":
                assert self.muted_until is None or self.muted_until <= self.now
        assert step.next_at is None or step.next_at > self.now
        assert (step.next_at is None) == (before.closed_at is not None)
        self.incidents[name], self.due[name] = step.incident, step.next_at

    @rule(definition=definitions)
    def definition_is_replaced(self, definition: Definition) -> None:
        self.definition = definition
        self.row_due = self.now

    @rule(for_s=st.sampled_from((0.0, 60.0, 5_000.0)))
    def service_is_muted(self, for_s: float) -> None:
        self.muted_until = self.now + for_s

    @rule(roots=st.sampled_from(((), (), ("PostgreSQL",))))
    def roots_fail_and_recover(self, roots: tuple[str, ...]) -> None:
        self.roots = roots

    @precondition(lambda self: any(one.closed_at is None for one in self.incidents.values()))
    @rule(data=st.data())
    def incident_is_acknowledged(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(n for n, one in self.incidents.items() if one.closed_at is None)))
        self.incidents[name] = acknowledge(self.incidents[name], "ada", self.now)
        self.due[name] = self.now

    @rule()
    def service_is_removed_and_registered_again(self) -> None:
        gone = remove(self.definition, self.control, self.now)
        self._close(gone)
        self.now += 10
        self._begin_row(register(self.definition, self.now))

    @invariant()
    def one_open_incident_for_a_thing(self) -> None:
        open_ones = Counter(one.dependency for one in self.incidents.values() if one.closed_at is None)
        assert all(count == 1 for count in open_ones.values())
        control = self.control
        streaks: list[tuple[str | None, Streak]] = [(None, control.streak), *control.dependencies.items()]
        remembered = {name: streak.incident for name, streak in streaks if streak.incident is not None}
        stored = {one.dependency: one.id for one in self.incidents.values() if one.closed_at is None}
        assert remembered == stored

    @invariant()
    def one_alert_for_an_incident_and_a_channel(self) -> None:
        alerts = Counter((one.incident, one.channel) for one in self.outbox.values() if one.kind == "alert")
        assert all(count == 1 for count in alerts.values())
        for one in self.outbox.values():
            assert one.kind == "alert" or (one.incident, one.channel) in alerts
            assert one.channel in self.incidents[one.incident].alert.to


TestServices = Services.TestCase
TestServices.settings = settings(derandomize=True, deadline=None, max_examples=60, stateful_step_count=40)
