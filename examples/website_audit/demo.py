"""The demo: seven audits written by plain SQL, sites of different quality to look at, and the service."""

import asyncio
from pathlib import Path

import msgspec
from rich import box
from rich.bar import Bar
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from examples.plain_sql import Database, Row
from examples.showing import ENDS, LOOK_S, styled, until_ended
from examples.website_audit.app import app
from examples.website_audit.score import Report
from examples.website_audit.site import sites

BAR_WIDTH = 10


async def play(database: Database, *, serve: bool) -> None:
    """Create, insert, run, and print what is in the table then; with `serve`, go on until stopped."""
    console = Console()
    await database.create(Path(__file__).parent)
    with sites() as urls:
        # The last one can never be fetched: it is refused at once, without further attempts.
        ids = await database.insert("audits", [{"url": url} for url in (*urls, "ftp://example.com/")])
        console.print(f"{len(ids)} audits in the table audits", highlight=False)
        async with app:
            rows = await until_ended(console, lambda: database.rows("audits", ids), lambda row: str(row["url"]))
            console.print(table(rows))
            if serve:
                where = app.url if app.url.startswith("sqlite:") else "the database"
                console.print(f"Insert rows with a url into audits in {where}; Ctrl-C ends it", highlight=False)
                await _follow(console, database, max(ids))


async def _follow(console: Console, database: Database, last: int) -> None:
    """Print every audit that another program inserts, once it has ended; of the next 500 ids, which may have gaps."""
    printed: set[int] = set()
    while True:
        rows = await database.rows("audits", range(last + 1, last + 501))
        ended = [row for row in rows if row["status"] in ENDS and row["id"] not in printed]
        printed |= {row["id"] for row in ended}
        if ended:
            console.print(table(ended))
        await asyncio.sleep(LOOK_S)


def table(rows: list[Row]) -> Table:
    """The reports, the best first; what has failed comes last."""
    shown = Table(title="audits", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("site", overflow="fold", max_width=36)
    shown.add_column("score", justify="right", no_wrap=True)
    shown.add_column("", width=BAR_WIDTH)
    shown.add_column("found", overflow="fold")
    for row in sorted(rows, key=lambda row: -1 if row["score"] is None else row["score"], reverse=True):
        if row["score"] is None:
            tried = f" [dim](tried {row['retry_count']}x)[/]" if row["retry_count"] else ""
            found = f"[red]{escape(row['error'] or '')}[/]{tried}"
            shown.add_row(_site(row), "", styled(row["status"]), found)
        else:
            shown.add_row(_site(row), str(row["score"]), _bar(row["score"]), _found(row))
    return shown


def _site(row: Row) -> str:
    return escape(row["url"].removeprefix("http://"))


def _bar(score: int) -> Bar:
    return Bar(100, 0, score, width=BAR_WIDTH, color="green" if score >= 85 else "yellow" if score >= 50 else "red")


def _found(row: Row) -> Text:
    stored = row["report"]
    report = msgspec.json.decode(stored, type=Report) if isinstance(stored, str) else msgspec.convert(stored, Report)
    first, more = report.findings[:3], len(report.findings) - 3
    return Text("; ".join(first) + (f"; and {more} more" if more > 0 else "") or "nothing to complain about")
