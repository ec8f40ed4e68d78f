"""`everpoll services list` and `show`: what is stored, at any width, without control characters and secrets."""

import json
import re
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.health_answers import CONTROLS, ESCAPES, SHOWN
from cli.monitored import Monitored, dependency, looks
from cli.shell import Shell
from everpoll.cli.sparkline import BARS, sparkline
from everpoll.monitors.options import define
from everpoll.policy.rollup import HealthWord
from everpoll.stores.health import LookPoint

UP: list[HealthWord] = ["up"]
STATUSES = ("up", "degraded", "down", "unknown")


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    return Monitored(f"sqlite:///{tmp_path}/tasks.db")


def test_an_empty_list_says_how_to_add_a_service(shell: Shell, database: Monitored) -> None:
    database.publish()
    ended = shell("services", "list", "--url", database.url)
    assert ended.out == "No services. Add one: everpoll services add NAME URL\n"


@pytest.fixture
def fleet(database: Monitored) -> Monitored:
    now = time.time()
    names = ("billing", "shop", "stock")
    database.publish(*(define(name, f"https://{name}.internal/health", {}) for name in names))
    database.record(*looks("billing", [*UP * 8, "down", "down"]))
    database.record(*looks("shop", UP * 3, latency_ms=12.5))
    error = "HTTP 503, db: no route to host"
    printed = {"looked_at": now, "judged_at": now, "answered_at": now, "changed_at": now - 7200, "due_at": now + 3600}
    database.remember("billing", status="down", error=error, http_status=503, **printed)
    database.remember("shop", status="up", http_status=200, latency_ms=12.5, **printed)
    return database


def test_the_list_has_a_line_for_each_service(shell: Shell, fleet: Monitored) -> None:
    shell.columns(140)
    lines = shell("services", "list", "--url", fleet.url).out.splitlines()
    assert " ".join(lines[0].split()) == "service status for latency 24 h last looks next look error"
    billing, shop, stock = lines[2:5]
    assert re.match(r"billing +down +2h\w* +80\.00 % ", billing)
    assert f"{BARS[2] * 8}xx" in billing
    assert "HTTP 503, db: no route to host" in billing
    assert re.match(r"shop +up +2h\w* +12\.5ms +100 % ", shop)
    assert stock.split()[:2] == ["stock", "unknown"]
    assert lines[6] == "3 services: 1 up, 1 unknown, 1 down"


def test_the_list_can_be_asked_for_one_status(shell: Shell, fleet: Monitored) -> None:
    found = shell.json("services", "list", "--status", "down", "--url", fleet.url)
    assert [one["name"] for one in found] == ["billing"]
    assert shell("services", "list", "--status", "stale", "--url", fleet.url).out == "No service is stale.\n"


def test_json_is_an_array_with_every_field(shell: Shell, fleet: Monitored) -> None:
    billing = shell.json("services", "list", "--url", fleet.url)[0]
    assert {"name", "target", "status", "healthy", "since", "looked_at", "due_at", "latency_ms", "error"} < set(billing)
    assert {"breaker", "failures", "warnings", "http_status", "uptime_24h", "looks", "muted_until"} < set(billing)
    assert (billing["healthy"], billing["uptime_24h"]["percent"]) == (False, 80.0)
    assert [one["status"] for one in billing["looks"]] == ["down"] * 2 + ["up"] * 8


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_every_width_has_names_statuses_and_errors(shell: Shell, fleet: Monitored, columns: int) -> None:
    shell.columns(columns)
    ended = shell("services", "list", "--url", fleet.url)
    assert max(map(len, ended.out.splitlines())) <= columns
    for word in ("billing", "shop", "stock", "down", "unknown", "HTTP 503, db:"):
        assert word in ended.words


@pytest.mark.parametrize("columns", range(60, 170, 10))
def test_no_width_drops_a_name_or_cuts_a_figure(shell: Shell, database: Monitored, columns: int) -> None:
    """Long words stand in every column: names, marks, spans, percentages, what the next look waits for."""
    now = time.time()
    names = ("a-name-that-is-long-enough-to-be-folded", "orders", "web")
    database.publish(*(define(name, "https://h/", {}) for name in names))
    for name, waits in zip(names, ("retry_after", "backoff", "interval"), strict=True):
        database.record(*looks(name, [*UP * 12, "down"], latency_ms=1.234))
        printed = {
            "looked_at": now,
            "judged_at": now,
            "answered_at": now,
            "changed_at": now - 7299,
            "latency_ms": 1.234,
        }
        database.remember(name, status="degraded", due_at=now + 5999, waits=waits, **printed)
    shell("services", "mute", "orders", "2h", "--url", database.url)
    shell.columns(columns)
    ended = shell("services", "list", "--url", database.url)
    assert max(map(len, ended.out.splitlines())) <= columns
    assert names[0] in "".join(line.split()[0] for line in ended.out.splitlines()[2:] if line.split())
    for words in ("orders", "web", "degraded (muted)", "1.23ms", "92.30 %"):
        assert words in ended.words, words
    assert len(re.findall(r" 2h\d+m\d+s ", ended.words)) == 3
    if "next look" in ended.words:
        assert len(re.findall(r"in 1h3\dm\d*s?", ended.words)) == 3
    if columns >= 120:
        assert "(Retry-After)" in ended.words


