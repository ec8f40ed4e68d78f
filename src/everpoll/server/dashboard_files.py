"""Serves the dashboard's built files; if they were not built, one sentence at `/`.

The built index.html has only relative addresses, which begin with `./`. This module replaces that with the way up from
the requested path. So the dashboard works below any prefix, even behind a proxy that removes one without a header.
"""

import html
import mimetypes
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from everpoll.server.login import wants_page
from everpoll.server.plain_pages import HTML
from everpoll.version import __version__

FOLDER = Path(__file__).parent / "dashboard"
SENTENCE = (
    f"everpoll {__version__} was installed without its dashboard: run `make dashboard` in a checkout, "
    "or install a released wheel; the HTTP API is under /api, its description at /openapi.json.\n"
)
FOR_EVER = "public, max-age=31536000, immutable"
"""For files with names that change with their content."""
AGAIN = "no-cache"
LONGEST_NAME = 60
KINDS = {".css": "text/css", ".html": HTML, ".js": "text/javascript", ".svg": "image/svg+xml"}
"""Listed here because the machine's own table may differ, and with `nosniff` browsers rely on it."""


def dashboard_file(request: Request, segments: list[str]) -> Response | None:
    """Return the file of a path, index.html for a path that the dashboard shows as a view, or None."""
    if request.method not in {"GET", "HEAD"} or segments[0] == "api":
        return None
    index = FOLDER / "index.html"
    if segments == [""] and not index.is_file():
        return Response(SENTENCE, media_type="text/plain")
    path = _inside(segments)
    if path is not None and path != index and path.is_file():
        return _file(path, FOR_EVER if segments[0] == "assets" else AGAIN)
    # A view's path may contain a name such as shop.example.com: only assets/ contains nothing but files.
    is_view = segments == [""] or (wants_page(request) and segments[0] != "assets")
    return _index(index, _way_up(request, segments)) if is_view and index.is_file() else None


def _way_up(request: Request, segments: list[str]) -> str:
    """Return the relative address of the mount, as seen from the requested path."""
    path = str(request.scope["path"])
    if segments == [""] and path and not path.endswith("/"):
        return f"./{quote(path.rpartition('/')[2])}/"  # requested as /polls: relative addresses begin at its parent
    return "../" * (len(segments) - 1) or "./"


def _index(path: Path, way_up: str) -> Response:
    page = path.read_text("utf-8").replace('="./', f'="{html.escape(way_up)}')
    return Response(page, headers={"Cache-Control": AGAIN}, media_type=HTML)


def _inside(segments: list[str]) -> Path | None:
    """Return the path of a file in the folder; None if the path leads outside, in any notation."""
    if any(not part or part.startswith(".") or any(one in part for one in "/\\\0:") for part in segments):
        return None
    if any(len(part) > LONGEST_NAME for part in segments):
        return None  # the id of a run in the path of a view: no file system has such a name
    return FOLDER.joinpath(*segments)


def _file(path: Path, caching: str) -> Response:
    kind = KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Response(path.read_bytes(), headers={"Cache-Control": caching}, media_type=kind)
