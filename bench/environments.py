"""An environment for each competitor: bench/.peers/<name>/, made once from the hash-locked bench/peers/<name>.txt.

Promises: what one competitor installs never reaches another, nor the environment of the project. A changed lock file
or another Python makes the environment anew.
"""

import functools
import hashlib
import shutil
import subprocess
import sys
import venv
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
        ]
        subprocess.run([*install, "-r", lock], check=True)
        ready.write_text(stamp)
    return python
