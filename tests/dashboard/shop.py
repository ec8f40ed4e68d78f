"""The app behind the dashboard under test: jobs of all fates, runs, services up and down, loops, a paused queue.

`python -m everpoll run dashboard.shop:app --serve` runs it; `shop_server.py` starts that and fills it.
"""

import asyncio
import os
from typing import Any

from everpoll import Backoff, Budget, Everpoll, Retry
from everpoll.jobs import Group
from everpoll.tables import Row, Table
from everpoll.watches import Done, Fail, Wait

REMOTE = os.environ.get("SHOP_REMOTE", "http://127.0.0.1:9")
"""Where the health endpoints of its services are."""

MARKUP = os.environ.get("SHOP_MARKUP")
"""If set, a job, a queue and a loop are called that, and say it in their errors."""

app = Everpoll()


@app.job()
async def audit(url: str, depth: int = 1) -> dict[str, Any]:
    return {"url": url, "depth": depth, "findings": [{"id": 9007199254740993, "text": "<b>bold</b>"}]}


@app.job(retry=Retry(1))
async def charge(order: int, password: str = "") -> None:
    raise ValueError(f"card of order {order} was declined")


@app.job(retry=Retry(1))
async def crash(text: str) -> None:
    raise ValueError(text)


@app.job(retry=Retry(5, Backoff("1h", jitter=0)))
async def mail(to: str) -> None:
    raise ConnectionError("the relay does not answer")


@app.job(queue="slow")
async def render(seconds: float = 3600.0) -> None:
    await asyncio.sleep(seconds)


@app.job(queue="reports")
async def report(month: str) -> str:
    return month


@app.job(queue="scans", concurrency=1)
async def scan(page: int) -> None:
    await asyncio.sleep(3600)


@app.job()
async def report_day(day: int) -> None: ...


@app.job(version=2)
async def total(group: Group, label: str) -> str:
    return label


@app.job()
async def close_books(month: str) -> None:
    await app.group([audit.call("https://example.com/books"), report.call(month)]).then(total, month).enqueue()


@app.watch(every="1s", budget=Budget("29m", looks=120), remote=lambda op: op.get("remote", "export"))
async def export(op: dict[str, Any], w: Any) -> Done | Fail | Wait:
    if steps := op.get("steps"):
        w.status(steps[min(w.looks, len(steps)) - 1])
        w.progress(f"{w.looks} of {len(steps)} parts")
        return Wait()
    if op.get("fails"):
        return Fail("the export was rejected")
    return Done({"rows": 3}) if op.get("ends") else Wait()


@app.schedule(cron="0 3 * * *")
@app.job()
async def close_day() -> None: ...


orders = app.table(Table("orders", finished_at="finished_at", error="error", columns=("item",)), slots=2)


@orders.handler
async def pack(row: Row) -> None:
    if row["item"] == "broken":
        raise ValueError("the item is broken")


@app.loop(every="1h", first="0s")
async def refresh_prices() -> None: ...


@app.loop(every="30s", first="0s", jitter=0)
async def sync_stock() -> bool:
    return False


app.service("billing", f"{REMOTE}/up", every="1h")
app.service("search", f"{REMOTE}/degraded", every="1h", depends_on=("billing",))
app.service("warehouse", f"{REMOTE}/down", every="1h")


if MARKUP is not None:

    @app.job(name=MARKUP, queue=MARKUP, retry=Retry(1))
    async def marked(text: str) -> None:
        raise ValueError(text)

    @app.loop(name=MARKUP, every="30s", first="0s", jitter=0)
    async def marked_loop() -> None:
        raise ValueError(MARKUP)
