"""The files in deploy/ do what docs/how-to/deploy.md says: their commands are run, their syntax is checked."""

import asyncio
import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from server.site import TOKEN, is_healthy, python, until
from servers.ports import reserved_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = ["everpoll.service", "everpoll-serve.service"]
EVERPOLL = "/srv/shop/.venv/bin/everpoll"
SHOP = """
from everpoll import Everpoll
app = Everpoll()
@app.job()
async def double(number: int) -> int:
    return 2 * number
"""
STOP_S = 60.0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder that a deployment has: the package `shop`, and a database beside it."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/tasks.py").write_text(SHOP)
    return tmp_path


@asynccontextmanager
async def started(command: list[str], folder: Path, port: int, prefix: str = "") -> AsyncIterator[None]:
    """Run a command of a file, on another port; end it with SIGTERM, as a service manager does."""
    assert command[0].endswith("everpoll")
    arguments = ["-m", "everpoll", *command[1:], "--port", str(port)]
    url = f"sqlite:///{folder / 'tasks.db'}"
    with python(arguments, folder, EVERPOLL_URL=url, EVERPOLL_TOKEN=TOKEN, EVERPOLL_LOG="json") as process:
        await until(partial(is_healthy, f"http://127.0.0.1:{port}{prefix}"))
        yield
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, STOP_S) == 0


@contextmanager
def proxy(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_S)


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    found.read(DEPLOY / name)
    return found


