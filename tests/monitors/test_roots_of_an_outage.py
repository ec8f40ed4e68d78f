"""One graph of services and reported dependencies: the failed roots are found, circles or not, in linear time."""

import random
import sys
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.monitors import Status
from everpoll.monitors.dependency_cycles import grouped
from everpoll.monitors.graph import CallerReport, Graph, ServiceFacts

reproducible = settings(derandomize=True, deadline=None, max_examples=300)
UP, DOWN, DEGRADED, UNKNOWN = Status.UP, Status.DOWN, Status.DEGRADED, Status.UNKNOWN


def facts(
    name: str,
    status: Status = UP,
    depends_on: Iterable[str] = (),
    since: float = 0.0,
    alerts: bool = True,
    **reported: Status,
) -> ServiceFacts:
    said = tuple((dependency.replace("_", "-"), one, since) for dependency, one in reported.items())
    return ServiceFacts(
        name=name, status=status, since=since, depends_on=tuple(depends_on), reported=said, alerts=alerts
    )


def test_the_root_is_the_failed_thing_with_nothing_failed_below() -> None:
    graph = Graph(
        [
            facts("shop", DOWN, ["billing"]),
            facts("billing", DOWN, ["storage"]),
            facts("storage", DOWN, ["net"]),
            facts("net"),
        ]
    )
    assert graph.root_cause("shop") == ("storage",)
    assert graph.root_cause("billing") == ("storage",)
    assert graph.root_cause("storage") == ()
    assert graph.root_cause("net") == ()
    assert graph.root_cause("nowhere") == ()


def test_a_reported_dependency_may_be_the_root() -> None:
    graph = Graph(
        [facts("shop", DOWN, ["billing"]), facts("billing", DOWN, pg_main=DOWN, cache=UP)], {"pg-main": "PostgreSQL"}
    )
    assert graph.root_cause("shop") == ("PostgreSQL",)
    assert graph.node("pg-main").name == "PostgreSQL"
    assert graph.node("PostgreSQL").status is DOWN
    assert graph.callers("PostgreSQL") == ("billing",)
    assert graph.depends_on("billing") == ("PostgreSQL", "cache")


def test_trouble_leads_through_what_is_only_degraded() -> None:
    graph = Graph(
        [
            facts("shop", DOWN, ["billing"]),
            facts("billing", DEGRADED, db=DOWN),
            facts("web", DOWN, ["cdn"]),
            facts("cdn", DEGRADED),
        ]
    )
    assert graph.root_cause("shop") == ("db",)
    assert graph.root_cause("web") == (), "a service that is only degraded is not a root"
    above = Graph([facts("x", DOWN, ["web"]), facts("web", DOWN, ["cdn"]), facts("cdn", DEGRADED)])
    assert above.root_cause("x") == ("web",)


def test_several_roots_are_all_named() -> None:
    graph = Graph([facts("shop", DOWN, ["a", "b"]), facts("a", DOWN), facts("b", DOWN, x=DOWN), facts("c", DOWN)])
    assert graph.root_cause("shop") == ("a", "x")


def test_of_a_circle_the_first_that_failed_is_the_root_and_has_none() -> None:
    graph = Graph(
        [
            facts("a", DOWN, ["b"], since=30),
            facts("b", DOWN, ["c"], since=10),
            facts("c", DOWN, ["a"], since=20),
            facts("shop", DOWN, ["a"]),
        ]
    )
    assert [graph.root_cause(name) for name in ("a", "b", "c", "shop")] == [("b",), (), ("b",), ("b",)]


def test_a_circle_with_something_failed_below_has_that_as_its_root() -> None:
    graph = Graph([facts("a", DOWN, ["b"]), facts("b", DOWN, ["a"], db=DOWN)])
    assert graph.root_cause("a") == graph.root_cause("b") == ("db",)


def test_a_thing_that_depends_on_itself_is_no_trouble() -> None:
    graph = Graph([facts("a", DOWN, a=DOWN)])
    assert graph.root_cause("a") == ()
    assert graph.depends_on("a") == ()


def test_what_callers_report_is_shown_beside_the_own_status() -> None:
    graph = Graph([facts("billing", UP), facts("shop", DOWN, billing=DOWN, since=7), facts("web", UP, billing=UP)])
    node = graph.node("billing")
    assert node.status is UP
    assert node.is_service
    assert node.reported == (CallerReport("shop", DOWN, 7), CallerReport("web", UP, 0))
    assert graph.root_cause("shop") == ("billing",), "as shop sees it"
    assert graph.root_cause("billing") == ()


def test_the_own_report_of_a_service_decides_what_is_below_it() -> None:
    """The database is down for billing; web reaches it, and is down for another reason."""
    graph = Graph([facts("billing", DOWN, db=DOWN), facts("web", DOWN, db=UP)])
    assert graph.root_cause("web") == ()
    assert graph.root_cause("billing") == ("db",)
    assert graph.node("db").status is DOWN


