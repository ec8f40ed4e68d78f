"""`python -m examples.website_audit`: the demo, with a SQLite file of its own or on the database that is given."""

import asyncio
import os
import sys
from typing import Annotated

import typer

from everpoll.errors import EverpollError
from examples.plain_sql import Unusable, database, somewhere
from examples.showing import NotEnded, quiet

Url = Annotated[
    str | None, typer.Option("--url", help="sqlite:///jobs.db or postgresql://…; default: a file that goes.")
]
Serve = Annotated[bool, typer.Option("--serve", help="Go on, and audit what is inserted, until Ctrl-C.")]


def main(url: Url = None, serve: Serve = False) -> None:
    """Audit a few sites of this machine, from the table audits, and print their reports."""
    quiet()
    try:
        with somewhere(url, "website_audit") as address:
            os.environ["EVERPOLL_URL"] = address  # where the app looks for its table, when it is imported
            os.environ["AUDIT_PRIVATE_HOSTS"] = "1"  # the sites of the demo are on this machine
            from examples.website_audit.demo import play  # noqa: PLC0415 - see above

            asyncio.run(play(database(address), serve=serve))
    except (EverpollError, NotEnded, Unusable) as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        sys.exit("asyncpg is needed for Postgres and not installed: pip install asyncpg")
    except KeyboardInterrupt:
        typer.echo("stopped; audits that were processing are pending again", err=True)
        sys.exit(0 if serve else 130)


if __name__ == "__main__":
    typer.run(main)
