"""`everpoll.toml` becomes services, bounds and aliases; every mistake is one line with file, entry and key."""

from pathlib import Path
from typing import Any

import pytest

from everpoll import Backoff, Breaker, Everpoll
from everpoll.cli.configuration import configure, load, read
from everpoll.errors import BadInput
from everpoll.monitors.alerting import Alert
from everpoll.monitors.definition import Definition

WHOLE = """
[services_bounds]
shortest = "1s"
per_host = 3

[services_defaults]
every = "10s"
headers = {X-Team = "shop"}

[[services]]
name = "billing"
target = "https://billing.internal/health"
every = "2s"
timeout = 3
headers = {Authorization = "Bearer ${BILLING_TOKEN}"}
depends_on = ["PostgreSQL"]
conditions = ["latency < 300ms"]
witness = "https://example.com"
fresh = true
alert = {after = 3, delay = "1m", to = ["ops"]}
breaker = {failures = 5, cooldown = "1m"}
backoff = {initial = "2s", factor = 3, cap = "1m", jitter = 0}

[[services]]
name = "stock"
target = "tcp://stock.internal:5432"
breaker = false
backoff = false

[[services]]
name = "shapes"
target = "https://shapes.internal/status"
format = "mapping"
mapping = {root = "", fields = {name = "$key", healthy = "ok"}}

[aliases]
"pg-main" = "PostgreSQL"

[channels.ops]
type = "slack"
url = "${SLACK_URL}"
"""


