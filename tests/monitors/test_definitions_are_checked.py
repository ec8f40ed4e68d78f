"""What `app.service` is given is checked where it enters, in words, and survives JSON without a secret in sight."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everpoll import Backoff, Breaker
from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.definition import Change, change, decode, encode, fetch_key
from everpoll.monitors.options import Bounds, define
from everpoll.monitors.targets import endpoint_of, shown_target

from .scenes import service

reproducible = settings(derandomize=True, deadline=None, max_examples=300)


def refused(name: Any, target: Any, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        define(name, target, options)  # type: ignore[arg-type]
    return str(caught.value)


def test_defaults_are_those_of_the_reference() -> None:
    plain = service()
    assert (plain.every_s, plain.timeout_s, plain.format) == (30.0, 10.0, "auto")
    assert plain.breaker == Breaker(10, "5m")
    assert plain.backoff == Backoff("1s", factor=2, cap="5m", jitter=0)
    assert plain.alert == Alert(after=2, recover=1)
    assert (plain.headers, plain.depends_on, plain.witness, plain.fresh) == ({}, (), (), False)


def test_a_definition_survives_json() -> None:
    full = service(
        every="5m",
        format="mapping",
        mapping={"root": "items", "fields": {"name": "$key", "healthy": {"field": "s", "equals": "ok"}}},
        depends_on=["db", "cache", "db"],
        timeout="3s",
        headers={"Authorization": "Bearer ${TOKEN}"},
        breaker=Breaker(3, "1m"),
        backoff=None,
        alert=Alert(after=3, within=5, recover=2, delay="1m", reminder="1h", to=["ops", "mail"]),
        conditions=["latency < 500ms"],
        fresh=True,
        witness="https://example.com",
    )
    assert decode(encode(full)) == full
    assert full.depends_on == ("db", "cache")
    assert full.witness == ("https://example.com",)
    assert decode(encode(service())) == service()


def test_fields_of_later_releases_are_ignored_and_missing_ones_have_defaults() -> None:
    fields = json.loads(encode(service(every="5s")))
    assert decode(json.dumps(fields | {"of_tomorrow": [1]})) == service(every="5s")
    small = {name: fields[name] for name in ("name", "target", "fetch")}
    assert decode(json.dumps(small)) == service()


@pytest.mark.parametrize("every", ["5s", "30s", "1h", 5, 3600])
def test_intervals_within_the_bounds_pass(every: Any) -> None:
    assert 5 <= service(every=every).every_s <= 3600


@pytest.mark.parametrize("every", ["4.9s", "1ms", "61m", "1d", 4])
def test_intervals_beyond_the_bounds_are_refused_with_the_bounds(every: Any) -> None:
    message = refused("billing", "https://a.example", every=every)
    assert message.startswith("service 'billing': every=")
    assert "must be from 5s to 1h" in message
    assert "configure(" in message


def test_the_bounds_can_be_changed() -> None:
    bounds = Bounds("100ms", "1d", per_host=20)
    assert define("a", "https://a.example", {"every": "100ms"}, bounds).every_s == 0.1
    assert define("a", "https://a.example", {"every": "1d"}, bounds).every_s == 86_400
    with pytest.raises(BadInput, match="shorter than shortest"):
        Bounds("5s", "1s")
    with pytest.raises(BadInput, match="per_host"):
        Bounds(per_host=0)


def test_a_heartbeat_may_be_rare() -> None:
    assert service(target="beat:", every="7d", timeout="1h").every_s == 7 * 86_400


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": "soon"}, "every='soon'"),
        ({"every": None}, "every=None"),
        ({"format": 3}, "format=3: not a known format"),
        ({"mapping": "x"}, "mapping='x': must be a dict"),
        ({"mapping": {"a": object()}}, "must be JSON"),
        ({"mapping": {"a": "x" * 200_000}}, "must have at most 100,000"),
        ({"depends_on": "db"}, 'write ["database"]'),
        ({"depends_on": [""]}, "must be texts of 1 to 100"),
        ({"depends_on": ["billing"]}, "must not depend on itself"),
        ({"depends_on": [str(n) for n in range(1_001)]}, "must be at most 1,000"),
        ({"timeout": 0}, "timeout=0"),
        ({"timeout": "11m"}, "must be at most 10m"),
        ({"headers": ["a"]}, "must be at most 50 names with values"),
        ({"headers": {"a b": "c"}}, "is not a valid name of a header"),
        ({"headers": {"a": 7}}, "the value of a must be text"),
        ({"headers": {"a": "x\r\ny"}}, "the value of a must be text of one line"),
        ({"headers": {"a": "${1X}"}}, "has a broken reference"),
        ({"breaker": 10}, 'breaker=10: write Breaker(10, "5m")'),
        ({"backoff": "1s"}, "backoff='1s': write Backoff("),
        ({"alert": "ops"}, "alert='ops': write Alert("),
        ({"conditions": "status == 200"}, "conditions: must be texts"),
        ({"fresh": 1}, "fresh=1: must be True or False"),
        ({"witness": "beat:"}, "a heartbeat cannot be asked"),
        ({"witness": ["nowhere"]}, "witness: "),
        ({"evry": "5s"}, "there is no option 'evry'; there are alert, backoff"),
    ],
)
def test_every_bad_option_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    message = refused("billing", "https://a.example", **options)
    assert message.startswith("service 'billing': ")
    assert words in message


@pytest.mark.parametrize("name", ["", " ", None, 7, "x" * 101, "a\nb", "\ud800"])
def test_bad_names_are_refused(name: Any) -> None:
    assert "a name must have 1 to 100 printable characters" in refused(name, "https://a.example")


@pytest.mark.parametrize(
    ("target", "scheme", "host", "port"),
    [
        ("https://Billing.internal/health?x=1", "https", "billing.internal", 443),
        ("http://127.0.0.1:8080", "http", "127.0.0.1", 8080),
        ("http://[::1]:9/h", "http", "::1", 9),
        ("https://bücher.example/", "https", "xn--bcher-kva.example", 443),
        ("tcp://db.internal:5432", "tcp", "db.internal", 5432),
        ("tls://mail.example:465", "tls", "mail.example", 465),
        ("dns://example.com", "dns", "example.com", None),
        ("beat:", "beat", "", None),
        ("beat:0123456789abcdef", "beat", "", None),
    ],
)
def test_targets_are_read_by_their_scheme(target: str, scheme: str, host: str, port: int | None) -> None:
    endpoint = endpoint_of(target)
    assert (endpoint.scheme, endpoint.host, endpoint.port) == (scheme, host, port)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "billing",
        "ftp://a",
        "http://",
        "http:///x",
        "https://a:0/",
        "https://a:99999/",
        "http://[::1",
        "tcp://a",
        "tcp://a:1/x",
        "tls://user@a:1",
        "dns://",
        "dns://a..b",
        "beat:short",
        "https://a b/",
        "https://a/\n",
        "https://" + "a" * 300,
        "https://a/" + "x" * 9_000,
        None,
        7,
        "https://\ud800/",
    ],
)
def test_bad_targets_are_refused_with_what_to_write(target: Any) -> None:
    message = refused("billing", target)
    assert message.startswith("service 'billing': target")


def test_no_repr_and_no_message_has_a_secret() -> None:
    secret = "s3cr3t"  # noqa: S105 - the subject
    full = service(
        target=f"https://user:{secret}@a.example/health?token={secret}", headers={"Authorization": f"Bearer {secret}"}
    )
    assert secret not in repr(full)
    assert secret not in str(full)
    assert secret not in shown_target(f"beat:{secret}{secret}{secret}")
    for target in (
        f"ftp://user:{secret}@a?{secret}",
        f"tcp://user:{secret}@a:1",
        f"{secret}:{secret}",
        f"http://{secret}:x@",
    ):
        assert secret not in refused("billing", target)
    assert secret not in refused("billing", "https://a.example", headers={"Authorization": f"{secret}\n"})
    assert secret not in refused("billing", "https://a.example", witness=f"https://u:{secret}@:99999/")


def test_references_to_the_environment_stay_references() -> None:
    assert service(headers={"X-Key": "a ${KEY} b ${OTHER_2}"}).headers == {"X-Key": "a ${KEY} b ${OTHER_2}"}


def test_two_services_share_a_request_by_method_url_and_headers() -> None:
    one = service("one", "https://a.example/h#top", headers={"X-Key": "1"})
    same = service("two", "https://a.example/h", headers={"x-key": "1"}, every="1h", timeout="3s")
    assert fetch_key(one) == fetch_key(same)
    assert one.fetch == same.fetch
    for other in (
        service("three", "https://a.example/h"),
        service("four", "https://a.example/i", headers={"X-Key": "1"}),
    ):
        assert fetch_key(other) != fetch_key(one)


def test_what_a_replacement_means() -> None:
    plain = service()
    assert change(plain, service()) is Change.SAME
    assert change(plain, service(alert=Alert(after=3))) is Change.SETTINGS
    assert change(plain, service(every="5s")) is Change.INTERVAL
    assert change(plain, service(target="https://other.example", every="5s")) is Change.TARGET
    assert change(plain, service(headers={"X-Key": "1"})) is Change.TARGET
    beats = service(target="beat:")
    assert change(beats, service(target="beat:", timeout="1m")) is Change.INTERVAL


def test_another_way_of_reading_reads_an_unchanged_body_again() -> None:
    plain = service()
    assert plain.reading == service(every="5s").reading
    assert plain.reading != service(format="plain").reading
    assert plain.reading != service(mapping={"root": "", "fields": {"name": "n", "healthy": "h"}}).reading


@reproducible
@given(st.text(max_size=60) | st.from_regex(r"(https?|tcp|tls|dns|beat)://?[^ ]{0,40}", fullmatch=True))
def test_any_text_is_a_target_or_is_refused_in_words(text: str) -> None:
    try:
        endpoint = endpoint_of(text)
    except BadInput:
        return
    assert endpoint.is_heartbeat or endpoint.host
    assert decode(encode(service(target=text))).target.lower() == text.lower()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after": 0}, "after=0"),
        ({"after": 3, "within": 2}, "within=2"),
        ({"within": 61}, "within=61"),
        ({"within": 5, "lasting": "5m"}, "write one of them"),
        ({"lasting": 0}, "lasting=0"),
        ({"recover": 0}, "recover=0"),
        ({"delay": "soon"}, "delay='soon'"),
        ({"reminder": "10s"}, "must be at least 1m"),
        ({"to": "ops"}, 'write to=["ops"]'),
        ({"to": [7]}, 'write to=["ops"]'),
        ({"to": [str(n) for n in range(21)]}, "at most 20 channels"),
    ],
)
def test_bad_alerts_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Alert(**options)
    assert words in str(caught.value)


def test_an_alert_shows_what_it_was_made_of() -> None:
    assert repr(Alert(to=["ops"])) == "Alert(after=2, recover=1, delay='0s', to=['ops'])"
    full = Alert(after=3, within=5, recover=2, delay="1m", reminder="1h", to=("ops", "ops"))
    assert repr(full) == "Alert(after=3, within=5, recover=2, delay='1m', reminder='1h', to=['ops'])"
    assert Alert(lasting="5m").after == 1
