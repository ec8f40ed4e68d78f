"""Detect: recognizes the format of a body by its shape; the order of the tests keeps the formats apart.

Promises: the shape of one format is never taken for another format, and a recognized body gives the same report as if
the user had named the format. If no format recognizes a body, it is `plain`.
"""

from collections.abc import Callable
from typing import Any

from everpoll.monitors.body import MediaType
from everpoll.monitors.formats import (
    aspnet,
    details,
    django,
    health_go,
    health_json,
    kubernetes,
    microprofile,
    plain,
    proactive_deps,
    prometheus,
    spring,
    status_word,
)

# From the most particular shape to the least. Spring Boot 2.0 has `details`, too, but with words in capitals, so it is
# tested before the format `details`.
_OBJECTS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    (microprofile.NAME, microprofile.recognizes),
    (health_go.NAME, health_go.recognizes),
    (aspnet.NAME, aspnet.recognizes),
    (spring.NAME, spring.recognizes),
    (health_json.NAME, health_json.recognizes),
    (details.NAME, details.recognizes),
)
# For a body with only a status: the words that only one format writes, in this upper or lower case.
_WORDS = {
    word: name
    for name, words in (
        (spring.NAME, spring.WORDS),
        (health_json.NAME, health_json.WORDS),
        (aspnet.NAME, aspnet.WORDS),
        (health_go.NAME, health_go.WORDS),
    )
    for word in words
}
_TEXTS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    (kubernetes.NAME, kubernetes.recognizes_text),
    (aspnet.NAME, aspnet.recognizes_text),
    (prometheus.NAME, prometheus.recognizes_text),
)


def format_of_text(data: bytes) -> str | None:
    """Return the text format that the body is in; None if there is none."""
    return next((name for name, recognizes in _TEXTS if recognizes(data)), None)


def format_of_json(value: Any, media: MediaType) -> str:
    """Return the format that a decoded JSON body is in."""
    if isinstance(value, list):
        return proactive_deps.NAME if proactive_deps.recognizes(value) else plain.NAME
    if not isinstance(value, dict):
        return plain.NAME
    if media.is_health_json:
        return health_json.NAME
    if media.is_spring:
        return spring.NAME
    if "status" not in value and "outcome" not in value:
        return django.NAME if django.recognizes(value) else plain.NAME
    for name, recognizes in _OBJECTS:
        if recognizes(value):
            return name
    if status_word.recognizes(value):
        return _WORDS.get(value["status"], status_word.NAME)
    return plain.NAME