def test_what_a_failed_thing_explains() -> None:
    graph = Graph(
        [
            facts("shop", DOWN, ["billing"]),
            facts("billing", DEGRADED, db=DOWN),
            facts("web", UP, ["billing"]),
            facts("x", DOWN),
        ]
    )
    assert graph.affected("db") == ("shop",)
    assert graph.affected("x") == ()


def test_an_alert_is_held_back_by_roots_that_alert_themselves() -> None:
    graph = Graph([facts("shop", DOWN, ["billing"]), facts("billing", DOWN)])
    assert graph.held_by("shop") == ("billing",)
    assert graph.held_by("billing") == ()
    silent = Graph([facts("shop", DOWN, ["billing"]), facts("billing", DOWN, alerts=False)])
    assert silent.held_by("shop") == (), "no other alert would tell about it"


def test_of_several_callers_that_report_one_dependency_the_first_alerts() -> None:
    graph = Graph(
        [
            facts("billing", DOWN, since=20, pg=DOWN),
            facts("shop", DOWN, since=10, postgres=DOWN),
            facts("mute", DOWN, since=5, alerts=False, pg=DOWN),
        ],
        {"pg": "PostgreSQL", "postgres": "PostgreSQL"},
    )
    assert graph.held_by("shop", "postgres") == ()
    assert graph.held_by("billing", "pg") == ("PostgreSQL",)
    assert graph.held_by("shop") == graph.held_by("billing") == ("PostgreSQL",)


def test_a_reported_dependency_that_is_a_failed_service_is_held_back_by_that_service() -> None:
    graph = Graph([facts("shop", DEGRADED, billing=DOWN), facts("billing", DOWN)])
    assert graph.held_by("shop", "billing") == ("billing",)
    deeper = Graph([facts("shop", DEGRADED, billing=DOWN), facts("billing", DOWN, db=DOWN)])
    assert deeper.held_by("shop", "billing") == ("db",)


def test_ten_thousand_services_in_a_chain_and_in_a_circle() -> None:
    chain = [facts(f"s{n}", DOWN, [f"s{n + 1}"]) for n in range(10_000)]
    graph = Graph([*chain, facts("s10000", DOWN)])
    assert graph.root_cause("s0") == ("s10000",)
    circle = Graph(
        [facts(f"s{n}", DOWN, [f"s{(n + 1) % 10_000}"], since=float((n + 5) % 10_000)) for n in range(10_000)]
    )
    assert circle.root_cause("s0") == ("s9995",)


def calls(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls, generators included."""
    count = 0

    def count_call(_frame: object, what: str, _arg: object) -> None:
        nonlocal count
        count += what == "call"

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("says", [DOWN, UNKNOWN])
def test_work_grows_with_nodes_and_edges_only(says: Status) -> None:
    """Everything depends on two hubs that depend on everything: four times the size is four times the work."""

    def work(size: int) -> Callable[[], object]:
        names = [f"s{n}" for n in range(size)]
        services = [facts(name, DOWN, ["hub", "rim"], hub=says) for name in names]
        return lambda: Graph([*services, facts("hub", DOWN, names), facts("rim", DOWN, names)]).root_cause("s7")

    assert calls(work(2_000)) < 5 * calls(work(500))


graphs = st.integers(1, 9).flatmap(
    lambda size: st.lists(
        st.tuples(
            st.sampled_from((UP, DOWN, DOWN, DEGRADED)),
            st.sets(st.integers(0, size - 1), max_size=3),
            st.integers(0, 5),
        ),
        min_size=size,
        max_size=size,
    )
)


@reproducible
@given(graphs)
def test_every_failed_thing_has_a_failed_root_that_has_none(drawn: list[tuple[Status, set[int], int]]) -> None:
    services = [
        facts(str(number), status, [str(one) for one in below if one != number], since=float(since))
        for number, (status, below, since) in enumerate(drawn)
    ]
    graph = Graph(services)
    for one in services:
        roots = graph.root_cause(one.name)
        assert one.status is DOWN or roots == ()
        for root in roots:
            assert graph.node(root).status is DOWN
            assert graph.root_cause(root) == (), "a root that is held back itself would leave all silent"


@reproducible
@given(st.integers(0, 2**32 - 1))
def test_groups_are_what_reaches_each_other_and_come_from_the_bottom(seed: int) -> None:
    rng = random.Random(seed)
    names = [str(number) for number in range(rng.randint(1, 12))]
    below = {name: rng.sample(names, rng.randint(0, min(3, len(names)))) for name in names}
    reach = {name: {name} for name in names}
    for _ in names:
        for name in names:
            reach[name] |= {far for near in below[name] for far in reach[near]}
    groups = grouped(below)
    assert sorted(name for group in groups for name in group) == sorted(names)
    place = {name: number for number, group in enumerate(groups) for name in group}
    for one in names:
        for other in names:
            assert (place[one] == place[other]) == (other in reach[one] and one in reach[other])
            assert other not in reach[one] or place[other] <= place[one]
