"""Prometheus, and its blackbox exporter, as monitors of the same target: from the packages of Debian.

The packages are fetched and unpacked into bench/.peers/prometheus/, once; nothing is installed, and no service starts.
Where that is not possible, `Missing` says why, and the benchmark goes on without them.
"""

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.environments import ENVIRONMENTS
from bench.quiet import process_cpu_s

PACKAGES = ("prometheus", "prometheus-blackbox-exporter")
FETCH_S = 120.0
START_S = 20.0
MODULE = {"modules": {"http": {"prober": "http", "timeout": "5s", "http": {"preferred_ip_protocol": "ip4"}}}}


class Missing(Exception):
    """Prometheus cannot be measured here."""


def binaries() -> Path:
    """The folder with both programs, fetched if they are not there."""
    folder = ENVIRONMENTS / "prometheus"
    programs = folder / "usr" / "bin"
    if all((programs / name).exists() for name in PACKAGES):
        return programs
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Missing("there is no apt-get here to fetch the packages of Debian with")
    with tempfile.TemporaryDirectory(prefix="everpoll-prometheus-") as fetched:
        _ordered(["apt-get", "download", *PACKAGES], fetched)
        folder.mkdir(parents=True, exist_ok=True)
        for package in Path(fetched).glob("*.deb"):
            _ordered(["dpkg", "-x", str(package), str(folder)], fetched)
    return programs


def _ordered(command: list[str], folder: str) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=FETCH_S)
    except subprocess.CalledProcessError as error:
        raise Missing(f"{command[0]} failed: {error.stderr.strip()[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]} failed: {error}") from None


class Scraping:
    """A Prometheus that asks the target, with or without the exporter between them."""

    def __init__(self, programs: list["subprocess.Popen[bytes]"]) -> None:
        self._programs = programs

    def cpu_s(self) -> float:
        """CPU time of Prometheus and of the exporter, so far."""
        return sum(process_cpu_s(one.pid) for one in self._programs)


@contextmanager
def scraping(port: int, services: int, every_s: float, *, through_exporter: bool, path: str) -> Iterator[Scraping]:
    """Prometheus with so many targets, for the length of the block."""
    programs = binaries()
    with tempfile.TemporaryDirectory(prefix="everpoll-prometheus-") as name:
        folder, running = Path(name), []
        try:
            exporter = _free_port()
            if through_exporter:
                (folder / "exporter.yml").write_text(json.dumps(MODULE))
                options = [f"--config.file={folder / 'exporter.yml'}", f"--web.listen-address=127.0.0.1:{exporter}"]
                running.append(_started([str(programs / PACKAGES[1]), *options, "--log.level=error"], exporter, folder))
            where = [f"127.0.0.1:{port}/{path}/{number}" for number in range(services)]
            jobs = _through_exporter(where, exporter) if through_exporter else _directly(where)
            config = {
                "global": {
                    "scrape_interval": f"{round(every_s * 1000)}ms",
                    "scrape_timeout": f"{round(every_s * 1000)}ms",
                }
            }
            (folder / "prometheus.yml").write_text(json.dumps({**config, "scrape_configs": [jobs]}))
            own = _free_port()
            options = [
                f"--config.file={folder / 'prometheus.yml'}",
                f"--web.listen-address=127.0.0.1:{own}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--log.level=error",
            ]
            running.append(_started([str(programs / PACKAGES[0]), *options], own, folder))
            yield Scraping(running)
        finally:
            for one in running:
                one.kill()
                one.wait()


def _directly(where: list[str]) -> dict[str, object]:
    configs = []
    for number, url in enumerate(where):
        host, path = url.split("/", 1)
        labels = {"__metrics_path__": f"/{path}", "instance": f"service-{number}"}
        configs.append({"targets": [host], "labels": labels})
    return {"job_name": "direct", "static_configs": configs}


def _through_exporter(where: list[str], exporter: int) -> dict[str, object]:
    configs = [
        {
            "targets": [f"127.0.0.1:{exporter}"],
            "labels": {"__param_target": f"http://{url}", "instance": f"service-{number}"},
        }
        for number, url in enumerate(where)
    ]
    return {
        "job_name": "blackbox",
        "metrics_path": "/probe",
        "params": {"module": ["http"]},
        "static_configs": configs,
    }


def _started(command: list[str], port: int, folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / "log").open("ab") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    until = time.monotonic() + START_S
    while time.monotonic() < until and program.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthy", timeout=1):
                return program
        except OSError:
            time.sleep(0.1)
    program.kill()
    program.wait()
    raise Missing(f"{Path(command[0]).name} does not start: {(folder / 'log').read_text()[-300:].strip()}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
