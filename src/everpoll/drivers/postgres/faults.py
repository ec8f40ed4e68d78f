"""Translates errors of the driver into errors of everpoll.

    the connection or the server                 StoreUnavailable: it may work again later
    a lock that another transaction holds        LockHeld, a StoreUnavailable
    a password, database or host that is wrong   CannotConnect: waiting does not mend the address
    a parameter of the address that is unknown   CannotConnect
    a right that the role does not have          RightsMissing: ends a start; a running worker tries again
    a table or function that is not there        SchemaOutdated: `everpoll migrate`
    a value that Postgres cannot keep            BadInput
    anything else is a bug, and is raised as it is

The message has the server's own words, and never a password.
"""

import re
import socket
from dataclasses import replace

import asyncpg

from everpoll.drivers.locks import LockHeld
from everpoll.drivers.postgres.address import OWN, PostgresAddress
from everpoll.drivers.postgres.hosts import AllHostsFailed
from everpoll.drivers.sqlstates import AWAY_CLASSES, AWAY_STATES, LOCKED
from everpoll.errors import BadInput, CannotConnect, EverpollError, RightsMissing, SchemaOutdated, StoreUnavailable

# After these a connection cannot be used any more: it is closed, or its server accepts no writes.
ENDING_STATES = ("08", "57", "25006", "25P03")
DENIED = "42501"
# If the server answers in another language, its message is quoted without a GRANT statement.
DENIED_OBJECT = re.compile(r"permission denied for (table|sequence|schema|function|database) (.+)")
GRANTS = {
    "table": "select, insert, update, delete",
    "sequence": "usage, select",
    "schema": "usage",
    "function": "execute",
    "database": "create",
}
"""The rights to grant on each kind of object; Postgres does not say which right is missing."""
MISSING_STATES = ("3F000", "42P01", "42703", "42883")
# A prepared statement is missing or exists already: a pooler shares server connections between clients.
SHARED_STATES = ("26000", "42P05")

# While connecting: the server answers, and refuses the role, or has no such database.
REFUSED_STATES = ("28000", "28P01", "3D000")
# While connecting: a parameter of the address that the server does not know, a value that it does not take, and one
# that no session may set. PgBouncer has its own words, under a general state.
PARAMETER_STATES = ("42704", "22023", "55P02")
PARAMETER_WORDS = "unsupported startup parameter"


class ConnectionsUsedUp(StoreUnavailable):
    """The server, the database or the role has no connection left."""


READ_ONLY = "it accepts no writes: it is a standby, or default_transaction_read_only is on"
POOLER = "; if a transaction pooler does not support prepared statements, add ?statement_cache=0 to the address"


def is_shared_statement(error: BaseException) -> bool:
    """Return True if a pooler gave us a server connection without our prepared statements.

    Nothing was executed then.
    """
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in SHARED_STATES


def ends_connection(error: asyncpg.PostgresError) -> bool:
    """Return whether the next statement needs another connection."""
    return (error.sqlstate or "").startswith(ENDING_STATES)


def is_outage(error: BaseException) -> bool:
    """Return True if the connection cannot be used any more, for a reason other than the statement."""
    if isinstance(error, asyncpg.PostgresError):
        return ends_connection(error)
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)
    return isinstance(error, OSError)  # a timeout is one


def while_connecting(error: Exception, address: PostgresAddress) -> EverpollError:
    """Return the error to raise in its place: an outage that may pass, or an address that cannot be used.

    A running worker waits through both: a password may be changed back. A worker that starts waits only for the first.
    """
    if isinstance(error, AllHostsFailed):
        return _at_no_host(error, address)
    said = "no answer" if isinstance(error, TimeoutError) else _text(error)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        said = READ_ONLY
    if isinstance(error, asyncpg.ClientConfigurationError):
        return BadInput(address.masked(f"the address of the database cannot be used: {said}"))
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return ConnectionsUsedUp(address.masked(f"Postgres at {address.place} refuses a further connection: {said}"))
    what = f"cannot connect to Postgres at {address.place}: {said}"
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate in REFUSED_STATES:
        return CannotConnect(address.masked(f"{what}; check user, password and database in the address"))
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate in PARAMETER_STATES or PARAMETER_WORDS in said):
        own = ", ".join(OWN)
        return CannotConnect(
            address.masked(f"{what}; check what follows the ? in the address: everpoll's own parameters are {own}")
        )
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate == DENIED:
        role = quoted(address.role) if address.role else "this role"
        right = "set this parameter of the address" if "parameter" in said else "connect to the database"
        return RightsMissing(address.masked(f"{what}; grant {role} the right to {right}"))
    # EAI_AGAIN means that the resolver cannot be reached.
    if isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN:
        return CannotConnect(address.masked(f"{what}; check the host in the address"))
    return StoreUnavailable(address.masked(what))


def _at_no_host(error: AllHostsFailed, address: PostgresAddress) -> EverpollError:
    """Return the error of a host with a mistake in its address or no connection left, else one error for all hosts."""
    meant = [while_connecting(one, replace(address, place=host.place)) for host, one in error.errors]
    for kind in (BadInput, ConnectionsUsedUp):
        if found := [one for one in meant if isinstance(one, kind)]:
            return found[0]
    text = "; ".join(str(one) for one in meant)
    return CannotConnect(text) if all(isinstance(one, CannotConnect) for one in meant) else StoreUnavailable(text)


def while_asking(error: Exception, address: PostgresAddress) -> EverpollError | None:
    """Return the error to raise in its place; None: raise it as it is."""
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"Postgres did not answer within {address.command_timeout_s:g} s")
    text = address.masked(_text(error))
    if isinstance(error, asyncpg.PostgresError):
        return _said_by_server(error, text, address)
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return BadInput(f"Postgres cannot keep this: {text}")
    if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return StoreUnavailable(f"the connection to Postgres broke: {text}")
    return None


def _said_by_server(error: asyncpg.PostgresError, text: str, address: PostgresAddress) -> EverpollError | None:
    state = error.sqlstate or ""
    if state in SHARED_STATES:
        return StoreUnavailable(f"Postgres: {text}{POOLER}")
    if state in MISSING_STATES:
        return SchemaOutdated(f"Postgres: {text}; the schema does not fit this release: run `everpoll migrate`")
    if state == DENIED:
        return RightsMissing(f"Postgres: {text}; {_grant(text, address)}")
    if state.startswith("22"):
        return BadInput(f"Postgres cannot keep this: {text}")
    if state == LOCKED:
        return LockHeld(f"Postgres: {text}: another transaction holds it")
    if state.startswith(AWAY_CLASSES) or state in AWAY_STATES:
        return StoreUnavailable(f"Postgres: {text}")
    return None


def _grant(text: str, address: PostgresAddress) -> str:
    """Return the statement that grants the missing right."""
    found = DENIED_OBJECT.search(text)
    if found is None:
        return f"grant the right to {address.role or 'this role'}, or connect as the role that owns the object"
    kind, name = found[1], quoted(found[2])
    if kind not in {"schema", "database"} and address.schema is not None:
        name = f"{quoted(address.schema)}.{name}"
    return f"run: grant {GRANTS[kind]} on {kind} {name} to {quoted(address.role) if address.role else '<this role>'}"


def quoted(name: str) -> str:
    """Return a name for SQL, in quotes only where it needs them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _text(error: Exception) -> str:
    """Return the error in one line: the driver puts the server's details and hints into lines of their own."""
    return " ".join(str(error).split("\n")) or type(error).__name__
