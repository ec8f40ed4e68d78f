"""`everpoll-loop` can be published: it compiles by itself, depends on nothing, and strict programs can import it."""

import json
import subprocess
from pathlib import Path
from typing import Any

from build_dashboard import ROOT
from dashboard.built import PACKAGES, needs_packages, node
from everpoll.version import __version__

FOLDER = ROOT / "dashboard" / "src" / "loop"
PROGRAM = """
import { Loops, failed, followPage } from "everpoll-loop";
import type { Duration, Outcome, Snapshot } from "everpoll-loop";

const every: Duration = "1h";
const loops = new Loops();
const loop = loops.add("prices", async (signal) => (signal.aborted ? failed("gone", "30") : true), { every });
loops.start();
const outcome: Outcome = await loop.trigger();
const state: Snapshot = loop.state;
console.log(outcome.kind, state.phase, typeof followPage);
await loops.close();
// @ts-expect-error: a number has no unit
export const wrong = () => loops.add("prices", () => true, { every: 30000 });
"""


def _package() -> dict[str, Any]:
    package: dict[str, Any] = json.loads((FOLDER / "package.json").read_text("utf-8"))
    return package


def _tsc(*arguments: str | Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(node().program), str(PACKAGES / "typescript" / "bin" / "tsc"), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_it_has_the_version_of_everpoll_and_no_dependency() -> None:
    """Both implementations of the rules are released together."""
    package = _package()
    assert package["version"] == __version__
    assert not package.keys() & {"dependencies", "peerDependencies", "optionalDependencies"}


@needs_packages
def test_strict_programs_import_it(tmp_path: Path) -> None:
    """A program on Node compiles against its types, runs, and may not write a number in place of a duration."""
    installed = tmp_path / "node_modules" / "everpoll-loop"
    built = _tsc("-p", FOLDER / "tsconfig.json", "--outDir", installed / "dist", folder=FOLDER)
    assert built.returncode == 0, built.stdout
    (installed / "package.json").write_text(json.dumps(_package()))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "program.ts").write_text(PROGRAM)
    options = ("--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2023,dom")
    checked = _tsc(*options, "program.ts", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout
    ran = subprocess.run(
        [str(node().program), "program.ts"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.stdout == "ok waiting function\n", ran.stderr
