"""The app of processes that share watches: each start, look and cleanup is one line in a file that all append to."""

import os
from pathlib import Path
from typing import Any

from everpoll import Backoff, Budget, Everpoll
from everpoll.watches import Done, Wait

LOOKS, GATE = "WATCHERS_LOOKS", "WATCHERS_GATE"


def _note(what: str, run: str) -> None:
    descriptor = os.open(os.environ[LOOKS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{what} {run} {os.environ.get('WORKER_ID', '-')}\n".encode())
    finally:
        os.close(descriptor)


def _is_open() -> bool:
    return Path(os.environ[GATE]).exists()


def _is_noted(what: str) -> bool:
    return what in Path(os.environ[LOOKS]).read_text()


def watchers(url: str | None = None) -> Everpoll:
    """An app with the one watch."""
    app = Everpoll(url, lease="4s", slots=4)

    @app.watch(every=Backoff("300ms", factor=1, jitter=0.2), budget=Budget("10m"))
    async def query(_op: Any, w: Any) -> Done | Wait:
        _note("look", w.id)
        return Done(w.handle) if _is_open() else Wait()

    @query.start
    async def start(_op: Any, key: str) -> str:
        _note("start", key)
        return key

    @query.adopt
    async def adopt(_op: Any, key: str) -> str | None:
        return key if _is_noted(f"start {key} ") else None

    @query.cleanup
    async def cleanup(_op: Any, key: str) -> None:
        _note("clean", key)

    return app


app = watchers()
