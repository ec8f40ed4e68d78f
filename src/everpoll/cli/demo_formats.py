"""The answers of the demo's services: each in another format, up or down by the age of the demo."""

from collections.abc import Callable

from everpoll.cli.demo_server import Answer

FLAPS_S = 4.0
"""The flapping services are up for this long, then down for as long."""


def spring(age_s: float) -> Answer:
    """Spring Boot: down every other four seconds, because of its database."""
    if _is_well(age_s):
        return Answer(200, {"status": "UP", "components": {"db": {"status": "UP"}}})
    database = {"status": "DOWN", "details": {"error": "too many connections"}}
    return Answer(503, {"status": "DOWN", "components": {"db": database}})


def listed(age_s: float) -> Answer:
    """A list of dependencies: degraded two thirds of the time, because of a cache."""
    is_well = age_s % (3 * FLAPS_S) < FLAPS_S
    index = {"name": "index", "healthy": True, "health": {"state": 0, "code": 200, "latency": 3.1}, "type": "database"}
    cache = {
        "name": "cache",
        "healthy": is_well,
        "health": {"state": 0 if is_well else 2, "latency": 0.4},
        "type": "cache",
    }
    return Answer(200, [index, cache if is_well else {**cache, "errorMessage": "connection refused"}])


def health_json(age_s: float) -> Answer:
    """The IETF draft: the disk gets full, and is emptied."""
    percent = round(60 + age_s * 4) % 40 + 60
    word = "warn" if percent > 85 else "pass"
    check = {"componentType": "system", "observedValue": percent, "observedUnit": "percent", "status": word}
    body = {"status": word, "checks": {"disk:utilization": [check]}}
    return Answer(200, body, media="application/health+json")


def aspnet(age_s: float) -> Answer:
    """ASP.NET Core: the mail relay is away a third of the time."""
    is_well = age_s % 9 < 6
    relay = {"status": "Healthy" if is_well else "Unhealthy", "duration": "00:00:00.0123"}
    if not is_well:
        relay["description"] = "the relay does not answer"
    body = {"status": relay["status"], "totalDuration": "00:00:00.0150", "entries": {"relay": relay}}
    return Answer(200 if is_well else 503, body)


def kubernetes(age_s: float) -> Answer:
    """The lines of `/readyz?verbose`: etcd answers late now and then."""
    is_well = age_s % 11 < 8
    etcd = "[+]etcd ok" if is_well else "[-]etcd failed: context deadline exceeded"
    end = "readyz check passed" if is_well else "readyz check failed"
    return Answer(200 if is_well else 500, f"[+]ping ok\n{etcd}\n{end}\n", media="text/plain")


def prometheus(age_s: float) -> Answer:
    """Metrics about two dependencies, one of which flaps."""
    state = 0 if _is_well(age_s) else 1
    lines = [f'dependency_health_status{{name="{name}"}} {value}' for name, value in (("ledger", 0), ("rates", state))]
    return Answer(200, "\n".join(lines) + "\n", media="text/plain; version=0.0.4")


def plain(_age_s: float) -> Answer:
    """A page with nothing but its HTTP status."""
    return Answer(200, "hello\n", media="text/plain")


FORMATS: dict[str, Callable[[float], Answer]] = {
    "shop": spring,
    "search": listed,
    "storage": health_json,
    "mail": aspnet,
    "cluster": kubernetes,
    "payments": prometheus,
    "website": plain,
}
"""By the name of the service, which is its path, too."""


def _is_well(age_s: float) -> bool:
    return age_s % (2 * FLAPS_S) < FLAPS_S
