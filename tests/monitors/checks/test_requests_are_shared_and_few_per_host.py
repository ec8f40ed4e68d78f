"""Services that ask the same share one request while it is in flight, and a host is asked by few at a time."""

import asyncio

import pytest

from everpoll.monitors.checks.fetching import Fetching, HostBusy
from everpoll.testing import VirtualClock


class Remote:
    """Answers after a second; counts what was asked, and how many asked at a time."""

    def __init__(self) -> None:
        self.asked = 0
        self.under_way = 0
        self.most = 0

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(1.0)
        finally:
            self.under_way -= 1
        return number


def test_one_request_for_all_that_ask_the_same_at_the_same_time() -> None:
    async def main() -> tuple[list[int], int]:
        fetching, remote = Fetching(5), Remote()
        together = await asyncio.gather(*(fetching.shared("key", "a", None, remote.ask) for _ in range(10)))
        later = await fetching.shared("key", "a", None, remote.ask)
        return together, later

    together, later = VirtualClock().run(main())
    assert together == [1] * 10
    assert later == 2, "an answer of an earlier round is not shared"


def test_an_error_reaches_all_that_share_it() -> None:
    async def fails() -> int:
        await asyncio.sleep(1.0)
        raise OSError("refused")

    async def main() -> list[object]:
        fetching = Fetching(5)
        asked = [fetching.shared("key", "a", None, fails) for _ in range(3)]
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [str(one) for one in VirtualClock().run(main())] == ["refused"] * 3


def test_a_caller_that_gives_up_takes_no_answer_from_the_others() -> None:
    async def main() -> tuple[int, int]:
        fetching, remote = Fetching(5), Remote()
        first = asyncio.ensure_future(fetching.shared("key", "a", None, remote.ask))
        second = asyncio.ensure_future(fetching.shared("key", "a", None, remote.ask))
        await asyncio.sleep(0.5)
        first.cancel()
        return await second, remote.asked

    assert VirtualClock().run(main()) == (2, 2), "it asks in the place of the caller that gave up"


def test_no_more_than_the_limit_at_one_host_and_the_least_recently_looked_at_first() -> None:
    async def main() -> tuple[int, list[int]]:
        fetching, remote = Fetching(2), Remote()
        order: list[int] = []

        async def one(number: int) -> None:
            await fetching.shared(number, "host", 100.0 - number, remote.ask)
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(8)))
        await asyncio.gather(one(8), fetching.shared("x", "other", None, remote.ask))
        return remote.most, order

    most, order = VirtualClock().run(main())
    assert most == 2
    assert order[:2] == [0, 1], "free slots go to the first looks that come"
    assert order[2:8] == [7, 6, 5, 4, 3, 2]


def test_a_slot_is_free_again_whatever_happens_to_the_look_that_had_it() -> None:
    async def main() -> int:
        fetching, remote = Fetching(1), Remote()
        running = asyncio.ensure_future(fetching.shared(1, "host", None, remote.ask))
        waiting = asyncio.ensure_future(fetching.shared(2, "host", None, remote.ask))
        await asyncio.sleep(0.1)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        return await fetching.shared(3, "host", None, remote.ask)

    assert VirtualClock().run(main()) == 2


def test_where_too_many_wait_for_a_host_the_next_look_comes_back_later() -> None:
    async def main() -> int:
        fetching, remote = Fetching(1, most_waiting=2), Remote()
        asked = [asyncio.ensure_future(fetching.shared(one, "host", None, remote.ask)) for one in range(3)]
        await asyncio.sleep(0.1)
        with pytest.raises(HostBusy):
            await fetching.shared(9, "host", None, remote.ask)
        await asyncio.gather(*asked)
        return remote.asked

    assert VirtualClock().run(main()) == 3


@pytest.mark.parametrize(("takes_s", "rest_s"), [(0.1, 1.0), (1.0, 4.0), (30.0, 10.0)])
def test_a_look_comes_back_when_half_of_those_that_wait_have_had_their_turn(takes_s: float, rest_s: float) -> None:
    """Each time that it comes costs a lease, and a host that hangs gives a turn to none for long."""

    async def ask() -> int:
        await asyncio.sleep(takes_s)
        return 1

    async def main() -> float:
        fetching = Fetching(1, most_waiting=8)
        asked = [asyncio.ensure_future(fetching.shared(one, "host", None, ask)) for one in range(9)]
        await asyncio.sleep(2.5 * takes_s)
        asked += [asyncio.ensure_future(fetching.shared(one, "host", None, ask)) for one in range(10, 12)]
        await asyncio.sleep(0)
        with pytest.raises(HostBusy) as busy:
            await fetching.shared(99, "host", None, ask)
        await asyncio.gather(*asked)
        return busy.value.rest_s

    assert VirtualClock().run(main()) == pytest.approx(rest_s)
