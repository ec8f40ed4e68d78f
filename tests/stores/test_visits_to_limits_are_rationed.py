"""In a run of full visits, visits to the keys of limits are rare, and full visits make them."""

from everpoll.stores.limit_visits import NONE_REST_S, RUN_POLLS, RUN_ROWS, LimitVisits


class HandClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def in_run(clock: HandClock) -> LimitVisits:
    """Looks in the middle of a run of full ones."""
    visits = LimitVisits(clock)
    for _ in range(RUN_POLLS):
        visits.polled(RUN_ROWS, RUN_ROWS)
    return visits


def test_short_looks_leave_a_visit_in_vain_to_the_next_full_look() -> None:
    """They make it themselves where no full look comes for as long again."""
    clock = HandClock()
    visits = in_run(clock)
    visits.visited(0, 0, 0.0)
    assert not visits.are_due(is_full=True)
    clock.now += NONE_REST_S
    assert visits.are_due(is_full=True)
    assert not visits.are_due(is_full=False)
    clock.now += NONE_REST_S
    assert visits.are_due(is_full=False)


def test_where_limited_tasks_start_every_look_visits_them() -> None:
    """A visit was of use: the next look makes another one, short or full."""
    visits = in_run(HandClock())
    visits.visited(3, 3, 0.001)
    assert visits.are_due(is_full=False)


def test_a_look_that_leaves_slots_over_visits_them() -> None:
    """The run has ended."""
    visits = in_run(HandClock())
    visits.visited(0, 0, 0.0)
    visits.polled(RUN_ROWS - 1, RUN_ROWS)
    assert visits.are_due(is_full=False)


def test_looks_that_start_limited_tasks_are_no_run() -> None:
    """No task without a limit is kept waiting: where only a few are without, the next look visits keys, too."""
    clock = HandClock()
    visits = LimitVisits(clock)
    for _ in range(RUN_POLLS + 1):
        visits.polled(2 * RUN_ROWS, 2 * RUN_ROWS, started=RUN_ROWS + 1)
        visits.visited(10 * RUN_ROWS, RUN_ROWS + 1, 1.0)
        assert visits.are_due(is_full=False)
    for _ in range(RUN_POLLS):
        visits.polled(2 * RUN_ROWS, 2 * RUN_ROWS, started=RUN_ROWS)
    assert not visits.are_due()
