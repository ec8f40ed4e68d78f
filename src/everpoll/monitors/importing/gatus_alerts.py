"""Gatus alerts: translates the alerts of one endpoint into one rule of everpoll with several channels."""

from collections.abc import Mapping
from typing import Any

from everpoll.monitors.bounds import quoted
from everpoll.monitors.importing.go_durations import duration_text, go_seconds
from everpoll.monitors.importing.imported import Collecting

_DEFAULTS = {"failure-threshold": 3, "success-threshold": 2}
_TRANSLATED = {"type", "enabled", "failure-threshold", "success-threshold", "minimum-reminder-interval"}
# everpoll always sends a message when an incident is over.
_WITHOUT_EFFECT = {"send-on-resolved"}
_SHORTEST_REMINDER_S = 60.0


def alert_of(about: str, alerts: Any, alerting: Mapping[str, Any], into: Collecting) -> dict[str, Any]:
    """Return the arguments of `Alert` for the alerts of one endpoint; nothing if it has none."""
    given = alerts if isinstance(alerts, list) else []
    rules = [_with_defaults(alert, alerting) for alert in given if isinstance(alert, Mapping)]
    rules = [rule for rule in rules if rule.get("enabled") is not False and isinstance(rule.get("type"), str)]
    if not rules:
        return {}
    for rule in rules:
        for key in rule:
            if key not in _TRANSLATED | _WITHOUT_EFFECT:
                into.note(about, f"{quoted(key)} of its alert to {quoted(rule['type'])} is not carried over")
    afters = {_count(rule, "failure-threshold") for rule in rules}
    recovers = {_count(rule, "success-threshold") for rule in rules}
    if len(afters) > 1 or len(recovers) > 1:
        into.note(about, "its alerts have several thresholds; the lowest ones hold for all of them")
    alert: dict[str, Any] = {"after": min(afters), "recover": min(recovers)}
    if reminder := _reminder(about, rules, into):
        alert["reminder"] = reminder
    return alert | {"to": list(dict.fromkeys(str(rule["type"]) for rule in rules))}


def _with_defaults(alert: Mapping[str, Any], alerting: Mapping[str, Any]) -> dict[str, Any]:
    kind = alert.get("type")
    provider = alerting.get(kind) if isinstance(kind, str) else None
    defaults = provider.get("default-alert") if isinstance(provider, Mapping) else None
    return {**(defaults if isinstance(defaults, Mapping) else {}), **alert}


def _count(rule: Mapping[str, Any], key: str) -> int:
    value = rule.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else _DEFAULTS[key]


def _reminder(about: str, rules: list[dict[str, Any]], into: Collecting) -> str | None:
    given = [rule["minimum-reminder-interval"] for rule in rules if rule.get("minimum-reminder-interval")]
    try:
        shortest_s = min((go_seconds(value) for value in given), default=0.0)
    except ValueError:
        into.note(about, "its minimum-reminder-interval is not a duration, and not carried over")
        return None
    return duration_text(max(shortest_s, _SHORTEST_REMINDER_S)) if shortest_s else None
