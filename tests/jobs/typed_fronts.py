"""Right and wrong uses of watches, services, tables, loops and schedules, judged as those of `typed_calls.py`."""

from typing import Any, assert_type

from msgspec import Struct

from everpoll import (
    AdoptedTable,
    Backoff,
    Budget,
    Done,
    Everpoll,
    LookContext,
    Loop,
    LoopState,
    Ok,
    Row,
    RunInfo,
    Snooze,
    Started,
    Table,
    Wait,
    Watch,
    WatchRun,
)

app = Everpoll("memory://")


class Parcel(Struct):
    id: int


@app.watch(every=Backoff("1s"), budget=Budget("1h"))
async def shipment(op: Parcel, w: LookContext) -> Done | Wait:
    return Done(op.id) if w.handle else Wait("5s")


@shipment.start
async def send(op: Parcel, key: str) -> Started:
    return Started(f"{op.id}-{key}")


@shipment.cancel
def stop(op: Parcel, handle: str) -> None: ...


@shipment.verify("arrived", tries=3)
async def arrived(op: Parcel) -> bool:
    return op.id > 0


@app.watch(every="10s", budget=Budget("1h"))
def export(op: str) -> Done:
    return Done(op)


orders = app.table(Table("orders", columns=("url",), results=("size",)), slots=2)


@orders.handler
async def handle(row: Row) -> dict[str, int] | Snooze:
    return {"size": len(str(row.id))}


@app.loop(every="30s", cap="5m")
async def prices() -> Ok:
    return Ok(1)


@app.loop("30s", cap=8)
def news() -> bool:
    return True


@app.schedule("0 4 * * *")
@app.job()
async def tidy() -> int:
    return 1


billing = app.service("billing", "https://billing.internal/health", every="30s")


async def right() -> None:
    assert_type(shipment, Watch[Parcel])
    assert_type(export, Watch[str])
    run = await shipment.begin(Parcel(1), id="p1")
    assert_type(run, WatchRun)
    assert_type(await run.info(), RunInfo)
    assert_type(await send(Parcel(1), "k"), Started)
    assert_type(await arrived(Parcel(1)), bool)
    assert_type(app.tables["orders"], AdoptedTable)
    assert_type(orders, AdoptedTable)
    assert_type(app.loops["prices"], Loop)
    assert_type(app.loops["prices"].state, LoopState)
    assert_type(await prices(), Ok)
    assert_type(await (await tidy.enqueue()).result(), int)
    await billing.check()
    value: Any = await run.result(timeout="5s")
    assert value is None


async def wrong() -> None:
    await shipment.begin("x")  # wrong
    await export.begin(Parcel(1))  # wrong
    await shipment.begin(Parcel(1), idd="p1")  # wrong
    await send("x", "k")  # wrong
    app.loop(every="30s", capp=8)  # wrong
    app.service("billing", "https://billing.internal/health", evry="30s")  # wrong
    app.table("orders")  # wrong
    await tidy.enqueue(1)  # wrong
    app.schedule("0 4 * * *")(len)  # wrong
