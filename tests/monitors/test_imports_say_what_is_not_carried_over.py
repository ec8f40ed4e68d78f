"""Manifests of Depsera and configurations of Gatus become services, and whatever does not is told in words."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.importing import Imported, from_depsera, from_gatus
from everpoll.monitors.importing.gatus_conditions import translated
from everpoll.monitors.importing.imported import check

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

MANIFEST = {
    "version": 1,
    "services": [
        {
            "key": "payment-api",
            "name": "Payment API",
            "health_endpoint": "https://payment.example.com/health",
            "description": "Processes payments",
            "metrics_endpoint": "https://payment.example.com/metrics",
            "poll_interval_ms": 15000,
            "schema_config": {
                "root": "components",
                "fields": {"name": "$key", "healthy": {"field": "status", "equals": "UP"}},
            },
        },
        {"key": "orders", "name": "Orders", "health_endpoint": "https://orders.example.com/health"},
        {
            "key": "node",
            "name": "Node Exporter",
            "health_endpoint": "https://node.example.com/metrics",
            "health_endpoint_format": "prometheus",
            "poll_interval_ms": 2000,
            "schema_config": '{"metrics":{"up":"healthy"},"labels":{"instance":"name"}}',
        },
        {"key": "otel", "name": "Telemetry", "health_endpoint_format": "otlp", "poll_interval_ms": 0},
        {
            "key": "old",
            "name": "Old",
            "health_endpoint": "https://old.example.com",
            "schema_config": {"status_path": "s"},
        },
        {"key": "orders-2", "name": "Orders", "health_endpoint": "https://orders2.example.com/health"},
        {"key": "broken", "name": "Broken"},
        "nonsense",
    ],
    "aliases": [
        {"alias": "pg-main", "canonical_name": "PostgreSQL"},
        {"alias": "pg-main", "canonical_name": "MySQL"},
        {"alias": ""},
    ],
    "canonical_overrides": [{"canonical_name": "PostgreSQL", "contact": {"slack": "#db"}, "impact": "critical"}],
    "associations": [
        {
            "service_key": "payment-api",
            "dependency_name": "orders",
            "linked_service_key": "shop/orders",
            "association_type": "api_call",
        },
        {"service_key": "payment-api", "dependency_name": "pg", "linked_service_key": "data/pg"},
        {"service_key": "otel", "dependency_name": "pg", "linked_service_key": "data/pg"},
    ],
    "colour": "red",
}


def test_a_manifest_of_depsera() -> None:
    imported = from_depsera(MANIFEST)
    assert imported.services == (
        {
            "name": "Payment API",
            "target": "https://payment.example.com/health",
            "format": "mapping",
            "mapping": {
                "root": "components",
                "fields": {"name": "$key", "healthy": {"field": "status", "equals": "UP"}},
            },
            "every": "15s",
            "depends_on": ["Orders"],
        },
        {"name": "Orders", "target": "https://orders.example.com/health", "format": "proactive-deps"},
        {
            "name": "Node Exporter",
            "target": "https://node.example.com/metrics",
            "format": "prometheus",
            "mapping": {"metrics": {"up": "healthy"}, "labels": {"instance": "name"}},
            "every": "5s",
        },
        {"name": "Old", "target": "https://old.example.com", "format": "auto"},
        {"name": "orders-2", "target": "https://orders2.example.com/health", "format": "proactive-deps"},
    )
    assert imported.aliases == {"pg-main": "PostgreSQL"}
    assert imported.notes == (
        'manifest: "colour" is not known, and not carried over',
        'service "Payment API": its description is not carried over',
        'service "Payment API": its metrics endpoint is not carried over',
        'service "Node Exporter": an interval of 2s becomes 5s',
        'service "Telemetry": left out: it pushes its health by OTLP; use a heartbeat, or an endpoint to look at',
        (
            'service "Old": its schema_config is not carried over, and the format is recognized: '
            "mapping: 'status_path' is not known; write root, fields"
        ),
        'services[5]: another service is named "Orders", so this one is named by its key "orders-2"',
        (
            "service \"Broken\": left out: service 'Broken': target=None: must be text; write "
            '"https://host/health", "tcp://host:5432", "tls://host:443", "dns://name" or "beat:"'
        ),
        "services[7]: left out: not an object",
        'aliases[1]: left out: "pg-main" stands for "PostgreSQL" already',
        "aliases[2]: left out: needs alias and canonical_name",
        (
            'canonical_overrides[0]: contact and impact for "PostgreSQL" is not carried over; '
            "everpoll shows what the services report"
        ),
        'associations[1]: left out: "pg" of "Payment API" leads to "data/pg", which is not imported',
        'associations[2]: left out: the service "otel" is not imported',
    )


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ([], "manifest=[]: not an object"),
        ({}, "manifest: version=None; only version 1 is known"),
        ({"version": 2}, "manifest: version=2; only version 1 is known"),
        ({"version": 1, "services": {}}, "manifest: services={}; must be a list"),
    ],
)
def test_what_is_not_a_manifest_is_refused(manifest: Any, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        from_depsera(manifest)
    assert str(refused.value) == words


GATUS = {
    "alerting": {
        "slack": {
            "webhook-url": "https://hooks.example.com/T0/SECRET",
            "default-alert": {"failure-threshold": 5, "send-on-resolved": True, "description": "health check failed"},
        }
    },
    "connectivity": {"checker": {"target": "1.1.1.1:53", "interval": "60s"}},
    "storage": {"type": "sqlite"},
    "endpoints": [
        {
            "name": "back-end",
            "group": "core",
            "url": "https://example.org/health",
            "interval": "5m",
            "headers": {"Authorization": "Bearer $TOKEN", "X-Tenant": 7, "Cookie": "session=SECRET"},
            "client": {"timeout": "2.5s", "insecure": True, "ignore-redirect": False},
            "conditions": [
                "[STATUS] == 200",
                "[BODY].status == UP",
                "[RESPONSE_TIME] < 300",
                "[CERTIFICATE_EXPIRATION] > 48h",
                "[DOMAIN_EXPIRATION] > 720h",
            ],
            "alerts": [
                {"type": "slack", "minimum-reminder-interval": "4h"},
                {"type": "pagerduty", "failure-threshold": 3, "success-threshold": 5},
                {"type": "email", "enabled": False},
            ],
            "ui": {"hide-url": True},
        },
        {"name": "db", "url": "tcp://db.example.org:5432", "interval": "2s", "conditions": ["[CONNECTED] == true"]},
        {
            "name": "name-server",
            "url": "8.8.8.8",
            "dns": {"query-name": "example.com.", "query-type": "A"},
            "conditions": ["[DNS_RCODE] == NOERROR", "[BODY] == 93.184.216.34"],
        },
        {"name": "mail", "url": "8.8.8.8", "dns": {"query-name": "example.com", "query-type": "MX"}},
        {"name": "ping", "url": "icmp://example.org", "conditions": ["[CONNECTED] == true"]},
        {"name": "graph", "url": "https://example.org/graphql", "method": "POST", "graphql": True, "body": "{ a }"},
        {"name": "off", "url": "https://example.org", "enabled": False},
        {
            "name": "login",
            "url": "https://example.org/me",
            "method": "HEAD",
            "conditions": ["[STATUS] == any(200, 401)"],
        },
        {"name": "db", "url": "tcp://db2.example.org:5432"},
    ],
    "external-endpoints": [
        {"name": "backup", "group": "nightly", "token": "SECRET", "heartbeat": {"interval": "26h"}},
        {"name": "pushed", "token": "SECRET"},
    ],
}


def test_a_configuration_of_gatus() -> None:
    imported = from_gatus(GATUS)
    witness = ["tcp://1.1.1.1:53"]
    assert imported.services == (
        {
            "name": "core/back-end",
            "target": "https://example.org/health",
            "format": "plain",
            "every": "5m",
            "conditions": ["status == 200", 'json.status == "UP"', "latency < 300ms", "certificate > 48h"],
            "headers": {"Authorization": "Bearer ${TOKEN}", "X-Tenant": "7", "Cookie": "session=SECRET"},
            "timeout": "2500ms",
            "alert": {"after": 3, "recover": 2, "reminder": "4h", "to": ["slack", "pagerduty"]},
            "witness": witness,
        },
        {
            "name": "db",
            "target": "tcp://db.example.org:5432",
            "format": "plain",
            "every": "5s",
            "conditions": ["connected == true"],
            "witness": witness,
        },
        {
            "name": "name-server",
            "target": "dns://example.com",
            "format": "plain",
            "every": "1m",
            "conditions": ['ip == "93.184.216.34"'],
            "witness": witness,
        },
        {
            "name": "login",
            "target": "https://example.org/me",
            "format": "plain",
            "every": "1m",
            "conditions": ["status in [200, 401]"],
            "witness": witness,
        },
        {"name": "nightly/backup", "target": "beat:", "every": "26h"},
    )
    assert imported.notes == (
        'configuration: "storage" is not carried over',
        'alerting: set up a channel named "slack"; its settings are not carried over',
        (
            'endpoint "core/back-end": condition "[DOMAIN_EXPIRATION] > 720h" is not carried over: '
            "everpoll has no counterpart of [DOMAIN_EXPIRATION]"
        ),
        'endpoint "core/back-end": header "Cookie" has its secret in plain text; write ${NAME}, and set it there',
        'endpoint "core/back-end": client.insecure is not carried over',
        'endpoint "core/back-end": "description" of its alert to "slack" is not carried over',
        'endpoint "core/back-end": its alerts have several thresholds; the lowest ones hold for all of them',
        'endpoint "core/back-end": "ui" is not carried over',
        'endpoint "db": an interval of 2s becomes 5s',
        'endpoint "name-server": asked of the system\'s resolver, not of the server in its url',
        'endpoint "mail": left out: everpoll asks for addresses (A, AAAA), not for "MX"',
        'endpoint "ping": left out: everpoll cannot look at "icmp"; it knows http, https, tcp, tls and dns',
        'endpoint "graph": left out: it sends "POST" or a body, and everpoll only asks by GET',
        'endpoint "off": left out: it is not enabled',
        'endpoint "login": asked by GET, not by HEAD',
        'endpoint "login": condition "[STATUS] == any(200, 401)": everpoll counts an answer of 400 and above as down',
        'endpoint "db": left out: there is a service named "db" already',
        'endpoint "nightly/backup": a heartbeat with an address of its own: let its sender call that; a call means up',
        'endpoint "pushed": left out: it has no heartbeat interval, so everpoll could not tell when it is late',
    )
    assert "SECRET" not in "".join(imported.notes)


@pytest.mark.parametrize("configuration", [[], None, {}, {"endpoints": {}}, {"endpoints": "x", "suites": []}])
def test_what_is_not_a_configuration_is_refused(configuration: Any) -> None:
    with pytest.raises(BadInput, match="configuration"):
        from_gatus(configuration)


CONDITIONS = {
    "[STATUS] == 200": "status == 200",
    "[STATUS] != 500": "status != 500",
    "200 == [STATUS]": "status == 200",
    "300 > [STATUS]": "status < 300",
    "[status] <= 299": "status <= 299",
    "[STATUS] == any(200, 429)": "status in [200, 429]",
    "[STATUS] != any(500, 503)": "status not in [500, 503]",
    "[CONNECTED] == true": "connected == true",
    "[RESPONSE_TIME] < 500": "latency < 500ms",
    "[RESPONSE_TIME] < 2000": "latency < 2s",
    "[RESPONSE_TIME] < 1.5s": "latency < 1500ms",
    "[IP] == 127.0.0.1": 'ip == "127.0.0.1"',
    "[IP] == pat(192.168.*)": 'ip matches "192.168.*"',
    "[IP] == any(1.1.1.1, 1.0.0.1)": 'ip in ["1.1.1.1", "1.0.0.1"]',
    "[BODY] == OK": 'body == "OK"',
    "[BODY] == pat(*<h1>Welcome</h1>*)": 'body matches "*<h1>Welcome</h1>*"',
    "[BODY] != pat(*error*)": 'body not matches "*error*"',
    "[BODY].user.name == john": 'json.user.name == "john"',
    "[BODY].data[0].id == 1": "json.data[0].id == 1",
    "[BODY][0].id == 1": "json[0].id == 1",
    "[BODY].some key == 1": 'json["some key"] == 1',
    "[BODY].active == true": "json.active == true",
    "[BODY].age >= 18": "json.age >= 18",
    "[BODY].name == pat(john*)": 'json.name matches "john*"',
    "[BODY].id == any(1, 2)": "json.id in [1, 2]",
    '[BODY].name == "john"': 'json.name == "john"',
    "len([BODY].items) > 0": "len(json.items) > 0",
    "len([BODY]) == 5": "len(json) == 5",
    "has([BODY].errors) == false": "json.errors missing",
    "has([BODY].data) == true": "json.data exists",
    "has([BODY]) == true": 'body != ""',
    "[CERTIFICATE_EXPIRATION] > 48h": "certificate > 48h",
    "[HEADER].Content-Type == application/json": 'header["content-type"] == "application/json"',
}
NOT_TRANSLATED = {
    "[DNS_RCODE] == NOERROR": "everpoll has no counterpart of [DNS_RCODE]",
    "[CONTEXT].user == 1": "everpoll has no counterpart of [CONTEXT].user",
    "age([BODY].time) < 1h": "everpoll has no counterpart of age([BODY].time)",
    "[BODY].items[*].ok == true": "cannot be followed",
    "[IP] == pat(1?2)": "in patterns, everpoll knows only *",
    "[STATUS] == pat(2*)": "matches is not an operator here",
    "[STATUS] == [BODY].code": "it does not compare a part of the answer with a value",
    "1 == 1": "it does not compare a part of the answer with a value",
    "[STATUS]": "it has no operator",
    "[RESPONSE_TIME] == 5": "== is not an operator here",
    "[RESPONSE_TIME] < fast": "not a duration",
    "[STATUS] < any(1, 2)": "any() is compared with == or != only",
    "has([BODY].x) == 1": "has() is compared with true or false only",
    "[BODY] == any(a, b)": "the whole body is compared with one text at a time",
    "x" * 501: "at most 500 characters",
}


@pytest.mark.parametrize(("theirs", "ours"), CONDITIONS.items())
def test_a_condition_of_gatus_becomes_one_of_everpoll(theirs: str, ours: str) -> None:
    assert translated(theirs) == ours


@pytest.mark.parametrize(("theirs", "words"), NOT_TRANSLATED.items())
def test_a_condition_that_means_nothing_here_says_why(theirs: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        translated(theirs)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(
        ["https://example.org/x", "tcp://a:1", "30s", "1h", "GET", "slack", "A", "[STATUS] == 200", "a", "b"]
    )
)
DATA = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("key", "name", "health_endpoint", "poll_interval_ms", "schema_config", "health_endpoint_format"),
                    *("alias", "canonical_name", "service_key", "linked_service_key", "url", "group", "interval"),
                    *(
                        "conditions",
                        "alerts",
                        "headers",
                        "client",
                        "timeout",
                        "dns",
                        "query-name",
                        "query-type",
                        "type",
                    ),
                    *(
                        "method",
                        "heartbeat",
                        "failure-threshold",
                        "default-alert",
                        "minimum-reminder-interval",
                        "slack",
                    ),
                ]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


def check_imported(imported: Imported) -> None:
    names = [service["name"] for service in imported.services]
    assert len(set(names)) == len(names)
    assert len(set(imported.notes)) == len(imported.notes)
    for service in imported.services:
        check(service)
        json.dumps(service)


@settings(reproducible, max_examples=300)
@given(st.lists(DATA, max_size=4), DATA, DATA, DATA)
def test_any_manifest_is_translated(services: list[Any], aliases: Any, overrides: Any, associations: Any) -> None:
    manifest = {"version": 1, "services": services, "aliases": aliases, "canonical_overrides": overrides}
    with suppress(BadInput):
        check_imported(from_depsera({**manifest, "associations": associations}))


@settings(reproducible, max_examples=300)
@given(st.lists(DATA, max_size=4), st.lists(DATA, max_size=2), DATA, DATA)
def test_any_configuration_is_translated(endpoints: list[Any], external: list[Any], alerting: Any, other: Any) -> None:
    configuration = {"endpoints": endpoints, "external-endpoints": external, "alerting": alerting}
    with suppress(BadInput):
        check_imported(from_gatus({**configuration, "connectivity": other}))


@settings(reproducible, max_examples=500)
@given(st.text('[]STAUBODY.x01 =!<>()lenhaspatny*,"', max_size=40) | st.text(max_size=20))
def test_any_condition_is_translated_or_refused(theirs: str) -> None:
    with suppress(ValueError):
        translated(theirs)
