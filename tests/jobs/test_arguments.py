"""Arguments: checked when enqueued, stored as JSON, converted back to what the parameters say; older rows included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from msgspec import Struct

from everpoll import BadInput, Everpoll, Task
from everpoll.jobs.call import ARGS_LIMIT
from everpoll.stores.contract import NewTask, Store
from jobs.jobs_stage import LIMIT_S, counted, ended

if TYPE_CHECKING:
    from collections import OrderedDict


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Page(Struct):
    url: str
    depth: int = 0


@dataclass
class Point:
    x: float
    y: float


NOON = datetime(2030, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)
SAMPLES: dict[str, tuple[Any, Any]] = {
    "when": (datetime, NOON),
    "day": (date, date(2030, 1, 2)),
    "span": (timedelta, timedelta(seconds=90)),
    "point": (Point, Point(1.5, -2.0)),
    "page": (Page, Page("https://a", 3)),
    "pages": (list[Page], [Page("https://a"), Page("https://b", 2)]),
    "by_name": (dict[str, Page], {"a": Page("https://a")}),
    "colour": (Colour, Colour.BLUE),
    "colours": (set[Colour], {Colour.RED}),
    "money": (Decimal, Decimal("0.10")),
    "raw": (bytes, b"\x00\xff"),
    "ident": (UUID, UUID(int=5)),
    "pair": (tuple[int, str], (1, "a")),
    "maybe": (Page | None, None),
    "plain": (dict[str, list[int]], {"a": [1, 2]}),
    "text": (str, "nul \x00, quote ', brace {, \N{PILE OF POO}"),
    "big": (int, 2**63),
    "anything": (Any, [1, {"a": None}]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_annotated_parameter_gets_back_what_was_passed(name: str) -> None:
    hint, value = SAMPLES[name]
    got: list[Any] = []

    def f(value: Any) -> None:
        got.append(value)

    f.__annotations__ = {"value": hint}
    job = Everpoll("memory://").job()(f)
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        back_args, back_kwargs = job._shape.decode(job.new_task(args, kwargs).args, None)
        job(*back_args, **back_kwargs)
    assert got == [value, value]
    assert type(got[0]) is type(value)


async def test_rich_arguments_survive_every_store(app: Everpoll) -> None:
    got: list[Any] = []

    @app.job()
    async def f(when: datetime, pages: list[Page], *points: Point, task: Task, text: str, **more: date) -> None:
        got.append((when, pages, points, text, more))
        assert task.attempt == 1

    text = SAMPLES["text"][1]
    async with app:
        task = await f.enqueue(  # type: ignore[call-overload]
            NOON, [Page("https://a")], Point(1, 2), Point(3, 4), text=text, day=date(2030, 1, 2), other=date(2031, 1, 1)
        )
        info = await ended(task)
    assert info.state == "done", info.errors
    more = {"day": date(2030, 1, 2), "other": date(2031, 1, 1)}
    assert got == [(NOON, [Page("https://a")], (Point(1, 2), Point(3, 4)), text, more)]


async def test_a_hint_that_does_not_resolve_does_not_hide_the_others(app: Everpoll) -> None:
    """`OrderedDict` is imported for type checkers only: such a name must not cost the task its parameter."""
    got: list[Any] = []

    @app.job()
    async def f(task: Task, when: datetime, odd: OrderedDict[str, int]) -> None:
        got.append((task.attempt, when, odd))

    async with app:
        assert (await ended(await f.enqueue(NOON, {"a": 1}))).state == "done"  # type: ignore[call-overload]
    assert got == [(1, NOON, {"a": 1})]


def refusals() -> dict[str, tuple[tuple[Any, ...], dict[str, Any], str]]:
    deep: list[Any] = []
    deep.append(deep)
    return {
        "missing": (
            (),
            {},
            r"job 'f': missing a required argument: 'page'; it is called as f\(page: 'Page', n: ",
        ),
        "too many": ((1, 2, 3), {}, "too many positional arguments"),
        "unknown": ((1,), {"m": 1}, "unexpected keyword argument 'm'"),
        "object": ((object(),), {}, "its arguments must be JSON: .*; pass an id and look the rest up in the job"),
        "itself": ((deep,), {}, "its arguments must be JSON"),
        "half a character": (("\udce9",), {}, "its arguments must be JSON"),
        "too large": (({"url": "x" * (ARGS_LIMIT + 1)},), {}, "bytes, more than 1,000,000; store them elsewhere"),
        "wrong type": (("no page",), {}, "job 'f': page: Expected `object`, got `str`"),
        "missing field": (({"depth": 1},), {}, "job 'f': page: Object missing required field `url`"),
    }


@pytest.mark.parametrize("what", refusals())
async def test_what_cannot_be_called_or_stored_is_refused_in_the_callers_face(what: str) -> None:
    args, kwargs, message = refusals()[what]
    app = Everpoll("memory://")

    @app.job()
    async def f(page: Page, n: int = 0) -> None: ...

    calls = counted(app, "enqueue")
    with pytest.raises(BadInput, match=message):
        await f.enqueue(*args, **kwargs)
    assert calls == []
    await app.close()


@pytest.mark.parametrize("version", [0, 1])
async def test_rows_of_other_versions_are_understood(app: Everpoll, version: int) -> None:
    @app.job()
    async def f(a: int, b: int = 2) -> list[int]:
        return [a, b]

    rows = ['{"args":[1]}', '{"kwargs":{"a":1}}', '{"args":[1],"kwargs":{"b":3},"of_the_future":true}']
    async with app:
        store = await app.store()
        enqueued = await store.enqueue([NewTask(name="f", args=row, version=version) for row in rows])
        results = [await app.task(one.id).result(timeout=LIMIT_S) for one in enqueued]
    assert results == [[1, 2], [1, 2], [1, 3]]


@pytest.mark.parametrize("row", ['{"args":[1,2,3]}', '{"kwargs":{"gone":1}}', '"text"', "[]", '{"args":["no page"]}'])
async def test_rows_that_do_not_fit_any_more_fail_clearly_without_being_retried(app: Everpoll, row: str) -> None:
    @app.job()
    async def f(page: Page) -> None: ...

    async with app:
        [one] = await (await app.store()).enqueue([NewTask(name="f", args=row)])
        info = await ended(app.task(one.id))
    assert (info.state, info.attempt) == ("failed", 1)
    assert info.errors[0]["error"].startswith("its arguments do not fit f: ")


async def test_a_row_of_a_job_that_is_not_registered_fails_clearly(another_store: Callable[[], Store]) -> None:
    """At once, where the app says that unknown names wait for no worker."""
    app = Everpoll(another_store(), unknown=0)

    @app.job()
    async def audit() -> None: ...

    async with app:
        [one] = await (await app.store()).enqueue([NewTask(name="adit")])
        info = await ended(app.task(one.id))
    assert info.state == "failed"
    said = str(info.errors[0]["error"])
    assert said.startswith("no job called 'adit' is registered in this worker; registered: audit; it waited 0s for ")


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "value", [NAN, -INFINITY, [1, {"a": (2.0, NAN)}], Point(INFINITY, 1.0), {"none": None, "lost": INFINITY}], ids=repr
)
def test_numbers_that_json_does_not_know_are_refused_and_not_turned_into_null(value: Any) -> None:
    def f(value: Any) -> None: ...

    job = Everpoll("memory://").job(f)
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        with pytest.raises(
            BadInput, match=r"job 'f': -?(nan|inf) in its arguments is not valid JSON and would arrive as null"
        ):
            job.new_task(args, kwargs)
    job.new_task(([None, 1.5, {"nan": "null"}],), {})


@pytest.mark.parametrize("name", ["delay", "priority", "key", "connection"])
def test_a_parameter_that_enqueue_would_take_for_itself_is_refused_at_registration(name: str) -> None:
    """Silently setting the task's priority in the place of the argument would be found out much later."""
    app = Everpoll("memory://")
    for signature in (f"a, {name}", f"a, *, {name}=1"):
        with pytest.raises(BadInput, match=f"job 'f': its parameter '{name}' would never get {name}=…, .* rename it"):
            app.job(_defined(f"def f({signature}): ..."))


async def test_a_positional_only_parameter_may_have_any_name() -> None:
    app = Everpoll("memory://")
    job = app.job(_defined("def f(key, priority=0, /, *delay, **connection): return [key, priority, *delay]"))
    async with app:
        task = await job.enqueue("a", 2, 3, key="k", priority=7)
        assert await task.result(timeout=LIMIT_S) == ["a", 2, 3]
        info = await task.info()
    assert (info.key, info.priority) == ("k", 7)


def _defined(source: str) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102 - every signature in a line
    return names["f"]
