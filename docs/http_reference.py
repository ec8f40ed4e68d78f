"""Writes docs/reference/http.md from the route table: `python docs/http_reference.py`. A test compares the two."""

# ruff: noqa: E501 - rows of tables are lines of the page

from http import HTTPStatus
from itertools import groupby
from pathlib import Path

import msgspec

from everpoll.server.openapi import COMMON
from everpoll.server.route import Route
from everpoll.server.route_table import ROUTES

PAGE = Path(__file__).parent / "reference/http.md"
HEADINGS = {
    "health": "Health",
    "metrics": "Metrics",
    "jobs": "Jobs",
    "runs": "Runs",
    "services": "Services",
    "loops": "Loops",
    "fleet": "Fleet",
    "series": "Series",
    "events": "Events",
    "about": "About this API",
}
HEAD = """# HTTP API

Serve it with [`everpoll run APP --serve` or `everpoll serve`](../how-to/serve-http.md), or
[mount it](../how-to/mount-in-a-web-app.md) with `app.asgi()`. `GET /openapi.json` describes it as OpenAPI 3.1, with the
shape of every answer; this page is made from the same table. `GET /` is the dashboard, where it is installed.

## Rules

| what | rule |
| --- | --- |
| token | `Authorization: Bearer …`, or the cookie of the login page at `/`. Every call needs it but `/health` and `/api/beat/…`. The login page with its style sheet and icon shows no data and needs none; nor does the [status page](../how-to/show-a-status-page.md) with its badges, where you switch it on. It is never taken from a URL |
| read token | allows calls with access "read"; other calls are answered with 403 |
| no token set | only callers on this machine are answered |
| Host | a request for a name that is not one of the server's is answered with 400; see `--allow-host` and `hosts=` |
| Origin | a change that a page of another site sends is answered with 403. A request without `Origin` needs no special header |
| lists | `{"items": […], "after": cursor or null}`; pass the cursor as `after` to go on. `limit` is at most 1,000; a page has at most 500 jobs or runs, and 200 services, also for a higher one. Rows that are added or move meanwhile are neither skipped nor repeated |
| ETag | lists and details have one; with `If-None-Match` an unchanged answer is 304 |
| integers | beyond 2^53 they are strings |
| instants | ISO 8601 in UTC; the header `Everpoll-Time` is the clock of the server, in seconds since the epoch |
| secrets | what is stored under the name of a secret is shown as `***` |
| body | JSON, at most 1 MiB. The server waits 30 seconds for a request, and as long for its body |
| names in paths | a `/` in a name is written as `%2F` |

## Problems

Errors are `application/problem+json` with `type`, `title`, `status` and `detail`. Any call may answer with these:

| status | when |
| --- | --- |
| 400 | the body is not JSON, or the Host is foreign |
| 401 | the request has no token, or an unknown one |
| 403 | the token only reads, the Origin is foreign, or the caller is on another machine and no token is set |
| 404 | there is no such thing |
| 405 | the path has other methods; `Allow` names them |
| 409 | a conflict: the job or run has ended already, or has not ended yet, or its key is taken; `holder` is the id of the task that has the key |
| 413 | the body is too large |
| 422 | a value cannot be used; `argument` is its name |
| 500 | a fault of everpoll; the log has the reason |
| 503 | the database cannot be reached, or took longer than 2 s. Three calls may take longer: `/api/tables`, whose `check=true` queries the databases of your tables (10 s), `/api/doctor`, which makes a dozen queries (60 s), and a dry run of `/api/jobs/bulk`, which reads all jobs that match (30 s) |
"""
STREAMS = """
Streams are server-sent events. `/api/events` is the durable log: changes of runs, failures and cancels of jobs, actions
of operators, changes of services and incidents. The first event is `state`, with the place in the log as its id. A client
that connects again with `Last-Event-ID`, as browsers do by themselves, gets each event after that place exactly once and
in order. `reset` says that the place is too old, or of another database: read the lists again. `/api/changes` tells a
screen which of `jobs`, `runs`, `services`, `incidents`, `loops`, `workers`, `queues` and `events` has changed and
is to be read again. A client that accepts nothing for 30 seconds is dropped; it connects again with `Last-Event-ID`.
"""


def text() -> str:
    """Return the page."""
    parts = [HEAD]
    ordered = sorted(ROUTES, key=lambda route: list(HEADINGS).index(route.noun))
    for noun, routes in groupby(ordered, key=lambda route: route.noun):
        parts.append(f"\n## {HEADINGS[noun]}\n{STREAMS if noun == 'events' else ''}")
        parts += [_call(route) for route in routes]
    return "".join(parts)


def _call(route: Route) -> str:
    lines = [f"\n### {route.method} {route.path}", "", route.summary, ""]
    names = [f"`{one.encode_name}`" for one in msgspec.structs.fields(route.query)]
    body = [] if route.body is None else [f"`{one.encode_name}`" for one in msgspec.structs.fields(route.body)]
    statuses = [route.status, *route.also, *sorted({*route.problems} - {*COMMON})]
    facts = {
        "access": {"public": "no token", "read": "read", "write": "write"}[route.access],
        "parameters": ", ".join(names),
        "body": ", ".join(body) + ("" if route.needs_body or not body else " (may be left out)"),
        "answers": ", ".join(f"{status} {HTTPStatus(status).phrase}" for status in dict.fromkeys(statuses)),
    }
    lines += ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in facts.items() if value)]
    return "\n".join([*lines, *_examples(route), ""])


def _examples(route: Route) -> list[str]:
    lines: list[str] = []
    if route.body_example is not None:
        lines += ["", "```json", _pretty(route.body_example), "```"]
    if isinstance(route.example, str):
        lines += ["", "```text", route.example.rstrip(), "```"]
    elif route.example is not None:
        lines += ["", "```json", _pretty(route.example), "```"]
    return lines


def _pretty(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
