"""The services of the example: what each of them answers, and what happens to it."""

from typing import Any

from msgspec import Struct

from everpoll.monitors import read
from examples.dependency_health import bodies
from examples.dependency_health.bodies import Write


class Story(Struct, frozen=True, kw_only=True):
    """One service."""

    name: str
    write: Write = bodies.plain
    shares: str | None = None
    """The service that has the same URL."""
    flaps_s: float | None = None
    """It is well for this long, then not for as long, and so on."""
    takes_s: float = 0.0
    is_dead: bool = False
    """Nothing listens at its port."""
    has_expired: bool = False
    """Its certificate has."""
    options: dict[str, Any] = {}
    """For `app.service`."""


STORIES = (
    Story(name="catalog", write=bodies.proactive_deps, flaps_s=5),
    Story(name="catalog-copy", shares="catalog"),
    Story(name="billing", write=bodies.spring, flaps_s=7),
    Story(name="orders", write=bodies.health_json, flaps_s=4),
    Story(name="search", write=bodies.aspnet, takes_s=0.7),
    Story(name="payments", write=bodies.microprofile),
    Story(name="mail", write=bodies.health_go, flaps_s=3),
    Story(name="shipping", write=bodies.details),
    Story(name="backoffice", write=bodies.django),
    Story(name="login", write=bodies.status),
    Story(name="cluster", write=bodies.kubernetes),
    Story(name="events", write=bodies.prometheus),
    Story(name="stock", write=bodies.own_shape, options={"format": "mapping", "mapping": bodies.MAPPING}),
    Story(name="website", options={"depends_on": ["billing"]}),
    Story(name="archive", is_dead=True),
    Story(name="partner", has_expired=True),
)


def format_of(story: Story) -> str:
    """Return the format that everpoll reads the answers of a service by; empty where none comes."""
    if story.is_dead or story.has_expired:
        return ""
    origin = next((one for one in STORIES if one.name == story.shares), story)
    body, mapping = origin.write(True), origin.options.get("mapping")
    return read(body.content, body.content_type, body.status, mapping=mapping, format=_named(origin)).format


def _named(story: Story) -> str:
    return str(story.options.get("format", "auto"))


def is_well(story: Story, elapsed_s: float) -> bool:
    """Whether a service is well so long after the start."""
    return story.flaps_s is None or elapsed_s % (2 * story.flaps_s) < story.flaps_s
