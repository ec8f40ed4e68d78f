"""Gatus: the endpoints of its YAML configuration, as parsed by the caller.

endpoints            → services; judged by their conditions alone, as Gatus does (`format="plain"`)
external-endpoints   → heartbeats, where they have an interval
connectivity         → `witness`
everything else (user interface, storage, security, suites, maintenance …) is listed in the notes
"""

import re
from collections.abc import Mapping
from typing import Any

from everpoll.errors import BadInput
from everpoll.http.secrets import HARMLESS, TELLING
from everpoll.monitors.bounds import quoted
from everpoll.monitors.condition_text import Condition, parse_condition
from everpoll.monitors.importing.gatus_alerts import alert_of
from everpoll.monitors.importing.gatus_conditions import translated
from everpoll.monitors.importing.go_durations import duration_text, go_seconds
from everpoll.monitors.importing.imported import Collecting, Imported, every
from everpoll.policy import shown

_TRANSLATED = {"endpoints", "services", "external-endpoints", "alerting", "connectivity"}
_ENDPOINT_KEYS = {
    "enabled",
    "name",
    "group",
    "url",
    "method",
    "headers",
    "interval",
    "conditions",
    "alerts",
    "dns",
    "client",
}
_SCHEMES = ("http://", "https://", "tcp://", "tls://")
_DEFAULT_INTERVAL = "1m"
_REFERENCE = re.compile(r"\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})", re.ASCII)


def from_gatus(configuration: object) -> Imported:
    """Translate a parsed configuration; raise `BadInput` if it is not one."""
    if not isinstance(configuration, Mapping):
        raise BadInput(f"configuration={shown(configuration)}: not an object")
    endpoints = configuration.get("endpoints", configuration.get("services"))
    external = configuration.get("external-endpoints")
    if not isinstance(endpoints, list) and not isinstance(external, list):
        raise BadInput("configuration: has neither a list of endpoints nor one of external-endpoints")
    into = Collecting()
    for section in configuration:
        if section not in _TRANSLATED:
            into.note("configuration", f"{quoted(section)} is not carried over")
    alerting = configuration.get("alerting")
    alerting = alerting if isinstance(alerting, Mapping) else {}
    for provider in alerting:
        into.note("alerting", f"set up a channel named {quoted(provider)}; its settings are not carried over")
    witness = _witness(configuration.get("connectivity"), into)
    for number, endpoint in enumerate(endpoints if isinstance(endpoints, list) else ()):
        _endpoint(f"endpoints[{number}]", endpoint, alerting, witness, into)
    for number, endpoint in enumerate(external if isinstance(external, list) else ()):
        _heartbeat(f"external-endpoints[{number}]", endpoint, alerting, into)
    return into.result()


def _endpoint(about: str, endpoint: Any, alerting: Mapping[str, Any], witness: list[str], into: Collecting) -> None:
    about = _named(about, endpoint)
    if not isinstance(endpoint, Mapping) or endpoint.get("enabled") is False:
        into.note(about, "left out: " + ("it is not enabled" if isinstance(endpoint, Mapping) else "not an object"))
        return
    target = _target(about, endpoint, into)
    if target is None:
        return
    definition: dict[str, Any] = {
        "name": _name(endpoint),
        "target": target,
        "format": "plain",
        "every": _every(about, endpoint.get("interval", _DEFAULT_INTERVAL), into),
    }
    options = {
        "conditions": _conditions(about, endpoint, into),
        "headers": _headers(about, endpoint.get("headers"), into),
        "timeout": _client(about, endpoint.get("client"), into),
        "alert": alert_of(about, endpoint.get("alerts"), alerting, into),
        "witness": list(witness),
    }
    definition |= {key: value for key, value in options.items() if value}
    if into.add(about, definition):
        for key in endpoint:
            if key not in _ENDPOINT_KEYS:
                into.note(about, f"{quoted(key)} is not carried over")


def _name(endpoint: Mapping[str, Any]) -> Any:
    name, group = endpoint.get("name"), endpoint.get("group")
    return f"{group}/{name}" if isinstance(group, str) and group and isinstance(name, str) else name


def _named(about: str, endpoint: Any) -> str:
    name = _name(endpoint) if isinstance(endpoint, Mapping) else None
    return f"endpoint {quoted(name)}" if isinstance(name, str) and name else about


def _target(about: str, endpoint: Mapping[str, Any], into: Collecting) -> str | None:
    url, dns = endpoint.get("url"), endpoint.get("dns")
    if isinstance(dns, Mapping):
        return _dns_target(about, dns, into)
    if not isinstance(url, str) or not url.startswith(_SCHEMES):
        scheme = url.partition("://")[0] if isinstance(url, str) else url
        into.note(about, f"left out: everpoll cannot look at {quoted(scheme)}; it knows http, https, tcp, tls and dns")
        return None
    method = endpoint.get("method", "GET")
    if endpoint.get("body") or endpoint.get("graphql") or method not in ("GET", "HEAD"):
        into.note(about, f"left out: it sends {quoted(method)} or a body, and everpoll only asks by GET")
        return None
    if method == "HEAD":
        into.note(about, "asked by GET, not by HEAD")
    if "@" in url.partition("://")[2].partition("/")[0]:
        into.note(about, "its url has a password in it, which is stored; send it as a header, written as ${NAME}")
    if _REFERENCE.search(url):
        into.note(about, "its url refers to the environment; write the value itself")
    return url