def test_show_has_everything(shell: Shell, fleet: Monitored) -> None:
    shell.columns(100)
    ended = shell("services", "show", "billing", "--url", fleet.url)
    assert ended.out.startswith("● down  billing\nHTTP 503, db: no route to host\nfor 2h")
    for words in (
        "target https://billing.internal/health",
        "next look in ",
        "breaker closed, opens after 10 failures for 5m",
        "uptime 24h 80.00 % · 7d 80.00 % · 30d 80.00 % · 90d 80.00 % (known for 4m",
        "latency 24h p50 20ms · p95 20ms · p99 20ms",
        "every 30s, timeout 10s",
        "alert after 2 failed looks, to no channel",
        f"last looks {BARS[2] * 8}xx",
    ):
        assert words in ended.words, words


def test_show_as_json_has_everything(shell: Shell, fleet: Monitored) -> None:
    printed = shell.json("services", "show", "billing", "--url", fleet.url)
    assert {"definition", "dependencies", "looks", "uptime", "latencies_24h_ms"} < set(printed)
    assert set(printed["uptime"]) == {"24h", "7d", "30d", "90d"}
    assert printed["uptime"]["7d"]["percent"] == 80.0
    assert (printed["definition"]["every_s"], len(printed["looks"])) == (30.0, 10)
    assert "fetch" not in printed["definition"]


@pytest.mark.parametrize("columns", [40, 100, 200])
def test_what_remotes_wrote_is_text_without_secrets(shell: Shell, database: Monitored, columns: int) -> None:
    shell.columns(columns)
    hostile = f"[red]{ESCAPES}\n● up  billing\nhttps://bob:hunter22@h/?sig=hunter22[/red]"
    database.publish(define("billing", "https://h/", {}))
    [look] = looks("billing", ["down"])
    found = dependency(hostile, "down", type=hostile, impact=hostile, error_message=hostile)
    database.record(msgspec.structs.replace(look, error=hostile, dependencies=(found,)))
    now = time.time()
    printed = {"looked_at": now, "judged_at": now, "answered_at": now, "edition": 1}
    database.remember("billing", status="down", error=hostile, warnings=[hostile], **printed)
    for command in (["services", "list"], ["services", "show", "billing"], ["why", "billing"]):
        ended = shell(*command, "--url", database.url)
        assert ended.code == 0
        assert not set(ended.out) & CONTROLS, command
        assert "hunter22" not in "".join(ended.out.split()), command
        assert f"[red]{SHOWN}"[:25] in "".join(ended.out.split()), command
        assert not any(line.startswith("● up") for line in ended.out.splitlines()), "no line can be taken for ours"
        as_json = shell(*command, "--json", "--url", database.url)
        assert not set(as_json.out) & CONTROLS
        assert "hunter22" not in as_json.out
        json.loads(as_json.out)


points = st.builds(LookPoint, st.just(0.0), st.sampled_from(STATUSES), st.none() | st.floats(0, 1e9, allow_nan=False))


@given(st.lists(points, max_size=40), st.integers(1, 30))
def test_a_sparkline_has_one_sign_for_each_of_the_last_looks(found: list[LookPoint], columns: int) -> None:
    line = sparkline(found, columns).plain
    assert len(line) == min(len(found), columns)
    signs = {"down": "x", "unknown": "·"}
    for sign, point in zip(reversed(line), found, strict=False):
        assert sign == signs.get(point.status, sign)
        assert sign in BARS or point.status in signs


def test_a_slow_look_stands_out_and_noise_does_not() -> None:
    latencies = [20.0, 21.0, 19.0, 22.0, 40.0, 80.0, 5.0]
    newest_first = [LookPoint(0.0, "up", one) for one in reversed(latencies)]
    assert sparkline(newest_first, 20).plain == "▃▃▃▃▅▇▁"
