"""Makes the address of a store from an entry of Django's `DATABASES`. Pure.

Promises: the address leads to the database, the role and the schema that Django connects to, so that a connection of
Django's may be passed to `enqueue`. No error repeats a password.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from everpoll.errors import BadInput

# The last part of the engine's name: packages that wrap an engine of Django keep it.
POSTGRES = ("postgresql", "postgresql_psycopg2", "postgis")
SQLITE = ("sqlite3", "spatialite")
# The rest of OPTIONS is about Django's own connections (pool, isolation_level), or unknown to everpoll's driver.
KEPT_OPTIONS = (
    "application_name",
    "options",
    "passfile",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
)
REMEDY = 'say where tasks live with EVERPOLL = {"url": …}, {"database": …} or {"app": …}'


def address_of(alias: str, databases: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the address of this database; raise `BadInput` if everpoll cannot store tasks in it."""
    if alias not in databases:
        raise BadInput(f"DATABASES has no {alias!r}, which EVERPOLL names; it has: {', '.join(databases) or 'none'}")
    database = databases[alias]
    engine = str(database.get("ENGINE", "")).rpartition(".")[2]
    if engine in POSTGRES:
        return _postgres(alias, database)
    if engine in SQLITE:
        return _sqlite(str(database.get("NAME") or ""))
    raise BadInput(
        f"DATABASES[{alias!r}] has the engine {database.get('ENGINE')!r}, and tasks live in Postgres or SQLite: "
        f"{REMEDY}"
    )


def _sqlite(name: str) -> str:
    # Many tests set these. Each SQLite connection would have a database of its own, so use the memory store.
    if name in {"", ":memory:"} or name.startswith("file:"):
        return "memory://"
    return f"sqlite:///{quote(name)}"


def _postgres(alias: str, database: Mapping[str, Any]) -> str:
    options = database.get("OPTIONS") or {}
    name = str(database.get("NAME") or "")
    if "service" in options or not name:
        raise BadInput(f"DATABASES[{alias!r}] has no NAME, or OPTIONS with a service, which cannot be read: {REMEDY}")
    query = {key: str(options[key]) for key in KEPT_OPTIONS if key in options}
    host, port = str(database.get("HOST") or ""), str(database.get("PORT") or "")
    place = ""
    if host.startswith("/") or not host:  # the folder of a socket, or the driver's default
        query |= {key: value for key, value in (("host", host), ("port", port)) if value}
    else:
        place = _hosts(host.split(","), port.split(","))
    user, password = str(database.get("USER") or ""), str(database.get("PASSWORD") or "")
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    if login and not place:
        # An address without a host has no place for a user.
        query |= {key: value for key, value in (("user", user), ("password", password)) if value}
        login = ""
    at = f"{login}@{place}" if login else place
    return f"postgresql://{at}/{quote(name, safe='')}{'?' if query else ''}{urlencode(query, quote_via=quote)}"


def _hosts(hosts: list[str], ports: list[str]) -> str:
    """Write each host with its port; one port holds for all hosts."""
    written = []
    for number, host in enumerate(hosts):
        port = ports[number % len(ports)].strip()
        named = f"[{host.strip()}]" if ":" in host else host.strip()
        written.append(f"{named}:{port}" if port else named)
    return ",".join(written)
