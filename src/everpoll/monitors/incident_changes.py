"""Incident changes: opens and closes the incidents of one decision.

Promises: incidents are numbered in the order in which they open, from the counter in the memory. A service has at most
one open incident for itself and one for each dependency. At most MAX_TRACKED failing dependencies of a service are
tracked at a time; new ones wait until there is room. If a dependency is not reported any more, its incident closes.
"""

from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.control import CALM, Control, Streak
from everpoll.monitors.definition import Definition
from everpoll.monitors.dependencies import UNHEALTHY_MESSAGE, effective, lists_everything
from everpoll.monitors.events import IncidentClose, IncidentOpen, ServiceEvent, about
from everpoll.monitors.incident import RECOVERED, Incident
from everpoll.monitors.look import MAX_ERROR_CHARS, Look
from everpoll.monitors.report import Dependency, Report, Status
from everpoll.monitors.streaks import closes, incident_id, observed, observed_again, opens, opens_at

MAX_TRACKED = 100
"""How many failing dependencies of one service are tracked: a row stays small, whatever a remote reports."""
NOT_REPORTED = "not reported any more"
REMOVED = "the service was removed"


class Closing(Struct, frozen=True, gc=False):
    """An open incident that is over."""

    id: str
    dependency: str | None
    at: float
    why: str


class IncidentChanges:
    """Applies one look, or the passing of time, to the streaks of a service and its dependencies."""

    def __init__(self, definition: Definition, control: Control, at: float, now: float) -> None:
        self._definition = definition
        self._alert = definition.alert
        self._at = at
        self._now = now
        self._born = control.born
        self._number = control.incidents
        self._streak = control.streak
        self._dependencies = dict(control.dependencies)
        self.opened: list[Incident] = []
        self.closed: list[Closing] = []

    def look(self, look: Look, status: Status, error: str | None) -> None:
        """Count a look."""
        failed = None if status.healthy is None else not status.healthy
        self._streak = self._opened_or_closed(observed(self._streak, self._alert, failed, self._at), None, error)
        # Without an answer, nothing is known about the dependencies.
        if look.reached and look.report is not None:
            self._report(look.report)
        elif look.reached and look.is_unchanged:
            for name, streak in list(self._dependencies.items()):
                self._put(name, observed_again(streak, self._alert, self._at), None)

    def time(self, control: Control) -> None:
        """Open the incidents that open without a further look."""
        self._streak = self._opened_or_closed(self._streak, None, control.error)
        if not control.failures and control.status is not Status.UNKNOWN:
            for name, streak in list(self._dependencies.items()):
                self._put(name, streak, None)

    def end(self, why: str) -> None:
        """Close every incident and forget what failed: the service was removed or paused."""
        for name, streak in [(None, self._streak), *self._dependencies.items()]:
            if streak.incident is not None:
                self.closed.append(Closing(streak.incident, name, self._at, why))
        self._streak, self._dependencies = CALM, {}

    def written(self, control: Control) -> Control:
        """Return the memory with the new streaks."""
        return replace(control, streak=self._streak, dependencies=self._dependencies, incidents=self._number)

    def events(self) -> list[ServiceEvent]:
        """Return an event for each incident that was opened or closed."""
        common = about(self._definition.name, self._at)
        opened = [
            IncidentOpen(**common, incident_id=one.id, dependency_name=one.dependency, since=one.since, error=one.error)
            for one in self.opened
        ]
        closed = [
            IncidentClose(**common, incident_id=one.id, dependency_name=one.dependency, reason=one.why)
            for one in self.closed
        ]
        return [*opened, *closed]

    def _report(self, report: Report) -> None:
        names = set()
        for dependency in report.dependencies:
            name, healthy = dependency.name, effective(dependency).healthy
            streak = self._dependencies.get(name)
            is_idle = streak is None and (healthy is not False or len(self._dependencies) >= MAX_TRACKED)
            if name in names or is_idle:
                continue
            names.add(name)
            failed = None if healthy is None else not healthy
            self._put(name, observed(streak or CALM, self._alert, failed, self._at), _message(dependency))
        is_complete = lists_everything(report)
        for name in [name for name in self._dependencies if name not in names]:
            self._missing(name, report, is_complete)

    def _missing(self, name: str, report: Report, is_complete: bool) -> None:
        streak = self._dependencies[name]
        if not is_complete:
            self._put(name, observed(streak, self._alert, None, self._at), None)
        elif report.lists_failures_only:
            self._put(name, observed(streak, self._alert, False, self._at), None)
        else:
            del self._dependencies[name]
            if streak.incident is not None:
                self.closed.append(Closing(streak.incident, name, self._at, NOT_REPORTED))

    def _put(self, name: str, streak: Streak, error: str | None) -> None:
        after = self._opened_or_closed(streak, name, error)
        if after.incident is None and not after.bad and not after.window:
            self._dependencies.pop(name, None)
        else:
            self._dependencies[name] = after

    def _opened_or_closed(self, streak: Streak, dependency: str | None, error: str | None) -> Streak:
        """Open or close the incident of a streak if its rule says so; return the streak after that."""
        if closes(streak, self._alert):
            assert streak.incident is not None, "only an open incident closes"
            self.closed.append(Closing(streak.incident, dependency, self._at, RECOVERED))
            return CALM
        if not opens(streak, self._alert, self._now):
            return streak
        self._number += 1
        opened = Incident(
            id=incident_id(self._definition.name, self._born, self._number, dependency),
            service=self._definition.name,
            dependency=dependency,
            opened_at=self._at,
            since=self._at if streak.since is None else streak.since,
            error=error,
            alert=self._alert,
        )
        self.opened.append(opened)
        return replace(streak, incident=opened.id, good=0)


def next_opening(definition: Definition, control: Control) -> float | None:
    """Return when the next incident opens without a further look."""
    if definition.alert.lasting_s is None:
        return None
    streaks = [control.streak]
    if not control.failures and control.status is not Status.UNKNOWN:
        streaks += control.dependencies.values()
    times = [at for streak in streaks if (at := opens_at(streak, definition.alert)) is not None]
    return min(times, default=None)


def _message(dependency: Dependency) -> str:
    return (dependency.error_message or UNHEALTHY_MESSAGE)[:MAX_ERROR_CHARS]
