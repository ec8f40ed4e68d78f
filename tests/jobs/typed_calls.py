"""Right and wrong calls of jobs, for type checkers to judge: each line with `# wrong` must be flagged, and no other."""

from typing import assert_type

from msgspec import Struct

from everpoll import Everpoll, Job, Retry, Task

app = Everpoll("memory://")


class Order(Struct):
    id: int


@app.job(retry=Retry(1))
async def buy(order: Order, amount: int = 1) -> dict[str, int]:
    return {"order": order.id, "amount": amount}


@app.job
def sweep() -> None: ...


@app.job()
async def report(task: Task, day: str, *, deep: bool = False) -> list[Order]:
    await task.progress(day)
    return []


@app.job(version=2)
def count(words: list[str]) -> int:
    return len(words)


async def right() -> None:
    assert_type(await (await buy.enqueue(Order(1))).result(), dict[str, int])
    assert_type(await (await buy.enqueue(Order(1), amount=2)).result(timeout="5s"), dict[str, int])
    assert_type(await report.enqueue("monday", deep=True), Task[list[Order]])
    assert_type(await (await count.enqueue(["a"])).result(), int)
    await sweep.enqueue()
    await buy.enqueue(Order(1), 2, delay="5s")
    await buy.enqueue(Order(1), priority=5, key="k")
    assert_type(await buy.options(delay="5s", key="k").enqueue(Order(1), 2), Task[dict[str, int]])
    assert_type([await one.result() for one in await count.enqueue_many([(["a"],), (["b"],)])], list[int])
    many = await buy.enqueue_many([buy.call(Order(1)), buy.options(priority=1).call(Order(1), amount=2)], delay="1m")
    assert_type(many, list[Task[dict[str, int]]])
    assert_type(await buy(Order(1)), dict[str, int])
    assert_type(count(["a"]), int)
    plain: Job[[list[str]], int] = count
    await plain.enqueue(["a"])
    assert_type(await buy.call(Order(1), amount=2).enqueue(), Task[dict[str, int]])
    await count.options(priority=1).call(["a"]).then(buy, 2).then(sweep).enqueue()
    group = await app.group([count.call(["a"]), buy.call(Order(1)).then(count)]).then(report, 42).enqueue()
    await group.wait(timeout="1h")
    anyone: Task = await count.enqueue(["a"])
    await anyone.cancel()


def right_sync() -> None:
    assert_type(buy.sync.enqueue(Order(1), 2).result(timeout="5s"), dict[str, int])
    assert_type(count.sync.enqueue(["a"], delay="5s").result(), int)
    assert_type(count.options(priority=1).sync.enqueue(["a"]).result(), int)
    assert_type([one.result() for one in count.sync.enqueue_many([(["a"],)])], list[int])
    assert_type([one.result() for one in count.sync.enqueue_many([count.call(["a"])])], list[int])


async def wrong() -> None:
    await buy.enqueue()  # wrong
    await buy.enqueue("x")  # wrong
    await buy.enqueue(Order(1), "two")  # wrong
    await buy.enqueue(Order(1), amuont=2)  # wrong
    await buy.enqueue(Order(1), 2, 3)  # wrong
    await sweep.enqueue(1)  # wrong
    await report.enqueue(7)  # wrong
    await report.enqueue("monday", deep="yes")  # wrong
    await buy.options(delay="5s").enqueue("x")  # wrong
    await buy.options(dealy="5s").enqueue(Order(1))  # wrong
    (await (await count.enqueue(["a"])).result()).upper()  # wrong
    await count.enqueue_many(["a"])  # wrong
    await count.enqueue_many([count.call([1])])  # wrong
    await count.enqueue_many([buy.call(Order(1))])  # wrong
    await buy.call("x").enqueue()  # wrong
    await buy.options(priority=1).call(Order(1), "two").then(count).enqueue()  # wrong
    await buy.call(Order(1)).then(print).enqueue()  # wrong
    app.group([count])  # wrong


def wrong_sync() -> None:
    buy.sync.enqueue("x")  # wrong
    count.sync.enqueue([1])  # wrong
    count.options(priority=1).sync.enqueue(1)  # wrong
    count.sync.enqueue(["a"]).result().upper()  # wrong
