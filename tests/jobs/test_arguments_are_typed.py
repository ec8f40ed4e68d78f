"""Arguments are checked against annotations when they are enqueued and when they run; results follow theirs."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct
from pydantic import BaseModel

from everpoll import BadInput, Everpoll, JobFailed, Retry, Snooze, Task
from everpoll.stores.contract import NewTask, Store
from everpoll.testing import drain
from jobs.jobs_stage import LIMIT_S, ended

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)


class Item(Struct):
    id: int
    tags: list[str] = []


@dataclass
class Order:
    items: list[Item]
    at: datetime


class Customer(BaseModel):
    name: str
    age: int


def registered(function: Callable[..., Any]) -> Any:
    return Everpoll("memory://").job(function)


def buy(item: Item, amount: int, *more: int, at: datetime = NOON, **notes: str) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((Item(1), "ten"), {}, "job 'buy': amount: Expected `int`, got `str`"),
        ((Item(1), True), {}, "job 'buy': amount: Expected `int`, got `bool`"),
        (({"id": "x"}, 1), {}, "job 'buy': item.id: Expected `int`, got `str`"),
        (({"id": 1, "tags": ["a", 2]}, 1), {}, "job 'buy': item.tags[1]: Expected `str`, got `int`"),
        ((Item(1), 1, 2, "x"), {}, "job 'buy': more[1]: Expected `int`, got `str`"),
        ((Item(1),), {"amount": "x"}, "job 'buy': amount: Expected `int`, got `str`"),
        ((), {"amount": 1, "item": {"tags": []}}, "job 'buy': item: Object missing required field `id`"),
        ((Item(1), 1), {"at": "yesterday"}, "job 'buy': at: Invalid RFC3339 encoded datetime"),
        ((Item(1), 1), {"colour": 7}, "job 'buy': colour: Expected `str`, got `int`"),
    ],
)
async def test_a_wrong_argument_is_refused_by_its_name_and_path(args: Any, kwargs: Any, says: str) -> None:
    job = registered(buy)
    for one in (job, job.options(priority=1)):
        with pytest.raises(BadInput) as answer:
            await one.enqueue(*args, **kwargs)
        assert str(answer.value) == says
    with pytest.raises(BadInput):
        job.new_task(args, kwargs)


async def test_what_fits_is_converted_at_the_run(app: Everpoll) -> None:
    got: list[Any] = []

    @app.job()
    async def ship(order: Order, weight: float, maybe: Item | None, *, by: Customer) -> None:
        got.append((order, weight, maybe, by))

    order = Order([Item(1, ["new"])], NOON)
    async with app:
        task = await ship.enqueue(order, 2, None, by=Customer(name="Ada", age=36))
        info = await ended(task)
    assert info.state == "done", info.errors
    assert got == [(order, 2.0, None, Customer(name="Ada", age=36))]
    assert type(got[0][1]) is float


async def test_models_of_pydantic_are_checked_with_the_path_inside() -> None:
    def greet(who: Customer, *others: list[Customer]) -> None: ...

    job = registered(greet)
    with pytest.raises(BadInput, match=r"^job 'greet': who\.age: Input should be a valid integer"):
        await job.enqueue({"name": "Ada", "age": "old"})
    with pytest.raises(BadInput, match=r"^job 'greet': others\[0\]\[1\]\.name: Field required"):
        await job.enqueue(Customer(name="Ada", age=1), [Customer(name="Bob", age=2), {"age": 3}])


async def test_calls_of_any_shape_are_understood(app: Everpoll) -> None:
    """By position, by keyword, with and without defaults, one after another."""

    @app.job()
    async def add(a: int, b: int = 10, *, c: int = 100) -> int:
        return a + b + c

    async with app:
        calls: list[tuple[tuple[int, ...], dict[str, int], int]] = [
            ((1,), {}, 111),
            ((1, 2), {}, 103),
            ((), {"b": 1, "a": 2}, 103),
            ((1,), {"c": 3}, 14),
            ((1, 2), {"c": 3}, 6),
        ]
        for args, kwargs, expected in calls * 2:
            task = await add.enqueue(*args, **kwargs)
            assert await task.result(timeout=LIMIT_S) == expected


async def test_a_row_that_does_not_fit_fails_and_names_the_argument(app: Everpoll) -> None:
    @app.job()
    async def add(a: int, b: Item) -> None: ...

    async with app:
        store = await app.store()
        rows = ['{"args":[1,{"id":"x"}]}', '{"args":[1],"kwargs":{"b":{}}}', '{"args":["one",{"id":1}]}']
        tasks = [app.task(one.id) for one in await store.enqueue([NewTask(name="add", args=row) for row in rows])]
        errors = [(await ended(task)).errors[0]["error"] for task in tasks]
    assert "b.id: Expected `int`, got `str`" in errors[0]
    assert "b: Object missing required field `id`" in errors[1]
    assert "a: Expected `int`, got `str`" in errors[2]


async def test_a_function_without_annotations_takes_what_json_knows(app: Everpoll) -> None:
    @app.job()
    async def anything(a, b=None, *rest, **more):  # type: ignore[no-untyped-def]
        return [a, b, rest, more]

    async with app:
        task = await anything.enqueue({"a": [1]}, "b", 3, d=None)
        assert await task.result(timeout=LIMIT_S) == [{"a": [1]}, "b", [3], {"d": None}]


async def test_results_follow_the_return_annotation(app: Everpoll) -> None:
    @app.job()
    async def order() -> Order | Snooze:
        return Order([Item(1)], NOON)

    @app.job()
    def pair() -> tuple[int, datetime]:
        return (1, NOON)

    @app.job()
    async def customer() -> list[Customer]:
        return [Customer(name="Ada", age=36)]

    @app.job()
    async def liar() -> int:
        return "text"  # type: ignore[return-value]

    async with app:
        assert await (await order.enqueue()).result(timeout=LIMIT_S) == Order([Item(1)], NOON)
        task = await pair.enqueue()
        assert await task.result(timeout=LIMIT_S) == (1, NOON)
        assert await app.task(task.id).result() == (1, NOON)
        assert await (await customer.enqueue()).result(timeout=LIMIT_S) == [Customer(name="Ada", age=36)]
        said: Any = await (await liar.enqueue()).result(timeout=LIMIT_S)
        assert said == "text"
        synchronous = await asyncio.to_thread(lambda: pair.sync.enqueue().result(timeout=LIMIT_S))
        assert synchronous == (1, NOON)


async def test_waiting_tasks_of_earlier_versions_are_migrated_step_by_step(another_store: Callable[[], Store]) -> None:
    old, new = Everpoll(another_store()), Everpoll(another_store())

    @old.job(name="bill")
    async def bill_1(amount: int) -> None: ...

    first = await bill_1.enqueue(5)

    @new.job(version=3)
    async def bill(cents: int, currency: str, *, note: str) -> list[Any]:
        return [cents, currency, note]

    @bill.migrate(1, 2)
    def in_cents(args: Any, kwargs: Any) -> Any:
        return [args[0] * 100, "EUR"], kwargs

    @bill.migrate(2, 3)
    def with_note(args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "note": "none"}

    async with new:
        second = await bill.enqueue(7, "USD", note="x")
        assert await new.task(first.id).result(timeout=LIMIT_S) == [500, "EUR", "none"]
        assert await second.result(timeout=LIMIT_S) == [7, "USD", "x"]
    await old.close()


async def test_a_missing_step_fails_clearly_at_once(another_store: Callable[[], Store]) -> None:
    app = Everpoll(another_store())

    @app.job(version=3, retry=Retry(3))
    async def bill(amount: int) -> None: ...

    @bill.migrate(1, 2)
    def step(args: Any, kwargs: Any) -> Any:
        return args, kwargs

    async with app:
        store = await app.store()
        [row] = await store.enqueue([NewTask(name="bill", args='{"args":[1]}', version=1)])
        with pytest.raises(JobFailed, match=r"version 2.* the job has version 3, and no migration begins at 2"):
            await app.task(row.id).result(timeout=LIMIT_S)
        assert (await app.task(row.id).info()).attempt == 1


async def test_a_newer_version_waits_for_a_newer_worker(another_store: Callable[[], Store]) -> None:
    old, new = Everpoll(another_store()), Everpoll(another_store())

    @old.job(name="bill")
    async def bill_1(amount: int) -> str:
        return "old"

    @new.job(version=2)
    async def bill(cents: int) -> str:
        return "new"

    task = await bill.enqueue(500)
    await drain(old)
    info = await task.info()
    assert (info.state, info.attempt) == ("queued", 0)
    assert "version 1, and the arguments of this task have version 2" in info.trail[-1]["why"]
    async with new:
        assert await task.result(timeout=LIMIT_S) == "new"
    await old.close()


def test_versions_and_migrations_are_checked_where_they_are_registered() -> None:
    app = Everpoll("memory://")
    for version in (0, -1, True, "2", 40_000):
        with pytest.raises(BadInput, match="job 'f': version"):
            app.job(name="f", version=version)(lambda: None)  # type: ignore[arg-type]

    @app.job(version=2)
    def bill() -> None: ...

    for start, end in ((2, 1), (1, 1), (1, 3), (0, 1)):
        with pytest.raises(BadInput, match="job 'bill': migrate"):
            bill.migrate(start, end)(lambda args, kwargs: (args, kwargs))
    bill.migrate(1, 2)(lambda args, kwargs: (args, kwargs))
    with pytest.raises(BadInput, match="version 1 has a migration already"):
        bill.migrate(1, 2)(lambda args, kwargs: (args, kwargs))


async def test_annotations_of_plain_json_add_one_step_to_an_enqueue_and_none_to_a_run() -> None:
    """Counted in calls of Python functions: what a check costs in C is less than the spread of a timing."""
    app = Everpoll("memory://")

    @app.job(name="bare")
    async def bare(a, b):  # type: ignore[no-untyped-def]
        return None

    @app.job(name="typed")
    async def typed(a: int, b: list[str]) -> None: ...

    @app.job(name="with_task")
    async def with_task(task: Task, a: int) -> None: ...

    def calls(function: Callable[[], Any]) -> int:
        function()
        count = 0

        def counting(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counting)
        try:
            function()
        finally:
            sys.setprofile(None)
        return count

    args = (1, ["x"])
    assert calls(lambda: typed.new_task(args, {})) == calls(lambda: bare.new_task(args, {}))
    text = typed.new_task(args, {}).args
    assert calls(lambda: typed._shape.usual(text)) == calls(lambda: bare._shape.usual(text)) == 1


class Created(BaseModel):
    kind: Literal["created"]
    name: str


class Deleted(BaseModel):
    kind: Literal["deleted"]
    id: int


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Path | None, "a/b"),
        (list[Path], ["a/b"]),
        (dict[str, Path], {"root": "a/b"}),
        (tuple[int, list[Path]], [1, ["a/b"]]),
        (list[Iterable[str]], [["a"]]),
    ],
)
async def test_an_annotation_of_which_a_part_cannot_be_read_checks_nothing(hint: Any, value: Any) -> None:
    """As one that cannot be read at all: the argument arrives as JSON has it, by position and by keyword."""

    def keep(given: Any) -> Any:
        return [given]

    keep.__annotations__ = {"given": hint, "return": list[hint]}
    app = Everpoll("memory://")
    job: Any = app.job(keep)
    async with app:
        for task in (await job.enqueue(value), await job.enqueue(given=value)):
            assert await task.result(timeout=LIMIT_S) == [value]


async def test_keys_that_json_knows_as_texts_are_converted_by_keyword_as_well() -> None:
    app = Everpoll("memory://")

    @app.job()
    async def keep(names: dict[int, str]) -> list[str]:
        return [repr(names)]

    async with app:
        for task in (await keep.enqueue({1: "a"}), await keep.enqueue(names={1: "a"})):
            assert await task.result(timeout=LIMIT_S) == ["{1: 'a'}"]
    assert keep.argument_flaw([{"1": "a"}], {}) is None


async def test_constraints_of_an_annotation_are_checked() -> None:
    app = Everpoll("memory://")

    @app.job()
    async def buy(task: Annotated[Task, "the running one"], amount: Annotated[int, Meta(gt=0)]) -> int:
        return task.attempt * amount

    with pytest.raises(BadInput, match="job 'buy': amount: Expected `int` >= 1"):
        await buy.enqueue(0)
    async with app:
        assert await (await buy.enqueue(3)).result(timeout=LIMIT_S) == 3


async def test_unions_of_models_arrive_as_the_model_that_fits() -> None:
    app = Everpoll("memory://")

    @app.job()
    async def tell(event: Created | Deleted, by: Customer | str = "") -> Created | Deleted:
        assert isinstance(by, Customer | str)
        return event

    created, deleted = Created(kind="created", name="a"), Deleted(kind="deleted", id=7)
    async with app:
        for event, by in ((created, "ada"), (deleted, Customer(name="ada", age=3))):
            assert await (await tell.enqueue(event, by=by)).result(timeout=LIMIT_S) == event
    with pytest.raises(BadInput, match="job 'tell': event"):
        await tell.enqueue({"kind": "created"})  # type: ignore[call-overload]
