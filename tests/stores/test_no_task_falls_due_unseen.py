"""A task that falls due while a look is under way is found by this look, or this look says when to look again."""

from everpoll.stores.contract import NewTask, WorkerCard
from everpoll.stores.memory.store import MemoryStore


class PassingClock:
    """A millisecond goes by at each reading."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def now(self) -> float:
        self._now += 0.001
        return self._now

    def wall(self) -> float:
        return self.now()


async def test_a_look_without_tasks_says_when_the_next_one_is_due() -> None:
    """However many readings lie between a look's beginning and its end, the waiting task is in one of its answers."""
    card = WorkerCard(incarnation=7, label="w", host="h", pid=1, queues=("default",), slots=5, version="0")
    for delay_ms in range(1, 12):
        store = MemoryStore(PassingClock())
        await store.open()
        await store.sign_on(card, 60.0)
        await store.enqueue([NewTask(name="job", delay_s=delay_ms / 1_000 - 0.0005)])
        looks = [await store.lease(7, {"default": 5}, 5)]
        while not looks[-1].leases and len(looks) < 12:
            assert looks[-1].next_due_s is not None, f"due in {delay_ms} ms, and no look follows"
            looks.append(await store.lease(7, {"default": 5}, 5))
        assert len(looks[-1].leases) == 1
        await store.close()
