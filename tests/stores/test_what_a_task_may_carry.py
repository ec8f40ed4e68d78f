"""What one store cannot keep, every store refuses in the same words; the task that carries it is refused alone."""

import asyncio
import random
import string
from typing import Any

import pytest

from everpoll.engine.enqueuer import Enqueuer
from everpoll.errors import BadInput
from everpoll.stores.contract import Enqueued, NewEvent, NewTask, TaskFilter
from everpoll.stores.limits import KEY_BYTES, KIND_BYTES, NAME_BYTES, PAYLOAD_BYTES
from stores.stage import Stage

TEXTS = ("name", "queue", "kind", "key", "args", "memory")
BOUNDS = {"name": NAME_BYTES, "queue": NAME_BYTES, "kind": KIND_BYTES, "key": KEY_BYTES, "memory": PAYLOAD_BYTES}
NUMBERS: list[tuple[str, Any, str]] = [
    ("priority", 2**31, "its priority must be a whole number from -2,147,483,647 to 2,147,483,647, not 2147483648"),
    ("priority", -(2**31), "its priority must be"),
    ("priority", 10**30, "its priority must be"),
    ("priority", 1.5, "its priority must be"),
    ("version", 2**15, "its version must be a whole number from 0 to 32,767, not 32768"),
    ("version", -1, "its version must be"),
    ("delay_s", float("nan"), "its delay_s must be a number of seconds, at most 1,000 years, not nan"),
    ("delay_s", float("inf"), "its delay_s must be"),
    ("delay_s", 1e300, "its delay_s must be"),
    ("delay_s", None, "its delay_s must be"),
    ("delay_s", "1", "its delay_s must be"),
    ("timeout_s", float("nan"), "its timeout_s must be a number of seconds above 0, at most 1,000 years, not nan"),
    ("timeout_s", 1e300, "its timeout_s must be"),
    ("timeout_s", 0.0, "its timeout_s must be"),
    ("timeout_s", -1.0, "its timeout_s must be"),
]


def written(length: int, seed: int) -> str:
    """A text that cannot be compressed: an index holds it as long as it is."""
    return "".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=length))


async def refusal(stage: Stage, **fields: Any) -> str:
    """Enqueue it among others, at the same time: the message that its caller, and no other, gets."""
    enqueuer = Enqueuer(stage.store)
    tasks = [NewTask(name="innocent", key=f"k{number}") for number in range(20)]
    tasks[7] = NewTask(**{"name": "culprit", **fields})
    answers = await asyncio.gather(*(enqueuer.one(task) for task in tasks), return_exceptions=True)
    assert [type(answer) for number, answer in enumerate(answers) if number != 7] == [Enqueued] * 19
    assert [one.name for one in (await stage.store.tasks(TaskFilter())).tasks] == ["innocent"] * 19
    assert isinstance(answers[7], BadInput)
    with pytest.raises(BadInput) as alone:
        await stage.store.enqueue([tasks[7]])
    assert str(alone.value) == str(answers[7])
    return str(alone.value)


@pytest.mark.parametrize("field", TEXTS)
async def test_a_lone_surrogate(stage: Stage, field: str) -> None:
    message = await refusal(stage, **{field: "ab\ud800c"})
    assert message.endswith(f"its {field} has half a character, '\\ud800', which UTF-8 cannot represent: remove it")


@pytest.mark.parametrize("field", TEXTS)
async def test_a_nul(stage: Stage, field: str) -> None:
    message = await refusal(stage, **{field: "ab\0c"})
    assert message.endswith(f"its {field} has a NUL character, which databases cannot keep: remove it")


@pytest.mark.parametrize("field", BOUNDS)
async def test_too_many_bytes(stage: Stage, field: str) -> None:
    """Bytes, not characters."""
    limit = BOUNDS[field]
    message = await refusal(stage, **{field: "é" * (limit // 2 + 1)})
    assert message.endswith(f"its {field} takes {limit + 2:,} bytes, more than {limit:,}")


@pytest.mark.parametrize(("field", "value", "expected"), NUMBERS)
async def test_a_number_out_of_range(stage: Stage, field: str, value: Any, expected: str) -> None:
    assert f"task 'culprit': {expected}" in await refusal(stage, **{field: value})


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (NewEvent(1, '"\ud800"'), "its event 1 has half a character"),
        (NewEvent(1, '"\0"'), "its event 1 has a NUL character"),
        (NewEvent(1, "é" * (PAYLOAD_BYTES // 2 + 1)), "its event 1 takes"),
        (NewEvent(2**63, "{}"), "its event 9223372036854775808 must have a number from 0 to"),
    ],
    ids=["surrogate", "nul", "size", "number"],
)
async def test_an_event(stage: Stage, event: NewEvent, expected: str) -> None:
    assert expected in await refusal(stage, kind="watch", key="w", events=(event,))


async def test_the_limits_themselves_are_kept(stage: Stage) -> None:
    fields = {name: written(size, size) for name, size in BOUNDS.items() if name != "memory"} | {
        "queue": written(1_000, 1)
    }
    task = NewTask(**fields, priority=2**31 - 1, version=2**15 - 1, delay_s=-1.0, timeout_s=31_536_000_000.0)  # type: ignore[arg-type]
    [first] = await stage.store.enqueue([task])
    [second] = await stage.store.enqueue([task])
    assert (second.id, second.is_new) == (first.id, False)
    worker = await stage.worker()
    [lease] = await stage.take(worker, 5, task.queue)
    assert (lease.name, lease.key, lease.version) == (task.name, task.key, 2**15 - 1)
    shown = await stage.show(first.id)
    assert (shown.kind, shown.queue, shown.priority) == (task.kind, task.queue, 2**31 - 1)
    await stage.store.settle(worker, [])
    assert await stage.store.cancel(first.id, '{"what":"cancel"}') == "running"


async def test_a_call_with_one_bad_task_stores_none(stage: Stage) -> None:
    """`enqueue_many` is all or none: the caller gets the reason, and nothing is stored."""
    tasks = [NewTask(name="a"), NewTask(name="b", key="\ud800"), NewTask(name="c")]
    with pytest.raises(BadInput, match="task 'b': its key has half a character"):
        await Enqueuer(stage.store).many(tasks)
    assert (await stage.store.tasks(TaskFilter())).tasks == ()
