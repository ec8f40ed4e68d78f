"""The bodies of health endpoints, as the frameworks write them. Pure: whether all is well goes in, bytes come out."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


class Body(NamedTuple):
    """What an endpoint answers."""

    status: int
    content_type: str
    content: bytes


Write = Callable[[bool], Body]
"""Takes whether all is well."""


def _json(value: Any, status: int = 200, content_type: str = JSON) -> Body:
    return Body(status, content_type, json.dumps(value).encode())


def proactive_deps(well: bool) -> Body:
    """An array of dependencies; an unhealthy one makes the service degraded."""
    cache = {"name": "redis", "type": "cache", "healthy": well, "health": {"state": 0 if well else 2, "latency": 3}}
    database = {"name": "pg-main", "type": "database", "healthy": True, "health": {"state": 0, "latency": 12}}
    return _json([database, cache if well else {**cache, "errorMessage": "connection pool exhausted"}])


def spring(well: bool) -> Body:
    """Spring Boot Actuator: 503 where a component is down."""
    database = {"status": "UP"} if well else {"status": "DOWN", "details": {"error": "too many connections"}}
    components = {"postgres": database, "diskSpace": {"status": "UP"}}
    return _json({"status": "UP" if well else "DOWN", "components": components}, 200 if well else 503)


def health_json(well: bool) -> Body:
    """The IETF draft: pass, warn, fail."""
    queue = {"status": "pass" if well else "warn", "observedValue": 8 if well else 950, "observedUnit": "ms"}
    body = {"status": "pass" if well else "warn", "checks": {"queue:responseTime": [queue]}}
    return _json(body, content_type="application/health+json")


def aspnet(well: bool) -> Body:
    """ASP.NET Core, with entries."""
    word = "Healthy" if well else "Unhealthy"
    return _json({"status": word, "entries": {"index": {"status": word, "duration": "00:00:00.0412000"}}})


def microprofile(well: bool) -> Body:
    """MicroProfile Health, as Quarkus and Open Liberty have it."""
    word = "UP" if well else "DOWN"
    return _json({"status": word, "checks": [{"name": "card network", "status": word}]}, 200 if well else 503)


def health_go(well: bool) -> Body:
    """hellofresh/health-go: it lists failures only."""
    if well:
        return _json({"status": "OK", "system": {"goroutines_count": 4}})
    return _json({"status": "Partially Available", "failures": {"smtp": "greeting timed out"}})


def details(well: bool) -> Body:
    """alexliesenfeld/health, and NestJS Terminus in a similar way."""
    word = "up" if well else "down"
    return _json({"status": word, "details": {"carrier": {"status": word}}}, 200 if well else 503)


def django(well: bool) -> Body:
    """django-health-check."""
    return _json(
        {"DatabaseBackend": "working", "Cache backend: default": "working" if well else "Unavailable: refused"}
    )


def status(well: bool) -> Body:
    """A home-grown endpoint with one word."""
    return _json({"status": "ok" if well else "error"})


def kubernetes(well: bool) -> Body:
    """An API server's /livez?verbose."""
    etcd = "[+]etcd ok" if well else "[-]etcd failed: reason withheld"
    return Body(200 if well else 500, TEXT, f"[+]ping ok\n{etcd}\nlivez check passed\n".encode())


def prometheus(well: bool) -> Body:
    """Metrics of dependencies."""
    lines = [
        'dependency_health_status{name="kafka",type="queue",impact="high"} 0',
        f'dependency_health_healthy{{name="kafka"}} {int(well)}',
        'dependency_health_latency_ms{name="kafka"} 21',
    ]
    return Body(200, "text/plain; version=0.0.4", ("\n".join(lines) + "\n").encode())


def own_shape(well: bool) -> Body:
    """A shape that only its own mapping can read."""
    return _json({"checks": {"warehouse": {"state": "green" if well else "red", "took": 0.03}}})


MAPPING = {
    "root": "checks",
    "fields": {
        "name": "$key",
        "healthy": {"field": "state", "in": ["green"], "warn": ["yellow"]},
        "latency": {"field": "took", "unit": "s"},
    },
}
"""How `own_shape` is read."""


def plain(well: bool) -> Body:
    """Any page: 2xx is up."""
    return Body(200 if well else 500, TEXT, b"hello\n")
