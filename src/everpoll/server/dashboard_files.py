"""The dashboard's built files, where they are there; else one sentence at `/`."""

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from everpoll.server.login import HTML, wants_page
from everpoll.version import __version__

FOLDER = Path(__file__).parent / "dashboard"
SENTENCE = f"everpoll {__version__}: the HTTP API is under /api, its description at /openapi.json.\n"
FOR_EVER = "public, max-age=31536000, immutable"
"""Of files whose names change with their content."""
AGAIN = "no-cache"


def dashboard_file(request: Request, segments: list[str]) -> Response | None:
    """Return the file of a path, the first page for a path of the dashboard's own, or None."""
    if request.method not in {"GET", "HEAD"} or segments[0] == "api":
        return None
    index = FOLDER / "index.html"
    if segments == [""]:
        return _file(index, AGAIN) if index.is_file() else Response(SENTENCE, media_type="text/plain")
    path = _inside(segments)
    if path is not None and path.is_file():
        return _file(path, FOR_EVER if segments[0] == "assets" else AGAIN)
    # Paths such as /jobs/7 are views of the one page.
    return _file(index, AGAIN) if index.is_file() and wants_page(request) and "." not in segments[-1] else None


def _inside(segments: list[str]) -> Path | None:
    """Return the path of a file in the folder; None for steps out of it, whatever they are written as."""
    if any(not part or part.startswith(".") or any(one in part for one in "/\\\0:") for part in segments):
        return None
    return FOLDER.joinpath(*segments)


def _file(path: Path, caching: str) -> Response:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    media = HTML if path.suffix == ".html" else kind
    return Response(path.read_bytes(), headers={"Cache-Control": caching}, media_type=media)
