"""A worker counts what it does: each outcome once, when it is written, and how long tasks waited and ran."""

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll.engine.tally import NAMES, RESCUES, Batch, Tally
from everpoll.engine.tally_entry import MANY, Entry
from everpoll.policy import Histogram
from everpoll.stores.contract import Again, Ended, Lease, Settlement
from everpoll.stores.figures import HOUR_S, KEPT_S, MINUTE_S, OTHERS, Figure

START = 1_900_800_000.0
KINDS = {"look": "watch"}


def lease(number: int = 1, name: str = "job", queue: str = "default") -> Lease:
    return Lease(number, 1, 1, name, queue, "null")


def made() -> Tally:
    tally = Tally(lambda name: KINDS.get(name, "job"))
    tally.begin(7, START)
    return tally


def ran(tally: Tally, settlement: Settlement, now: float = START, **fields: Any) -> None:
    entries = tally.leased([lease(settlement.id, **fields)], [])
    tally.settled(Batch([settlement], list(entries), [0.5]), set(), now)


def batch(tally: Tally, settlements: list[Settlement], names: str, time_s: float = 0.1) -> Batch:
    """Settlements of runs of these names."""
    entries = tally.leased([lease(number, name) for number, name in enumerate(names)], [])
    return Batch(settlements, list(entries), [time_s] * len(settlements))


def counts(tally: Tally) -> dict[tuple[str, str, str], dict[str, int]]:
    return {(one.kind, one.name, one.queue): one.counts for one in tally.entries()}


def published(tally: Tally, now: float = START) -> dict[tuple[int, float, str, str, str], dict[str, int]]:
    """What one heartbeat publishes."""
    found = tally.unpublished(now)
    if found is None:
        return {}
    tally.published(found)
    figures = [one for some in found.by_incarnation.values() for one in some]
    return {(one.span_s, one.began - START, one.kind, one.name, one.queue): one.counts for one in figures}


@pytest.mark.parametrize(
    ("settlement", "name", "outcome"),
    [
        (Ended(1, 1), "job", "done"),
        (Ended(1, 1, "failed"), "job", "failed"),
        (Ended(1, 1, "canceled"), "job", "canceled"),
        (Again(1, 1, 5.0), "job", "retried"),
        (Again(1, 1, 5.0, refund=True), "job", "snoozed"),
        (Again(1, 1, None, refund=True, note='{"what":"hand-back","why":"x"}'), "job", "returned"),
        (Again(1, 1, 5.0, memory="{}"), "look", "looked"),
        (Ended(1, 1), "look", "done"),
    ],
)
def test_outcomes(settlement: Settlement, name: str, outcome: str) -> None:
    tally = made()
    ran(tally, settlement, name=name)
    assert counts(tally) == {(KINDS.get(name, "job"), name, "default"): {outcome: 1}}


def test_a_result_that_was_dropped_is_lost_and_nothing_else() -> None:
    tally = made()
    tally.settled(batch(tally, [Ended(1, 1), Ended(2, 1)], "aa"), {2}, START)
    assert counts(tally) == {("job", "a", "default"): {"done": 1, "lost": 1}}


def test_what_never_began_is_not_counted() -> None:
    """A settlement without a run: leased and handed back at a shutdown."""
    tally = made()
    tally.settled(Batch([Again(1, 1, None, refund=True)], [None], [0.0]), set(), START)
    assert counts(tally) == {}


def test_waiting_and_running_times() -> None:
    tally = made()
    tally.leased([lease(1), lease(2)], [1_000_000.0, 4_000_000.0])
    ran(tally, Ended(1, 1))
    [entry] = tally.entries()
    assert (entry.waited_s, entry.ran_s) == (5.0, 0.5)
    assert Histogram(tuple(sorted(entry.waited.items()))) == Histogram.of([1_000_000, 4_000_000])
    assert Histogram(tuple(entry.ran.items())) == Histogram.of([500_000])


@pytest.mark.parametrize("time", [0.0, -5.0, 1e-9, 1e-6, 1e9])
def test_times_of_any_size_are_counted(time: float) -> None:
    """Clocks differ a little: a task may seem to have waited for less than nothing."""
    tally = made()
    entries = list(tally.leased([lease()], [time * 1e6]))
    tally.settled(Batch([Ended(1, 1)], entries, [time]), set(), START)
    [entry] = tally.entries()
    assert sum(entry.waited.values()) == sum(entry.ran.values()) == 1


def test_a_batch_is_counted_as_its_tasks_one_by_one() -> None:
    """However many there are, and whatever they settle as."""
    settlements: list[Settlement] = [
        *(Ended(number, 1, "failed" if number % 3 else "done") for number in range(MANY * 3)),
        *(Again(number, 1, 5.0) for number in range(MANY)),
    ]
    times_s = [number * 7e-5 for number in range(len(settlements))]
    together, alone, ends = made(), made(), made()
    for tally, portions in ((together, [slice(None)]), (alone, [slice(at, at + 1) for at in range(len(times_s))])):
        entries = list(tally.leased([lease(one.id) for one in settlements], []))
        for some in portions:
            tally.settled(Batch(settlements[some], entries[some], times_s[some]), set(), START)
    [one], [other] = together.entries(), alone.entries()
    assert (one.counts, one.ran) == (other.counts, other.ran)
    assert one.ran_s == pytest.approx(sum(times_s))
    ends.settled(batch(ends, settlements[: MANY * 3], "a" * MANY * 3), set(), START)
    assert counts(ends) == {("job", "a", "default"): {"done": MANY, "failed": 2 * MANY}}


