"""The log of what operators do over HTTP to loops, which are in this process only: no store changes with it."""

from everpoll.engine.actors import action
from everpoll.server.route import Asked
from everpoll.stores.operations import LogEntry


async def log_action(asked: Asked, kind: str, name: str, what: str, why: str = "") -> None:
    """Write one action with its actor; an app that has no work in a database has no log either."""
    if asked.serving.needs_store:
        store = await asked.serving.store()
        await store.log([LogEntry(kind, name, action(what, asked.by, why))])
