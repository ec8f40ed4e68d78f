"""What an error of the driver means to a caller of the store.

    the connection, the server or its locks      StoreUnavailable: it may work again later
    a right that the role does not have          StoreUnavailable: somebody may grant it, and nothing is lost until then
    a table or function that is not there        SchemaOutdated: `everpoll migrate`
    a value that Postgres cannot keep            BadInput
    anything else is a bug, and passes as it is

The server's own words are kept, a password never.
"""

import asyncpg

from everpoll.drivers.postgres.address import Address
from everpoll.errors import BadInput, EverpollError, SchemaOutdated, StoreUnavailable

# By SQLSTATE, or its first two characters: connection, transaction rollback, resources, operator intervention, system.
AWAY_CLASSES = ("08", "40", "53", "57", "58")
# An idle session or transaction that the server ended, a lock not to be had, a server that turned read-only (failover).
AWAY_STATES = ("25006", "25P03", "55P03")
# After these a connection is of no use any more: it is closed, or leads to a server that may not write.
ENDING_STATES = ("08", "57", "25006", "25P03")
DENIED = "42501"
MISSING_STATES = ("3F000", "42P01", "42703", "42883")
# A prepared statement that is not where it was made: somebody shares server connections between clients.
SHARED_STATES = ("26000", "42P05")

POOLER = "; a transaction pooler that cannot carry prepared statements? Add ?statement_cache=0 to the address"


def is_shared_statement(error: BaseException) -> bool:
    """Whether a pooler gave us a server connection that does not know our statements. Nothing was executed then."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in SHARED_STATES


def ends_connection(error: asyncpg.PostgresError) -> bool:
    """Whether the next statement needs another connection."""
    return (error.sqlstate or "").startswith(ENDING_STATES)


def while_connecting(error: Exception, address: Address) -> EverpollError:
    """Whatever keeps us from connecting may pass: the server starts, its name resolves, a role is made."""
    said = "no answer" if isinstance(error, TimeoutError) else _text(error)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return BadInput(address.masked(f"the address of the database cannot be used: {said}"))
    return StoreUnavailable(address.masked(f"cannot connect to Postgres: {said}"))


def while_asking(error: Exception, address: Address) -> EverpollError | None:
    """The error to raise in its place; None: it is none of ours."""
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"Postgres did not answer within {address.command_timeout_s:g} s")
    text = address.masked(_text(error))
    if isinstance(error, asyncpg.PostgresError):
        return _said_by_server(error, text)
    if isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError):
        return BadInput(f"Postgres cannot keep this: {text}")
    if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return StoreUnavailable(f"the connection to Postgres broke: {text}")
    return None


def _said_by_server(error: asyncpg.PostgresError, text: str) -> EverpollError | None:
    state = error.sqlstate or ""
    if state in SHARED_STATES:
        return StoreUnavailable(f"Postgres: {text}{POOLER}")
    if state in MISSING_STATES:
        return SchemaOutdated(f"Postgres: {text}; the schema does not fit this release: run `everpoll migrate`")
    if state == DENIED:
        return StoreUnavailable(f"Postgres: {text}; grant it to this role, or connect as the role that owns the table")
    if state.startswith("22"):
        return BadInput(f"Postgres cannot keep this: {text}")
    if state.startswith(AWAY_CLASSES) or state in AWAY_STATES:
        return StoreUnavailable(f"Postgres: {text}")
    return None


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
