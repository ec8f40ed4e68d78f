"""Loops: lists those of all processes, and operates those of this process."""

import os
import socket
from datetime import datetime
from typing import Any

from msgspec import Struct

from everpoll.http.stored_secrets import without_secrets
from everpoll.loops import Loop
from everpoll.server import cursors
from everpoll.server.actions_log import log_action
from everpoll.server.problems import Problem
from everpoll.server.route import ApiCall
from everpoll.server.route_kinds import listing, order
from everpoll.server.shapes import After, Limit, Page, instant, instant_example
from everpoll.stores.figures import LoopCard, PublishedLoops

LIST = "loops"


class LoopsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which loops to list."""

    limit: Limit = 50
    after: After = None


class LoopItem(Struct, frozen=True, kw_only=True):
    """A loop."""

    name: str
    phase: str
    every_s: float
    multiplier: float
    runs: int
    failures: int
    last_run_at: datetime | None
    next_due_at: datetime | None
    last_error: str | None
    strip: str
    """The last 120 runs, oldest first, one letter each: o ok, f failed, z snoozed, s stopped, - skipped, c canceled."""
    worker: str | None
    """The worker of the process that runs it; null: this process, which can operate it."""
    is_alive: bool
    """False: its process has ended, or sends no heartbeats."""


class LoopPage(Page, frozen=True, kw_only=True):
    """Loops, by name."""

    items: list[LoopItem]
    after: str | None


async def list_loops(call: ApiCall) -> LoopPage:
    """Answer `GET /api/loops`."""
    query: LoopsQuery = call.query
    after = cursors.read_text(LIST, query.after)
    loops = [_item(card, None) for card in call.serving.app.loops.cards()] + await _elsewhere(call)
    rest = sorted((one for one in loops if after is None or _place(one) > after), key=_place)
    page = rest[: query.limit]
    return LoopPage(items=page, after=cursors.write(LIST, _place(page[-1])) if len(rest) > len(page) else None)


def _place(one: LoopItem) -> str:
    return f"{one.name}\n{one.worker or ''}"


async def _elsewhere(call: ApiCall) -> list[LoopItem]:
    """Return the loops that other processes have published."""
    if not call.serving.needs_store:
        return []
    here = (socket.gethostname(), os.getpid())
    published = await (await call.serving.store()).published_loops()
    return [_item(card, one) for one in published if (one.host, one.pid) != here for card in one.loops]


async def trigger_loop(call: ApiCall) -> LoopItem:
    """Answer `POST /api/loops/{name}/trigger`."""
    loop = await _loop(call)
    loop.trigger()
    return await _changed(call, loop, "trigger")


async def pause_loop(call: ApiCall) -> LoopItem:
    """Answer `POST /api/loops/{name}/pause`."""
    loop = await _loop(call)
    loop.pause()
    return await _changed(call, loop, "pause")


async def resume_loop(call: ApiCall) -> LoopItem:
    """Answer `POST /api/loops/{name}/resume`."""
    loop = await _loop(call)
    loop.resume()
    return await _changed(call, loop, "resume")


async def reset_loop(call: ApiCall) -> LoopItem:
    """Answer `POST /api/loops/{name}/reset`."""
    loop = await _loop(call)
    loop.reset()
    return await _changed(call, loop, "reset")


async def _loop(call: ApiCall) -> Loop:
    loops, name = call.serving.app.loops, call.params["name"]
    if name not in loops and (others := [one.worker for one in await _elsewhere(call) if one.name == name]):
        raise Problem(409, f"loop {name!r} runs in another process: operate it in the process of worker {others[0]}")
    return loops[name]


async def _changed(call: ApiCall, loop: Loop, what: str) -> LoopItem:
    call.serving.changes.changed("loops")
    await log_action(call, "loop", loop.name, what)
    [card] = [one for one in call.serving.app.loops.cards() if one.name == loop.name]
    return _item(card, None)


def _item(card: LoopCard, published: PublishedLoops | None) -> LoopItem:
    return LoopItem(
        name=card.name,
        phase=card.phase,
        every_s=card.every_s,
        multiplier=card.multiplier,
        runs=card.runs,
        failures=card.failures,
        last_run_at=instant(card.last_run_at),
        next_due_at=instant(card.next_due_at),
        last_error=without_secrets(card.last_error),
        strip=card.strip,
        worker=None if published is None else published.worker,
        is_alive=published is None or published.is_alive,
    )


ITEM: dict[str, Any] = {
    "name": "refresh_prices",
    "phase": "waiting",
    "every_s": 30.0,
    "multiplier": 1.0,
    "runs": 12,
    "failures": 0,
    "last_run_at": instant_example(0),
    "next_due_at": instant_example(30),
    "last_error": None,
    "strip": "oooofooooooo",
    "worker": None,
    "is_alive": True,
}
_ACTIONS = {
    "trigger": (trigger_loop, "Run a loop now. A paused loop does not run.", ITEM | {"phase": "running"}),
    "pause": (pause_loop, "Start no more runs of a loop.", ITEM | {"phase": "paused"}),
    "resume": (resume_loop, "Let a loop go on.", ITEM),
    "reset": (reset_loop, "Forget the failures of a loop; a stopped loop starts again.", ITEM),
}

LOOP_ROUTES = [
    listing(
        path="/api/loops",
        noun="loops",
        summary="List loops, by name.",
        handler=list_loops,
        query=LoopsQuery,
        answer=LoopPage,
        item=ITEM,
    ),
    *(
        order(
            path=f"/api/loops/{{name}}/{action}",
            noun="loops",
            summary=summary,
            handler=handler,
            answer=LoopItem,
            example=example,
            problems=(404, 409),
        )
        for action, (handler, summary, example) in _ACTIONS.items()
    ),
]
