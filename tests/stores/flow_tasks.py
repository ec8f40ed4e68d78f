"""Flows for tests of stores: chains and groups of plain tasks."""

from collections.abc import Sequence
from typing import Any

from everpoll.stores.contract import NewTask
from everpoll.stores.flows import FlowTask
from stores.stage import Stage, json

ARGS = json({"args": [], "kwargs": {}})


def task(name: str, **fields: Any) -> NewTask:
    """A task whose arguments may take a result."""
    return NewTask(**{"name": name, "args": ARGS, **fields})


def chain(*tasks: NewTask, then: int | None = None, start: int = 0) -> list[FlowTask]:
    """Tasks that run one after the other, the first one last. `start`: the place of this chain in the whole flow."""
    backwards = list(reversed(tasks))
    return [
        FlowTask(one, then if nth == 0 else start + nth - 1, None if nth == len(backwards) - 1 else "result")
        for nth, one in enumerate(backwards)
    ]


def group(callback: NewTask, members: Sequence[NewTask]) -> list[FlowTask]:
    """Tasks that all lead to one."""
    return [FlowTask(callback, None, "end"), *(FlowTask(one, 0) for one in members)]


async def put(stage: Stage, flow: Sequence[FlowTask]) -> list[int]:
    """Enqueue a flow; the ids of its tasks in the order of the call."""
    answers = await stage.store.enqueue_flow(flow)
    assert all(one.is_new for one in answers)
    return [one.id for one in answers]


async def put_chain(stage: Stage, *names: str, **fields: Any) -> list[int]:
    """Enqueue a chain; the ids of its tasks in the order in which they run."""
    return (await put(stage, chain(*(task(name, **fields) for name in names))))[::-1]
