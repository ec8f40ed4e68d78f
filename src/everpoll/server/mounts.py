"""Mounts: finds where the app is mounted, and the rest of the path.

A frame that mounts an ASGI app tells so in `root_path` and leaves the whole path in `path` (Starlette, FastAPI), or
cuts the path (older ones). One that only passes requests on (Django) tells nothing: then `app.asgi(prefix=…)` does.
"""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

BASE = "everpoll.base"


def segments_of(scope: MutableMapping[str, Any], prefix: str) -> list[str] | None:
    """Return the decoded segments of the path below the mount; None: the path is not below the prefix.

    Segments are cut before they are decoded: `%2F` is part of a name, not a step.
    """
    raw = scope.get("raw_path")
    # Without the raw path a slash inside a name is a step; every server in use sends it.
    written = raw.split(b"?")[0] if isinstance(raw, bytes) and raw else quote(str(scope["path"]), safe="/").encode()
    parts, root = [_decoded(part) for part in written.split(b"/")], str(scope.get("root_path", "")).rstrip("/")
    mounted = (root.split("/") if root and _is_below(parts, root.split("/")) else [""]) + prefix.split("/")[1:]
    if not _is_below(parts, mounted):
        return None
    scope[BASE] = root + prefix
    return parts[len(mounted) :] or [""]


def _decoded(written: bytes) -> str:
    return unquote_to_bytes(written).decode("utf-8", "replace")


def base_of(scope: MutableMapping[str, Any]) -> str:
    """Return the path of the mount for browsers."""
    return str(scope.get(BASE, ""))


def checked_prefix(prefix: str) -> str:
    """Return a prefix with a slash in front and none at its end."""
    parts = [part for part in prefix.split("/") if part]
    return "".join(f"/{part}" for part in parts)


def _is_below(parts: list[str], mounted: list[str]) -> bool:
    # By segments: /polls%2Fx/api/jobs is not /api/jobs below /polls, whatever a proxy in front takes it for.
    return parts[: len(mounted)] == mounted
