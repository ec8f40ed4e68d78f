"""Notes about what people do: the action, the actor and the reason, as the trail and the feed keep them."""

from everpoll.errors import BadInput
from everpoll.policy import flaw_of, shown
from everpoll.stores.contract import encode

ACTOR_LIMIT = 200
"""The longest name of an actor, in characters."""


def checked_actor(by: str) -> str:
    """Return the name of an actor, or an empty text."""
    if by and (flaw := flaw_of(by, ACTOR_LIMIT)) is not None:
        raise BadInput(f"by={shown(by)} {flaw}: write a name of 1 to {ACTOR_LIMIT} characters")
    return by


def action(what: str, by: str = "", why: str = "", **fields: object) -> str:
    """Return the note of one action, without an empty actor or reason.

    The caller passes a reason that can be stored.
    """
    said = {"by": checked_actor(by), "why": why}
    return encode({"what": what, **{name: text for name, text in said.items() if text}, **fields})