@pytest.mark.parametrize("name", UNITS)
async def test_the_command_of_a_unit_serves_and_ends_with_sigterm(name: str, shop: Path) -> None:
    """A token is asked for, and the stop timeout is longer than the grace period that the command names."""
    service = unit(name)["Service"]
    command, port = shlex.split(service["ExecStart"]), reserved_port()
    assert command[0] == EVERPOLL
    async with started(command, shop, port), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        assert (await http.get("/api/jobs")).status_code == 401
        assert (await http.get("/api/jobs", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200
    grace_s = int(command[command.index("--grace") + 1].removesuffix("s")) if "--grace" in command else 10
    assert int(service["TimeoutStopSec"]) >= grace_s + 12


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit(name: str, tmp_path: Path) -> None:
    """Where systemd is: with the paths of this machine in place of those of the example."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed here")
    written = (DEPLOY / name).read_text().replace(EVERPOLL, sys.executable).replace("=/srv/shop", f"={tmp_path}")
    (tmp_path / name).write_text(written.replace("/etc/shop/everpoll.env", f"-{tmp_path}/everpoll.env"))
    checked = subprocess.run(
        [verify, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    complaints = [line for line in checked.stderr.splitlines() if name in line and "User" not in line]
    assert complaints == []


def instructions() -> dict[str, list[str]]:
    """The instructions of the container file, by name."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "Containerfile").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


async def test_the_command_and_the_health_check_of_the_container_work(shop: Path) -> None:
    """The image has what the command needs: its extras exist, and its user is a number other than root's."""
    found = instructions()
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [installed] = re.findall(r"everpoll\[([\w,]+)\]", found["RUN"][0])
    assert set(installed.split(",")) <= extras.keys()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", found["USER"][0])
    assert found["EXPOSE"] == ["8787"]
    command, port = json.loads(found["CMD"][0]), reserved_port()
    probe = json.loads(found["HEALTHCHECK"][0].partition("CMD ")[2])
    check = [sys.executable, *[part.replace(":8787", f":{port}") for part in probe[1:]]]
    assert probe[0] == "python"
    async with started(command, shop, port):
        healthy = await asyncio.to_thread(subprocess.run, check, check=False, timeout=60)
        assert healthy.returncode == 0
    refused = await asyncio.to_thread(subprocess.run, check, check=False, timeout=60, stderr=subprocess.DEVNULL)
    assert refused.returncode != 0


def test_the_proxies_pass_streams_on_and_keep_the_host() -> None:
    """Each place that passes requests on: no buffering, a long wait, the Host and the scheme of the client."""
    nginx = (DEPLOY / "nginx.conf").read_text()
    places = re.findall(r"location [^{]+\{([^}]*)\}", nginx)
    assert len(places) == 2
    for place in places:
        assert "proxy_buffering off;" in place
        assert "proxy_read_timeout 1h;" in place
        assert "proxy_set_header Host $host;" in place
        assert "proxy_set_header X-Forwarded-Proto $scheme;" in place
    statements = [line.strip() for line in nginx.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert all(line.endswith((";", "{", "}")) for line in statements)
    assert nginx.count("{") == nginx.count("}")
    caddy = (DEPLOY / "Caddyfile").read_text()
    assert caddy.count("reverse_proxy") == caddy.count("flush_interval -1") == 2
    assert caddy.count("{") == caddy.count("}")


async def until_line(lines: AsyncIterator[str], wanted: str) -> AsyncIterator[str]:
    """Yield lines up to the first that has this text in it."""
    async for line in lines:
        yield line
        if wanted in line:
            return


async def test_nginx_passes_events_on_as_they_come(shop: Path) -> None:
    """With a real nginx, where one is installed: the first event arrives although the stream stays open."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        pytest.skip("nginx is not installed here")
    port, front = reserved_port(), reserved_port()
    written = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8787", f"127.0.0.1:{port}")
    written = re.sub(r"listen 443 ssl;", f"listen 127.0.0.1:{front};", written)
    written = re.sub(r"\n *ssl_\w+ [^\n]+", "", written)
    (shop / "nginx.conf").write_text(
        f"daemon off; pid {shop}/nginx.pid; error_log stderr; events {{}} http {{ access_log off; {written} }}"
    )
    command = shlex.split(unit("everpoll-serve.service")["Service"]["ExecStart"])
    async with started(command, shop, port):
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "polls.example.com"}
        with proxy([nginx, "-p", str(shop), "-c", str(shop / "nginx.conf")]):
            await until(partial(is_healthy, f"http://127.0.0.1:{front}"))
            async with (
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{front}", headers=headers) as http,
                http.stream("GET", "/api/events") as answer,
            ):
                lines = answer.aiter_lines()
                async with asyncio.timeout(30):
                    first = [await anext(line async for line in lines if line) for _ in range(3)]
                    assert (first[0], first[1][:4], first[2]) == ("retry: 2000", "id: ", "event: state")
                    own = {"Origin": "http://polls.example.com"}
                    paused = await http.post("/api/queues/default/pause", headers=own)
                    assert paused.status_code == 200
                    reported = [line async for line in until_line(lines, '"kind":"queue"')]
                    assert '"by":"HTTP from 127.0.0.1"' in reported[-1]
                foreign = {"Origin": "http://evil.example.com"}
                assert (await http.post("/api/queues/default/resume", headers=foreign)).status_code == 403


async def test_below_a_path_everything_is_there_and_nothing_above_it(shop: Path) -> None:
    """`--prefix /polls` behind a proxy that passes the path on: the API, the login page and its cookie."""
    port = reserved_port()
    command = ["everpoll", "serve", "shop.tasks:app", "--prefix", "/polls/", "--allow-host", "www.example.com"]
    async with (
        started(command, shop, port, "/polls"),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"Host": "www.example.com"}) as http,
    ):
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert (await http.get("/polls/api/jobs", headers=token)).status_code == 200
        assert (await http.get("/api/jobs", headers=token)).status_code == 404
        page = await http.get("/polls/", headers={"Accept": "text/html"})
        assert 'action="/polls/login"' in page.text
        entered = await http.post("/polls/login", data={"token": TOKEN})
        assert (entered.status_code, entered.headers["location"]) == (303, "/polls/")
        assert "Path=/polls" in entered.headers["set-cookie"]
