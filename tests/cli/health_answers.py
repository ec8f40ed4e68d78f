"""Answers of health endpoints, as the tests of the command line serve them."""

from typing import Any

from watches.adapters.fake_server import Answer, by_path

POSTGRES: dict[str, Any] = {
    "name": "PostgreSQL main",
    "healthy": True,
    "health": {"state": 0, "code": 200, "latency": 4.2},
    "type": "database",
    "impact": "critical",
}
REDIS: dict[str, Any] = {
    "name": "redis",
    "healthy": False,
    "health": {"state": 2, "code": 500, "latency": 0},
    "type": "cache",
    "errorMessage": "connect ECONNREFUSED 10.0.0.7:6379",
}
LDAP: dict[str, Any] = {"name": "ldap", "healthy": True, "health": {"skipped": True}}

UP = Answer(200, {"status": "UP"})
DEGRADED = Answer(200, [POSTGRES, REDIS, LDAP])
DOWN = Answer(503, {"status": "DOWN", "components": {"db": {"status": "DOWN", "details": {"error": "no route"}}}})

# Sets the clipboard, clears the screen, changes the colour, turns the direction of the line around.
ESCAPES = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31mred\u202e"
CONTROLS = set("\x1b\x07\x9b\u202e")
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31mred\u202e"

paths = by_path({"GET /up": UP, "GET /degraded": DEGRADED, "GET /down": DOWN})