def _dns_target(about: str, dns: Mapping[str, Any], into: Collecting) -> str | None:
    name, kind = dns.get("query-name"), dns.get("query-type")
    if not isinstance(name, str) or kind not in ("A", "AAAA"):
        into.note(about, f"left out: everpoll asks for addresses (A, AAAA), not for {quoted(kind)}")
        return None
    into.note(about, "asked of the system's resolver, not of the server in its url")
    return f"dns://{name.rstrip('.')}"


def _every(about: str, interval: Any, into: Collecting) -> str:
    try:
        return every(about, go_seconds(interval), into)
    except ValueError:
        into.note(about, f"interval {quoted(interval)} is not a duration; it becomes {_DEFAULT_INTERVAL}")
        return _DEFAULT_INTERVAL


def _conditions(about: str, endpoint: Mapping[str, Any], into: Collecting) -> list[str]:
    kept = []
    conditions, is_dns = endpoint.get("conditions"), isinstance(endpoint.get("dns"), Mapping)
    for condition in conditions if isinstance(conditions, list) else ():
        # A look at a DNS name has an address and no body. If there is no address, the service is down.
        if is_dns and condition == "[DNS_RCODE] == NOERROR":
            continue
        try:
            text = translated(
                condition.replace("[BODY]", "[IP]") if is_dns and isinstance(condition, str) else condition
            )
        except ValueError as reason:
            into.note(about, f"condition {quoted(condition)} is not carried over: {reason}")
            continue
        if _wants_a_failure(parse_condition(text)):
            into.note(about, f"condition {quoted(condition)}: everpoll counts an answer of 400 and above as down")
        kept.append(text)
    return kept


def _wants_a_failure(condition: Condition) -> bool:
    if condition.subject != "status" or condition.is_negated or condition.operator not in {"==", "in"}:
        return False
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    return any(value >= 400 for value in values)


def _headers(about: str, headers: Any, into: Collecting) -> dict[str, str]:
    kept = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        if not isinstance(name, str) or not isinstance(value, str | int | float) or isinstance(value, bool):
            into.note(about, f"header {quoted(name)} is not carried over: its value is not a text")
            continue
        # Gatus reads $NAME from the environment too, and $$ as a dollar sign.
        kept[name] = _REFERENCE.sub(
            lambda found: f"${{{found[1] or found[2]}}}" if found[1] or found[2] else "$", str(value)
        )
        if TELLING.search(name) and name.lower() not in HARMLESS and "${" not in kept[name]:
            into.note(about, f"header {quoted(name)} has its secret in plain text; write ${{NAME}}, and set it there")
    return kept


def _client(about: str, client: Any, into: Collecting) -> str | None:
    """Return the timeout; note every other option of the client as not carried over."""
    timeout = None
    for key, value in client.items() if isinstance(client, Mapping) else ():
        if key == "timeout":
            try:
                timeout = duration_text(max(go_seconds(value), 0.001))
            except ValueError:
                into.note(about, f"client.timeout {quoted(value)} is not a duration; the default of 10s holds")
        elif value not in (False, None, "", "ip"):
            into.note(about, f"client.{key} is not carried over")
    return timeout


def _witness(connectivity: Any, into: Collecting) -> list[str]:
    checker = connectivity.get("checker") if isinstance(connectivity, Mapping) else None
    target = checker.get("target") if isinstance(checker, Mapping) else None
    if connectivity is None:
        return []
    if not isinstance(target, str) or ":" not in target:
        into.note("connectivity", "not carried over: it has no checker with a target such as 1.1.1.1:53")
        return []
    return [f"tcp://{target}"]


def _heartbeat(about: str, endpoint: Any, alerting: Mapping[str, Any], into: Collecting) -> None:
    about = _named(about, endpoint)
    if not isinstance(endpoint, Mapping) or endpoint.get("enabled") is False:
        into.note(about, "left out: " + ("it is not enabled" if isinstance(endpoint, Mapping) else "not an object"))
        return
    heartbeat = endpoint.get("heartbeat")
    interval = heartbeat.get("interval") if isinstance(heartbeat, Mapping) else None
    try:
        interval_s = go_seconds(interval)
    except ValueError:
        into.note(about, "left out: it has no heartbeat interval, so everpoll could not tell when it is late")
        return
    definition: dict[str, Any] = {"name": _name(endpoint), "target": "beat:", "every": duration_text(interval_s)}
    if alert := alert_of(about, endpoint.get("alerts"), alerting, into):
        definition["alert"] = alert
    if into.add(about, definition):
        into.note(about, "a heartbeat with an address of its own: let its sender call that; a call means up")
