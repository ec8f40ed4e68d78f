"""Errors for a caller's connection that cannot be used, and for the errors of its driver.

the connection is closed, or of another database       BadInput
no transaction is open: all would be committed at once  BadInput
the transaction has failed, or may not write            BadInput
the role lacks a right                                   RightsMissing
the lease of the task is lost                            LeaseLost
anything else is the caller's own                        as the driver raised it
"""

from everpoll.errors import BadInput, EverpollError, LeaseLost, RightsMissing

CAUSES = 5
"""How many errors may wrap one another: a framework's, SQLAlchemy's, the driver's."""


def closed(kind: str) -> BadInput:
    """Return the error for a closed connection."""
    return BadInput(f"connection=: this {kind} is closed: nothing can be enqueued or completed through it")


def no_transaction(kind: str, write: str) -> BadInput:
    """Return the error for a connection that commits its statements one by one."""
    return BadInput(
        f"connection=: no transaction is open on this {kind}, so that everything would be committed at once: {write}; "
        "or leave connection= out"
    )


def failed(kind: str) -> BadInput:
    """Return the error for a transaction that cannot go on."""
    return BadInput(f"connection=: the transaction of this {kind} has failed: roll it back first")


def read_only(kind: str) -> BadInput:
    """Return the error for a connection that may only read."""
    return BadInput(f"connection=: this {kind} may not write: its transaction, its server or its file is read-only")


def other_engine(kind: str, engine: str, wanted: str) -> BadInput:
    """Return the error for a connection to another kind of database."""
    return BadInput(f"connection=: this {kind} is one of {engine}, and the tasks of this app are in {wanted}")


def meant(error: Exception, kind: str) -> EverpollError | None:
    """Return the error to raise instead of the driver's; None: raise the driver's."""
    if isinstance(error, EverpollError):
        return error
    if type(error).__name__ == "PendingRollbackError":
        return failed(kind)
    match sqlstate_of(error):
        case "25P02":
            return failed(kind)
        case "25006":
            return read_only(kind)
        case "42501":
            return RightsMissing(
                f"connection=: the role of this {kind} lacks a right on the schema everpoll: {_line(error)}; grant "
                "it what the role of the app has"
            )
        case "EV003":
            return LeaseLost(f"{_line(error)}: its lease was lost, and its transaction cannot be committed")
        case "3F000" | "42883" | "42P01":
            return BadInput(
                f"connection=: the database of this {kind} has no tables of this release of everpoll: it is another "
                "one than that of the app, or `everpoll migrate` has not been run there"
            )
    return None


def sqlstate_of(error: BaseException | None) -> str | None:
    """Return the SQLSTATE that the server sent, however the error is wrapped."""
    for _ in range(CAUSES):
        if error is None:
            return None
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None


def _line(error: BaseException) -> str:
    """Return the first line of the driver's own error, without the errors of frameworks around it."""
    inner: BaseException = error
    for _ in range(CAUSES):
        deeper = getattr(inner, "orig", None) or inner.__cause__
        if not isinstance(deeper, BaseException):
            break
        inner = deeper
    lines = str(inner).strip().splitlines()
    return lines[0] if lines else type(inner).__name__
