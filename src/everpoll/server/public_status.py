"""The public status page and its badges: the states of chosen services, for callers without a token.

    $EVERPOLL_PUBLIC_STATUS="billing=Payments, search"     off without it
    GET /status            a page
    GET /status.json       {"status": "degraded", "services": {"Payments": "up", "search": "degraded"}}
    GET /badges/search.svg a picture for a README

Promises: the page shows nothing but the chosen names and one word for each: no address, error, time or other service.
The database is asked at most once in 5 s, however many callers there are. While it is away the page shows the last
states for a minute, then "unknown": a database that is down is not a service that is down.
"""

import asyncio
import html
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from everpoll.errors import BadInput, EverpollError, ServiceNotFound
from everpoll.monitors.info import service_info
from everpoll.monitors.report import Status
from everpoll.policy.rollup import HealthWord
from everpoll.server.plain_pages import HTML, plain_page
from everpoll.server.served import ServedApp

VARIABLE = "EVERPOLL_PUBLIC_STATUS"
NAMES_LIMIT = 100
LABEL_LIMIT = 80
FRESH_S = 5.0
KEPT_S = 60.0
READ_S = 2.0
REFRESH_S = 30
WORDS: Mapping[HealthWord, str] = MappingProxyType(
    {"up": "Operational", "degraded": "Degraded", "down": "Down", "unknown": "Unknown"}
)
WORST: tuple[HealthWord, ...] = ("down", "degraded", "unknown")
_COLOURS = {"up": "#26795f", "degraded": "#995600", "down": "#8a0700", "unknown": "#3f4348"}
_MARKS = {"up": "✓", "degraded": "▲", "down": "✕", "unknown": "○"}
"""The mark of each status, because colour alone must not carry the meaning."""
_BADGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {word}">
<title>{label}: {word}</title>
<rect width="{width}" height="20" rx="4" fill="#17202a"/>
<path d="M{left} 0h{rest}a4 4 0 0 1 4 4v12a4 4 0 0 1-4 4h-{rest}z" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" lengthAdjust="spacingAndGlyphs">
<text x="8" y="14" textLength="{label_width}">{label}</text>
<text x="{word_x}" y="14" textLength="{word_width}">{word}</text>
</g>
</svg>
"""
_LETTER_PX, _WIDE_PX = 7, 11
"""About how wide a letter of the badge is; `textLength` makes the width exact with any font."""


def public_names() -> dict[str, str]:
    """Return the services that `$EVERPOLL_PUBLIC_STATUS` lists: public labels by names of services."""
    found: dict[str, str] = {}
    for part in os.environ.get(VARIABLE, "").split(","):
        name, _, label = (piece.strip() for piece in part.partition("="))
        if label and not name:
            raise BadInput(f"${VARIABLE}: the label {label!r} has no service: write name=label")
        if not name:
            continue
        label = label or name
        if name in found or label in found.values():
            raise BadInput(f"${VARIABLE}: {label!r} is written twice")
        if len(label) > LABEL_LIMIT or not label.isprintable() or "/" in label:
            raise BadInput(f"${VARIABLE}: a label must be 1 to {LABEL_LIMIT} printable characters without a slash")
        found[name] = label
    if len(found) > NAMES_LIMIT:
        raise BadInput(f"${VARIABLE}: names {len(found)} services: must be at most {NAMES_LIMIT}")
    return found


class PublicStatus:
    """The public paths of one server; `names` are labels by the names of services."""

    def __init__(self, app: ServedApp, names: dict[str, str], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._names = names
        self._monotonic = monotonic
        self._states: dict[str, HealthWord] = {}
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def answer(self, request: Request, segments: list[str]) -> Response | None:
        """Answer a public path; return None for any other path."""
        if not self._names or request.method not in {"GET", "HEAD"}:
            return None
        match segments:
            case ["status"]:
                return _response(_page(request, await self.states()), HTML)
            case ["status.json"]:
                return _response(msgspec.json.encode(_summary(await self.states())), "application/json")
            case ["badges", file] if file.removesuffix(".svg") in self._names.values() and file.endswith(".svg"):
                label = file.removesuffix(".svg")
                return _response(badge(label, (await self.states())[label]), "image/svg+xml")
        return None

    async def states(self) -> dict[str, HealthWord]:
        """Return the state of each label, at most a few seconds old."""
        async with self._reading:
            now = self._monotonic()
            if now - self._tried_at >= FRESH_S:
                self._tried_at = now
                with suppress(EverpollError, OSError, TimeoutError):
                    async with asyncio.timeout(READ_S):
                        self._states = {label: await self._state(name) for name, label in self._names.items()}
                    self._read_at = now
        if now - self._read_at > KEPT_S:
            return dict.fromkeys(self._names.values(), "unknown")
        return self._states

    async def _state(self, name: str) -> HealthWord:
        try:
            row = await self._app.services.row(name)
        except ServiceNotFound:
            return "unknown"
        status = service_info(row, self._app.services.wall()).status
        return status.value if isinstance(status, Status) else "unknown"


def badge(label: str, state: HealthWord) -> str:
    """Return a picture with a label and its state."""
    word = WORDS[state].lower()
    label_width, word_width = _width(label), _width(word)
    left = label_width + 16
    return _BADGE.format(
        label=html.escape(label),
        word=word,
        width=left + word_width + 16,
        left=left,
        rest=word_width + 12,
        colour=_COLOURS[state],
        label_width=label_width,
        word_x=left + 8,
        word_width=word_width,
    )


def _width(text: str) -> int:
    return sum(_LETTER_PX if one.isascii() else _WIDE_PX for one in text)


def _summary(states: dict[str, HealthWord]) -> dict[str, Any]:
    return {"status": _worst(states), "services": states}


def _worst(states: dict[str, HealthWord]) -> HealthWord:
    return next((word for word in WORST if word in states.values()), "up")


def _page(request: Request, states: dict[str, HealthWord]) -> str:
    worst = _worst(states)
    count = sum(state == worst for state in states.values())
    verb = "is" if count == 1 else "are"
    title = "All is operational" if worst == "up" else f"{count} of {len(states)} {verb} {WORDS[worst].lower()}"
    items = "\n".join(_item(label, state) for label, state in states.items())
    says = f"<p>This page shows the current state, and is updated every {REFRESH_S} seconds.</p>"
    body = f"<h1>{title}</h1>\n{says}\n<ul>\n{items}\n</ul>"
    return plain_page(request, title, body, f'<meta http-equiv="refresh" content="{REFRESH_S}">\n')


def _item(label: str, state: HealthWord) -> str:
    return f'<li>{html.escape(label)} <span class="{state}">{_MARKS[state]} {WORDS[state]}</span></li>'


def _response(content: str | bytes, media: str) -> Response:
    # Pages of other sites contain badges.
    headers = {"Cache-Control": f"max-age={FRESH_S:g}", "Cross-Origin-Resource-Policy": "cross-origin"}
    return Response(content, headers=headers, media_type=media)
