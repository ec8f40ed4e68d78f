"""In a run of full looks, visits to the keys of limits are rare, and full looks make them."""

from everpoll.stores.limit_looks import NONE_REST_S, RUN_LOOKS, RUN_ROWS, LimitLooks


class HandClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def in_run(clock: HandClock) -> LimitLooks:
    """Looks in the middle of a run of full ones."""
    looks = LimitLooks(clock)
    for _ in range(RUN_LOOKS):
        looks.looked(RUN_ROWS, RUN_ROWS)
    return looks


def test_short_looks_leave_a_visit_in_vain_to_the_next_full_look() -> None:
    """They make it themselves where no full look comes for as long again."""
    clock = HandClock()
    looks = in_run(clock)
    looks.visited(0, 0, 0.0)
    assert not looks.are_due(is_full=True)
    clock.now += NONE_REST_S
    assert looks.are_due(is_full=True)
    assert not looks.are_due(is_full=False)
    clock.now += NONE_REST_S
    assert looks.are_due(is_full=False)


def test_where_limited_tasks_start_every_look_visits_them() -> None:
    """A visit was of use: the next look makes another one, short or full."""
    looks = in_run(HandClock())
    looks.visited(3, 3, 0.001)
    assert looks.are_due(is_full=False)


def test_a_look_that_leaves_slots_over_visits_them() -> None:
    """The run has ended."""
    looks = in_run(HandClock())
    looks.visited(0, 0, 0.0)
    looks.looked(RUN_ROWS - 1, RUN_ROWS)
    assert looks.are_due(is_full=False)


def test_looks_that_start_limited_tasks_are_no_run() -> None:
    """No task without a limit is kept waiting: where only a few are without, the next look visits keys, too."""
    clock = HandClock()
    looks = LimitLooks(clock)
    for _ in range(RUN_LOOKS + 1):
        looks.looked(2 * RUN_ROWS, 2 * RUN_ROWS, started=RUN_ROWS + 1)
        looks.visited(10 * RUN_ROWS, RUN_ROWS + 1, 1.0)
        assert looks.are_due(is_full=False)
    for _ in range(RUN_LOOKS):
        looks.looked(2 * RUN_ROWS, 2 * RUN_ROWS, started=RUN_ROWS)
    assert not looks.are_due()
