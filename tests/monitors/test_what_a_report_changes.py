"""Dependencies are known by (service, name); histories grow on change only; an unchanged report writes nothing."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.monitors import Dependency, Report, Status
from everpoll.monitors.dependencies import NO_CHANGES, Changes, Known, canonical, compare

from .scenes import NOON, dependency, report

reproducible = settings(derandomize=True, deadline=None, max_examples=300)


class Book:
    """The dependencies of one service, as a store would hold them, with both histories."""

    def __init__(self, aliases: dict[str, str] | None = None) -> None:
        self.aliases = aliases or {}
        self.known: dict[str, Known] = {}
        self.errors: list[tuple[str, Any, str | None]] = []
        self.latencies: list[tuple[str, float]] = []
        self.kinds: list[str] = []
        self.at = NOON

    def read(self, *dependencies: Dependency, **more: Any) -> Changes:
        return self.take(report(*dependencies, **more))

    def take(self, reported: Report) -> Changes:
        self.at += 30
        changes = compare("billing", self.known, reported, self.at, self.aliases)
        self.known |= {one.name: one for one in changes.upserts}
        self.errors += [(entry.name, entry.error, entry.message) for entry in changes.errors]
        self.latencies += [(entry.name, entry.latency_ms) for entry in changes.latencies]
        self.kinds += [event.kind for event in changes.events]
        return changes


def down(error: Any = None, message: str | None = None) -> Dependency:
    return dependency("db", Status.DOWN, error=error, error_message=message)


def test_a_new_dependency_is_recognised_as_new() -> None:
    book = Book()
    book.read(dependency("db", contact={"mail": "dba@example.com"}, impact="no orders"))
    assert book.kinds == ["dependency:new"]
    assert book.known["db"].first_at == book.known["db"].changed_at == NOON + 30
    assert book.known["db"].reported.contact == {"mail": "dba@example.com"}


def test_an_unchanged_report_writes_nothing() -> None:
    book = Book()
    book.read(dependency("db", contact={"a": 1}), dependency("cache"))
    changes = book.read(dependency("db", contact={"a": 1}), dependency("cache"))
    assert changes is NO_CHANGES
    assert changes.is_empty
    changes = book.read(dependency("cache"), dependency("db", contact={"a": 1}, latency_ms=12.0))
    assert changes.is_empty
    assert [entry.latency_ms for entry in changes.latencies] == [12.0]


def test_every_field_follows_the_latest_report() -> None:
    book = Book()
    for fields in (
        {"contact": {"mail": "a"}},
        {"contact": {"mail": "b"}},
        {"contact": None},
        {"check_details": {"type": "database"}},
        {"impact": "all"},
        {"description": "main"},
        {"type": "database"},
        {"skipped": True},
    ):
        changes = book.read(dependency("db", **fields))
        assert len(changes.upserts) == 1
        for name, value in fields.items():
            assert getattr(book.known["db"].reported, name) == value
    assert book.kinds == ["dependency:new"], "none of these is a change of health"


def test_a_skipped_dependency_counts_as_healthy_whatever_its_status() -> None:
    """Each format says up already; a report that does not is treated alike."""
    book = Book()
    book.read(dependency())
    changes = book.read(dependency("db", Status.DOWN, skipped=True, error_message="refused"))
    assert book.known["db"].status is Status.UP
    assert (changes.events, changes.errors) == ((), ())


def test_a_change_of_health_sets_the_time_and_is_an_event() -> None:
    book = Book()
    book.read(dependency())
    changes = book.read(down(message="refused"))
    assert book.known["db"].changed_at == NOON + 60
    (event,) = changes.events
    assert event.kind == "status:change"
    book.read(down(message="timed out"))
    assert book.known["db"].changed_at == NOON + 60
    book.read(dependency())
    assert book.known["db"].changed_at == NOON + 120
    assert book.kinds == ["dependency:new", "status:change", "status:change"]


def test_the_error_history_grows_on_change_only() -> None:
    book = Book()
    book.read(dependency())
    for _ in range(3):
        book.read(down({"code": 1}, "refused"))
    for _ in range(3):
        book.read(down({"code": 2}, "refused"))
    for _ in range(3):
        book.read(dependency())
    book.read(down({"code": 2}, "refused"))
    assert book.errors == [
        ("db", {"code": 1}, "refused"),
        ("db", {"code": 2}, "refused"),
        ("db", None, None),
        ("db", {"code": 2}, "refused"),
    ]


def test_a_dependency_that_is_down_from_the_beginning_has_an_error_at_once() -> None:
    book = Book()
    book.read(down({"code": 1}))
    assert book.errors == [("db", {"code": 1}, None)]


def test_unhealthy_without_an_error_is_stored_as_such() -> None:
    book = Book()
    for _ in range(2):
        book.read(down())
    for _ in range(2):
        book.read(down(message="pool is empty"))
    book.read(down())
    assert book.errors == [
        ("db", {"unhealthy": True}, "Unhealthy"),
        ("db", {"unhealthy": True}, "pool is empty"),
        ("db", {"unhealthy": True}, "Unhealthy"),
    ]


@pytest.mark.parametrize("error", [0, False, "", [], {}])
def test_an_error_that_is_empty_is_an_error_all_the_same(error: Any) -> None:
    book = Book()
    book.read(down(error))
    assert book.errors == [("db", error, None)]


def test_degraded_counts_as_healthy_and_unknown_as_nothing() -> None:
    book = Book()
    book.read(down({"code": 1}))
    book.read(dependency("db", Status.UNKNOWN))
    book.read(down({"code": 1}))
    book.read(dependency("db", Status.DEGRADED, error={"slow": True}))
    assert book.errors == [("db", {"code": 1}, None), ("db", None, None)]


def test_a_skipped_dependency_counts_as_up_and_is_marked() -> None:
    book = Book()
    book.read(dependency("db", Status.DOWN, skipped=True, error={"code": 1}))
    assert book.known["db"].status is Status.UP
    assert book.known["db"].reported.skipped
    assert book.errors == []
    book.read(down())
    assert book.kinds == ["dependency:new", "status:change"]


def test_latencies_above_zero_are_entries_of_every_look() -> None:
    book = Book()
    for latency_ms in (None, 0.0, -1.0, 3.5, 3.5, 0.001):
        book.read(dependency("db", latency_ms=latency_ms))
    assert book.latencies == [("db", 3.5), ("db", 3.5), ("db", 0.001)]


def test_a_dependency_that_is_not_reported_any_more_has_vanished_and_does_not_count_as_up() -> None:
    book = Book()
    book.read(dependency("db"), dependency("cache"))
    changes = book.read(dependency("cache"))
    assert changes.vanished == ("db",)
    assert book.known["db"].status == "unknown"
    assert book.read(dependency("cache")) is NO_CHANGES
    book.read(dependency("db", Status.DOWN), dependency("cache"))
    assert book.known["db"].status == "down"
    assert book.kinds[2:] == ["dependency:vanished", "dependency:returned"]


@pytest.mark.parametrize(
    "reported",
    [
        report(status=Status.DOWN),
        report(status=Status.UNKNOWN, format="mapping", warnings=("cannot be read",)),
        report(format="plain"),
        report(warnings=("item 0: no name",)),
    ],
)
def test_a_body_that_lists_nothing_for_another_reason_makes_nothing_vanish(reported: Report) -> None:
    book = Book()
    book.read(dependency("db"))
    assert book.take(reported).is_empty
    assert book.known["db"].status is Status.UP


def test_a_format_that_lists_failures_only_reports_the_rest_as_up() -> None:
    book = Book()
    failing = {"format": "health-go", "lists_failures_only": True}
    book.read(down(message="refused"), dependency("cache", Status.DOWN), status=Status.DOWN, **failing)
    changes = book.read(dependency("cache", Status.DOWN), status=Status.DEGRADED, **failing)
    assert changes.vanished == ()
    assert book.known["db"].status is Status.UP
    assert book.errors[-1] == ("db", None, None)
    book.read(status=Status.UP, **failing)
    assert book.known["cache"].status is Status.UP
    assert book.read(status=Status.UP, **failing) is NO_CHANGES
    assert "dependency:vanished" not in book.kinds


def test_of_two_with_one_name_the_first_counts() -> None:
    book = Book()
    book.read(dependency("db", latency_ms=1), dependency("db", Status.DOWN, latency_ms=2))
    assert book.known["db"].status is Status.UP
    assert book.latencies == [("db", 1)]
    assert book.read(dependency("db"), dependency("db", Status.DOWN)) is NO_CHANGES


def test_an_alias_gives_the_canonical_name_and_a_new_alias_holds_at_once() -> None:
    book = Book({"pg-main": "PostgreSQL"})
    book.read(dependency("pg-main"), dependency("cache"))
    assert book.known["pg-main"].canonical == "PostgreSQL"
    assert book.known["cache"].canonical == "cache"
    book.aliases["cache"] = "Redis"
    assert [one.canonical for one in book.read(dependency("pg-main"), dependency("cache")).upserts] == ["Redis"]


def test_aliases_of_aliases_and_circles_of_them_end() -> None:
    assert canonical("a", {"a": "b", "b": "c"}) == "c"
    assert canonical("a", {"a": "a"}) == "a"
    assert canonical("a", {"a": "b", "b": "a"}) == "b"
    assert canonical("x", {}) == "x"


names = st.sampled_from(("db", "cache", "mail"))
dependencies = st.builds(
    Dependency,
    name=names,
    status=st.sampled_from(Status),
    skipped=st.booleans(),
    latency_ms=st.sampled_from((None, 0.0, 5.0)),
    error=st.sampled_from((None, {"code": 1}, {"code": 2})),
    error_message=st.sampled_from((None, "refused")),
)
reports = st.builds(
    Report,
    status=st.sampled_from(Status),
    format=st.sampled_from(("proactive-deps", "plain")),
    dependencies=st.lists(dependencies, max_size=4).map(tuple),
    lists_failures_only=st.booleans(),
    warnings=st.sampled_from(((), ("unreadable",))),
)


@reproducible
@given(st.lists(reports, max_size=12))
def test_histories_hold_whatever_is_reported(story: list[Report]) -> None:
    book = Book()
    for reported in story:
        before = dict(book.known)
        changes = book.take(reported)
        again = compare("billing", book.known, reported, book.at + 1, {})
        assert again.is_empty, "the same report changes nothing"
        assert (again.errors, again.events) == ((), ())
        assert {one.name for one in changes.upserts} == {n for n in book.known if book.known[n] != before.get(n)}
        assert set(before) <= set(book.known), "nothing that was known is forgotten"
    for name in book.known:
        entries = [entry for entry in book.errors if entry[0] == name]
        assert all(one != other for one, other in pairwise(entries))
        current = (book.known[name].error, book.known[name].error_message)
        assert current == (entries[-1][1:] if entries else (None, None))
        assert entries == [] or entries[0][1] is not None