@pytest.mark.parametrize("names", ["aaa", "aab"])
def test_one_waiting_time_stands_for_all_tasks_of_a_look(names: str) -> None:
    """Stores tell one where those of all are about the same."""
    tally = made()
    tally.leased([lease(number, name) for number, name in enumerate(names)], [2_000_000.0])
    waited = {one.name: (one.waited_s, one.waited) for one in tally.entries()}
    [bucket] = dict(Histogram.of([2_000_000]).counts)
    assert waited == {name: (2.0 * names.count(name), {bucket: names.count(name)}) for name in set(names)}


def test_each_span_is_published_with_sums_for_the_queue_and_the_kind() -> None:
    tally = made()
    ran(tally, Ended(1, 1), name="a", queue="q")
    ran(tally, Ended(2, 1), name="b", queue="q")
    places = {("a", "q"): 1, ("b", "q"): 1, ("", "q"): 2, ("", ""): 2}
    assert published(tally) == {
        (span, 0, "job", name, queue): {"done": count} for span in KEPT_S for (name, queue), count in places.items()
    }
    assert published(tally) == {}, "nothing has changed"


def test_figures_are_absolute_within_a_minute_and_begin_anew_with_the_next() -> None:
    tally = made()
    total = (MINUTE_S, 0, "job", "", "")
    ran(tally, Ended(1, 1))
    assert published(tally, START + 10)[total] == {"done": 1}
    ran(tally, Ended(2, 1), START + 20)
    assert published(tally, START + 30)[total] == {"done": 2}
    ran(tally, Ended(3, 1), START + 59)
    ran(tally, Ended(4, 1), START + 61)
    found = published(tally, START + 65)
    assert found[total] == {"done": 3}, "the last seconds of a minute are published with the next beat"
    assert found[MINUTE_S, 60, "job", "", ""] == {"done": 1}
    assert found[HOUR_S, 0, "job", "", ""] == {"done": 4}


def test_an_outage_of_the_database_loses_no_figures() -> None:
    tally = made()
    for minute in range(100):
        ran(tally, Ended(minute, 1), START + minute * 60)
        tally.unpublished(START + minute * 60 + 5)  # and the store was away
    found = published(tally, START + 100 * 60)
    minutes = {
        at: one for (span, at, _, name, queue), one in found.items() if span == MINUTE_S and (name, queue) == ("", "")
    }
    assert minutes == {minute * 60: {"done": 1} for minute in range(100)}


def test_a_new_incarnation_publishes_what_it_did_itself() -> None:
    tally = made()
    ran(tally, Ended(1, 1))
    tally.begin(8, START + 30)
    ran(tally, Ended(2, 1), START + 40)
    found = tally.unpublished(START + 50)
    assert found is not None
    assert {who: _done(figures) for who, figures in found.by_incarnation.items()} == {7: 1, 8: 1}


def _done(figures: list[Figure]) -> int:
    return sum(one.counts["done"] for one in figures if one.span_s == MINUTE_S and not one.queue)


def test_a_clock_that_is_set_back_changes_no_minute_that_is_over() -> None:
    tally = made()
    ran(tally, Ended(1, 1), START + 61)
    ran(tally, Ended(2, 1), START + 5)
    assert published(tally, START + 5)[MINUTE_S, 60, "job", "", ""] == {"done": 2}


def test_names_beyond_the_limit_are_counted_together() -> None:
    tally = made()
    for number in range(NAMES + 50):
        ran(tally, Ended(number, 1), name=f"job{number}")
    assert len(counts(tally)) == NAMES + 1
    assert counts(tally)["job", OTHERS, OTHERS] == {"done": 50}


def test_rescued_tasks_are_counted() -> None:
    tally = made()
    tally.rescued(3, START)
    assert counts(tally) == {RESCUES: {"rescued": 3}}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 30), st.booleans()), max_size=60))
def test_the_figures_of_every_span_add_up_to_the_totals(steps: list[tuple[str, float, bool]]) -> None:
    """Whatever happens when, and whenever it is published."""
    tally = made()
    now, stored = START, dict[tuple[int, float, str, str, str], dict[str, int]]()
    for number, (name, pause_s, is_beat) in enumerate(steps):
        now += pause_s
        ran(tally, Ended(number, 1), now, name=name)
        if is_beat:
            stored |= published(tally, now)
    stored |= published(tally, now)
    for span in KEPT_S:
        for name in "abc":
            found = sum(
                one.get("done", 0)
                for (its_span, _, _, its_name, _), one in stored.items()
                if (its_span, its_name) == (span, name)
            )
            assert found == sum(step[0] == name for step in steps)


def test_another_thread_reads_while_it_counts() -> None:
    tally, is_over, errors = made(), threading.Event(), []

    def read() -> None:
        try:
            while not is_over.is_set():
                tally.entries()
                published(tally)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20_000):
        tally.leased([lease(number, f"job{number % 90}")], [number * 17.0])
        ran(tally, Ended(number, 1), name=f"job{number % 90}")
    is_over.set()
    reader.join()
    assert errors == []
    assert sum(_total(one) for one in tally.entries()) == 20_000


def _total(entry: Entry) -> int:
    return sum(entry.counts.values())


def test_settlements_of_several_names_are_counted_by_their_own() -> None:
    """In one batch; some never began, and some have been lost."""
    tally = made()
    settlements: list[Settlement] = [Ended(0, 1), Ended(1, 1, "failed"), Again(2, 1, 5.0), Ended(3, 1), Ended(4, 1)]
    mixed = batch(tally, settlements, "aabbc")
    tally.settled(mixed._replace(entries=[*mixed.entries[:4], None]), {3}, START)
    found = {name: one for (_, name, _), one in counts(tally).items()}
    assert found == {"a": {"done": 1, "failed": 1}, "b": {"retried": 1, "lost": 1}, "c": {}}
