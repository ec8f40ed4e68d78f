"""`everpoll services import`: manifests of Depsera and configurations of Gatus, with a report of what is left out."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from cli.health_answers import CONTROLS, ESCAPES
from cli.monitored import Monitored
from cli.shell import Shell

MANIFEST = {
    "version": 1,
    "services": [
        {"key": "pay", "name": "Payments", "health_endpoint": "https://pay.internal/health", "description": "pays"},
        {"key": "api", "name": "Api", "health_endpoint": "https://api.internal/health", "poll_interval_ms": 60000},
    ],
    "aliases": [{"alias": "pg", "canonical_name": "PostgreSQL"}],
    "associations": [{"service_key": "api", "linked_service_key": "shop/pay", "dependency_name": "payments"}],
}
GATUS = """
x-all: &all
  interval: 45s
endpoints:
  - name: front
    group: core
    url: https://front.internal/health
    <<: *all
    conditions: ["[STATUS] == 200", "[RESPONSE_TIME] < 300"]
  - name: ping
    url: icmp://front.internal
"""


@pytest.fixture
def database(tmp_path: Path) -> Monitored:
    monitored = Monitored(f"sqlite:///{tmp_path}/tasks.db")
    monitored.publish()
    return monitored


def written(folder: Path, content: str | dict[str, Any], name: str = "file") -> str:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / name)


def test_a_manifest_of_depsera(shell: Shell, tmp_path: Path, database: Monitored) -> None:
    ended = shell("services", "import", written(tmp_path, MANIFEST), "--url", database.url)
    assert ended.code == 0
    assert "Payments https://pay.internal/health 30s added" in ended.words
    assert "alias pg → PostgreSQL" in ended.words
    assert '• service "Payments": its description is not carried over' in ended.words
    assert "2 services: 2 added; 1 note" in ended.words
    assert "No worker is running" in ended.err
    api = shell.json("services", "show", "Api", "--url", database.url)["definition"]
    assert (api["every_s"], api["depends_on"]) == (60.0, ["Payments"])
    assert database.use(lambda store: store.health.aliases()) == {"pg": "PostgreSQL"}


def test_a_configuration_of_gatus(shell: Shell, tmp_path: Path, database: Monitored) -> None:
    ended = shell("services", "import", written(tmp_path, GATUS), "--url", database.url)
    assert "core/front https://front.internal/health 45s added" in ended.words
    assert 'endpoint "ping": left out' in ended.words
    front = shell.json("services", "show", "core/front", "--url", database.url)["definition"]
    assert front["conditions"] == ["status == 200", "latency < 300ms"]


def test_a_dry_run_needs_no_database(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, MANIFEST)
    ended = shell("services", "import", file, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert "2 services would be imported; 1 note" in ended.words
    printed = shell.json("services", "import", file, "--dry-run")
    assert [one["result"] for one in printed["services"]] == ["", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_there_is_kept_unless_it_is_to_be_replaced(shell: Shell, tmp_path: Path, database: Monitored) -> None:
    file, where = written(tmp_path, MANIFEST), ("--url", database.url)
    shell("services", "add", "Api", "https://other.internal/", *where)

    def results(*more: str) -> dict[str, str]:
        printed = shell.json("services", "import", file, *more, *where)
        return {one["name"]: one["result"] for one in printed["services"]}

    assert results() == {"Payments": "added", "Api": "kept"}
    assert "--replace replaces them" in shell("services", "import", file, *where).words
    assert results("--replace") == {"Payments": "unchanged", "Api": "replaced"}
    assert results() == {"Payments": "unchanged", "Api": "unchanged"}


def test_yaml_without_its_library_says_how_to_get_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = builtins.__import__

    def without_yaml(name: str, *more: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return whole(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    ended = shell("services", "import", written(tmp_path, GATUS), "--dry-run")
    assert ended.code == 2
    assert ended.err.endswith("reading YAML needs PyYAML; install it with: pip install pyyaml\n")
    assert shell("services", "import", written(tmp_path, MANIFEST), "--dry-run").code == 0, "JSON needs no library"


# Ten references to ten references and so on: a few hundred bytes stand for a billion values.
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{broken", "must be JSON"),
        ("a: [1", "cannot be read as YAML"),
        ("just words", "is neither a manifest of Depsera (version, services) nor one of Gatus (endpoints)"),
        ('{"version": 2, "services": []}', "only version 1 is known"),
        (BOMB + "endpoints: *i\n", "must have at most 1,000,000 values"),
        ("endpoints: &a [*a]\n", "must have at most 1,000,000 values"),
        ("endpoints: " + "[" * 50_000, "nested too deep"),
        ('{"a":' * 50_000, "nested too deep"),
        ("!!python/object/apply:os.system ['true']", "cannot be read as YAML"),
    ],
    ids=["json", "yaml", "other", "version", "bomb", "circle", "deep yaml", "deep json", "code"],
)
def test_files_that_cannot_be_used_are_one_line(shell: Shell, tmp_path: Path, content: str, complaint: str) -> None:
    ended = shell("services", "import", written(tmp_path, content), "--dry-run")
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.err
    assert len(ended.err.splitlines()) == 1


def test_hostile_names_are_text(shell: Shell, tmp_path: Path) -> None:
    services = [
        {"name": f"[red]{ESCAPES}", "health_endpoint": "https://bob:hunter22@h/"},
        {"name": "[b]ok", "x": ESCAPES},
    ]
    file = written(tmp_path, {"version": 1, "services": services})
    for more in ([], ["--json"]):
        ended = shell("services", "import", file, "--dry-run", *more)
        assert ended.code == 0
        assert not set(ended.out) & CONTROLS
        assert "hunter22" not in ended.out


SECRETS = """
endpoints:
  - name: front
    url: https://ann:SECRET1@front.internal/health?api_key=SECRET2
    headers: {Authorization: Bearer SECRET3, X-Auth-Thing: SECRET4, X-Other: SECRET5, Accept: text/plain}
    conditions: ["[STATUS] == 200"]
"""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_secrets_of_a_file_are_told_and_printed_by_no_command(
    shell: Shell, tmp_path: Path, database: Monitored, more: tuple[str, ...]
) -> None:
    file = tmp_path / "gatus.yaml"
    file.write_text(SECRETS)
    imported = shell("services", "import", str(file), "--url", database.url, *more)
    assert "header" in imported.out
    assert "Authorization" in imported.out
    assert "X-Auth-Thing" in imported.out
    assert "password in it" in " ".join(imported.out.split())
    commands: list[tuple[str, ...]] = [
        ("services", "import", str(file)),
        ("services", "list"),
        ("services", "show", "front"),
        ("why", "front"),
        ("why", "1"),
        ("jobs", "show", "1"),
        ("jobs", "list"),
    ]
    for command in commands:
        ended = shell(*command, "--url", database.url, *([] if command[0] == "why" else more))
        assert ended.code == 0, command
        assert "SECRET" not in ended.out + ended.err, command
