"""The demo: four jobs written by plain SQL, a shop to test, and the runner, until every job has ended."""

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.plain_sql import Database, Row
from examples.showing import styled, until_ended
from examples.test_runner.app import app
from examples.test_runner.site import shop

FILL_IN: list[dict[str, str]] = [
    {"do": "open", "url": "/"},
    {"do": "type", "selector": "#name", "text": "${name}"},
    {"do": "type", "selector": "#email", "text": "${email}"},
    {"do": "type", "selector": "#seats", "text": "${seats}"},
]
ORDER = [*FILL_IN, {"do": "click", "selector": "button"}]
PEOPLE = 'name,email,seats\nAda,ada@example.com,3\nGrace,grace@example.org,12\n"O\'Neill, Jo",jo@example.net,1\n'
MISTAKES = """name,email,seats,problem
,ada@example.com,3,Please tell us your name
Ada,ada at example,3,That is not an e-mail address
Ada,ada@example.com,0,"Between 1 and 100 seats, please"
"""
PRICES = "name,email,seats,price\nAda,a@example.com,3,27\nGrace,g@example.com,12,108\nJo,j@example.com,100,800\n"

JOBS: list[tuple[str, list[dict[str, str]], str]] = [
    ("Sign up", [*ORDER, {"do": "expect", "selector": "#welcome", "text": "Welcome, ${name}!"}], PEOPLE),
    ("Validation", [*ORDER, {"do": "expect", "selector": "#problem", "text": "${problem}"}], MISTAKES),
    # Grace's row expects 12 x 9; the shop gives a discount from 10 seats on. That is a test that failed, no failed job.
    ("Prices", [*FILL_IN, {"do": "expect", "selector": "#price", "text": "${price} € a month"}], PRICES),
    # "hover" cannot be replayed: this job fails, after its attempts.
    ("Broken recording", [*FILL_IN, {"do": "hover", "selector": "button"}], PEOPLE),
]


async def play(database: Database) -> None:
    """Create, insert, run, and print what is in the table then."""
    console = Console()
    await database.create(Path(__file__).parent)
    with shop() as url:
        ids = await database.insert("execution_jobs", jobs(url))
        console.print(f"{len(ids)} jobs in the table execution_jobs, about the shop at {url}", highlight=False)
        async with app:
            rows = await until_ended(console, lambda: database.rows("execution_jobs", ids), _name)
    console.print(table(rows))


def jobs(url: str) -> list[dict[str, str]]:
    """The rows, as another program would write them."""
    config = json.dumps({"base_url": url, "timeout_s": 5})
    return [
        {"recording": json.dumps({"name": name, "steps": steps}), "csv_data": csv, "config": config}
        for name, steps, csv in JOBS
    ]


def table(rows: list[Row]) -> Table:
    """Every row of every job."""
    shown = Table(title="execution_jobs", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("job", "status", "row", "result", "ms"):
        shown.add_column(column, justify="right" if column in {"row", "ms"} else "left", no_wrap=True)
    shown.add_column("message")
    for job in rows:
        first = [escape(_name(job)), styled(job["status"])]
        for one in _decoded(job["results"] or '{"rows": []}')["rows"]:
            result = "[green]passed[/]" if one["passed"] else "[red]failed[/]"
            message = escape(one.get("message", ""))
            shown.add_row(*first, str(one["row"]), result, str(one["duration_ms"]), message)
            first = ["", ""]
        if job["error"]:
            tried = f"[dim](tried {job['retry_count']}x)[/]"
            shown.add_row(*first, "", "", "", f"[red]{escape(job['error'])}[/] {tried}")
        shown.add_section()
    return shown


def _name(job: Row) -> str:
    return str(_decoded(job["recording"])["name"])


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
