"""A job gets its `Task` wherever the name was imported: as text, inside a function, or for type checkers only."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, cast

import pytest

from everpoll import BadInput, Everpoll, Retry
from everpoll.testing import drain

if TYPE_CHECKING:
    import everpoll as ep
    from everpoll import Task
    from everpoll import Task as Handle
    from everpoll.jobs import Job


def _local(app: Everpoll) -> Job[..., Any]:
    from everpoll import Task as Mine  # noqa: PLC0415 - the point

    @app.job(retry=Retry(1))
    async def work(task: Mine, number: int) -> list[int]:
        return [task.id, number]

    return cast("Job[..., Any]", work)


def _local_and_optional(app: Everpoll) -> Job[..., Any]:
    from everpoll import Task as Mine  # noqa: PLC0415 - the point

    @app.job(retry=Retry(1))
    async def work(number: int, task: Mine | None = None) -> list[int]:
        assert task is not None
        return [task.id, number]

    return cast("Job[..., Any]", work)


def _without_parentheses(app: Everpoll) -> Job[..., Any]:
    from everpoll import Task as Mine  # noqa: PLC0415 - the point

    @app.job
    async def work(task: Mine, number: int) -> list[int]:
        return [task.id, number]

    return cast("Job[..., Any]", work)


def _for_type_checkers(app: Everpoll) -> Job[..., Any]:
    @app.job(retry=Retry(1))
    async def work(task: Task, number: int) -> list[int]:
        return [task.id, number]

    return cast("Job[..., Any]", work)


def _by_module_for_type_checkers(app: Everpoll) -> Job[..., Any]:
    @app.job(retry=Retry(1))
    async def work(number: int, task: ep.Task) -> list[int]:
        return [task.id, number]

    return cast("Job[..., Any]", work)


def _optional_for_type_checkers(app: Everpoll) -> Job[..., Any]:
    @app.job(retry=Retry(1))
    async def work(number: int, task: Optional[Task] = None) -> list[int]:  # noqa: UP045 - people write it so
        assert task is not None
        return [task.id, number]

    return cast("Job[..., Any]", work)


@pytest.mark.parametrize(
    "make",
    [
        _local,
        _local_and_optional,
        _without_parentheses,
        _for_type_checkers,
        _by_module_for_type_checkers,
        _optional_for_type_checkers,
    ],
)
async def test_the_task_is_passed(make: Any) -> None:
    app = Everpoll("memory://")
    work = make(app)
    task = await work.enqueue(7)
    await drain(app)
    assert await task.result() == [task.id, 7]
    await app.close()


async def test_types_of_the_function_that_registers_are_converted_to() -> None:
    @dataclass
    class Order:
        number: int

    app = Everpoll("memory://")

    @app.job(retry=Retry(1))
    async def work(order: Order) -> str:
        return type(order).__name__

    task = await work.enqueue(Order(7))
    await drain(app)
    assert await task.result() == "Order"
    await app.close()


async def test_a_name_that_leads_nowhere_is_said_where_an_argument_is_missing() -> None:
    app = Everpoll("memory://")

    @app.job(retry=Retry(1))
    async def work(task: Handle, number: int) -> None: ...

    with pytest.raises(BadInput, match=r"'task' is annotated with 'Handle', which cannot be resolved.*import it"):
        await work.enqueue(7)
    await app.close()


async def test_a_type_of_that_name_that_is_there_is_not_ours(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Task` class of the caller's own is an argument like any other."""
    source = "from __future__ import annotations\nclass Task(dict): ...\nasync def work(task: Task) -> None: ...\n"
    (tmp_path / "own_tasks.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_tasks")
    try:
        app = Everpoll("memory://")
        with pytest.raises(BadInput, match="missing a required argument"):
            await app.job()(own.work).enqueue()
        await app.close()
    finally:
        del sys.modules["own_tasks"]