class Channels:
    """Stands where alerts make channels of tables."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}

    def __call__(self, _app: Everpoll, tables: dict[str, Any]) -> None:
        self.tables |= tables


def definitions(text: str) -> dict[str, Definition]:
    app = Everpoll("memory://")
    configure(app, read(text, "everpoll.toml"), Channels())
    return dict(app.services._definitions)


def mistake(text: str) -> str:
    with pytest.raises(BadInput) as raised:
        definitions(text)
    said = str(raised.value)
    assert "\n" not in said
    return said


def test_every_option_of_a_service_can_be_written() -> None:
    billing = definitions(WHOLE)["billing"]
    assert (billing.target, billing.every_s, billing.timeout_s) == ("https://billing.internal/health", 2.0, 3.0)
    assert billing.headers == {"Authorization": "Bearer ${BILLING_TOKEN}"}
    assert (billing.depends_on, billing.conditions) == (("PostgreSQL",), ("latency < 300ms",))
    assert (billing.witness, billing.fresh) == (("https://example.com",), True)
    assert billing.alert == Alert(after=3, delay="1m", to=["ops"])
    assert billing.breaker == Breaker(5, "1m")
    assert billing.backoff == Backoff("2s", factor=3, cap="1m", jitter=0)


def test_defaults_hold_where_an_entry_says_nothing() -> None:
    found = definitions(WHOLE)
    assert list(found) == ["billing", "stock", "shapes"]
    assert (found["stock"].every_s, found["stock"].headers) == (10.0, {"X-Team": "shop"})
    assert (found["stock"].breaker, found["stock"].backoff) == (None, None)
    assert found["shapes"].mapping == {"root": "", "fields": {"name": "$key", "healthy": "ok"}}


def test_aliases_and_channels_go_where_they_belong() -> None:
    app, channels = Everpoll("memory://"), Channels()
    configure(app, read(WHOLE, "everpoll.toml"), channels)
    assert app.services._aliases == {"pg-main": "PostgreSQL"}
    assert channels.tables == {"ops": {"type": "slack", "url": "${SLACK_URL}"}}


def test_an_empty_file_says_nothing() -> None:
    assert definitions("") == {}


ONE = '[[services]]\nname = "billing"\ntarget = "https://h/"\n'
MISTAKES = [
    ("services = [", "everpoll.toml: cannot be read as TOML: "),
    ("[[service]]", "everpoll.toml: there is no table 'service'; did you mean services?"),
    ("[services]", "everpoll.toml: services: must be entries; write [[services]], with two brackets"),
    (
        "[services_bounds]\nshort = 1",
        "[services_bounds]: there is no key 'short'; did you mean shortest?",
    ),
    ('[services_bounds]\nlongest = "1s"', "everpoll.toml: [services_bounds]: longest='1s': shorter than shortest"),
    ("[services_bounds]\nper_host = 0", "everpoll.toml: [services_bounds]: per_host=0: too small"),
    ('[services_defaults]\nname = "x"', "everpoll.toml: [services_defaults]: there is no key 'name'"),
    ("aliases = 3", "everpoll.toml: [aliases]: must be a table"),
    ("[aliases]\npg = 3", "everpoll.toml: [aliases]: pg=3: must be a name"),
    ("channels = 3", "everpoll.toml: [channels]: must be a table"),
    ('[[services]]\ntarget = "https://h/"', "everpoll.toml: entry 1 of [[services]]: name is missing"),
    ("[[services]]\nname = 3", "everpoll.toml: entry 1 of [[services]]: name=3: must be text"),
    ('[[services]]\nname = "a"', "everpoll.toml: entry 1 of [[services]]: service 'a': target is missing"),
    (ONE + ONE, "everpoll.toml: entry 2 of [[services]]: name='billing': an entry before it has that name"),
    (ONE + 'url = "x"', "entry 1 of [[services]]: service 'billing': there is no key 'url'; did you mean target?"),
    (ONE + "evry = 3", "entry 1 of [[services]]: service 'billing': there is no key 'evry'; did you mean every?"),
    (ONE + 'every = "1s"', "service 'billing': every='1s': must be from 5s to 1h; [services_bounds] changes these"),
    (ONE + 'timeout = "soon"', "service 'billing': timeout='soon': cannot read 'soon'; write \"250ms\""),
    (ONE + 'format = "xml"', "service 'billing': format='xml': not a known format"),
    (ONE + 'conditions = ["odd"]', "service 'billing': condition='odd': "),
    (ONE + "alert = 3", "service 'billing': alert: 3: must be a table of after, within, lasting"),
    (ONE + "alert = {afer = 3}", "service 'billing': alert: there is no key 'afer'; did you mean after?"),
    (ONE + 'alert = {after = "x"}', "service 'billing': alert: after='x': not a whole number"),
    (
        ONE + "breaker = true",
        "breaker: True: must be a table of failures, cooldown, or breaker = false for none",
    ),
    (ONE + "backoff = {factor = 2}", "service 'billing': backoff: initial is missing"),
    (ONE + "fresh = 1979-05-27", "service 'billing': fresh=datetime.date(1979, 5, 27): must be True or False"),
    (ONE + 'headers = {"X-Key" = "s3cret"}', "service 'billing': headers: the value of X-Key is written out"),
    ('[services_defaults]\nheaders = {Cookie = "s3cret"}', "[services_defaults]: headers: the value of Cookie"),
    ('[[services]]\nname = "a"\ntarget = "https://u:s3cret@h/"', "service 'a': target: must not have a user or a pass"),
    ('[[services]]\nname = "a"\ntarget = "ftp://h/"', "service 'a': target='ftp://h/': has no known scheme"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[-40:] for _, said in MISTAKES])
def test_a_mistake_is_one_line_with_file_entry_and_key(text: str, said: str) -> None:
    found = mistake(text)
    assert found.startswith("everpoll.toml: ")
    assert said in found
    assert "s3cret" not in found
    assert "timedelta" not in found, "TOML has none"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, content, said in [
        ("missing.toml", None, "No such file or directory"),
        ("latin.toml", b"name = '\xe9'", "must be UTF-8"),
        ("huge.toml", b"#" * 10_000_001, "must have at most 10,000,000 bytes"),
    ]:
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(BadInput) as raised:
            load(file)
        assert str(raised.value) == f"{file}: {said}"


def test_a_hostile_file_ends_in_one_line_too() -> None:
    assert "cannot be read as TOML" in mistake("a = " + "[" * 100_000)
    assert "must be at most 10,000 entries" in mistake("[[services]]\n" * 10_001)
    assert len(mistake("x" * 5_000 + " = 1")) < 300
