"""Logs what operators do to loops over HTTP: loops are in this process only, so no change in a store has the note."""

from everpoll.engine.actors import action
from everpoll.server.route import ApiCall
from everpoll.stores.operations import LogEntry


async def log_action(call: ApiCall, kind: str, name: str, what: str, why: str = "") -> None:
    """Write one action with its actor to the log; do nothing if the app has no work in a database."""
    if call.serving.needs_store:
        store = await call.serving.store()
        await store.log([LogEntry(kind, name, action(what, call.by, why))])
