"""`python -m examples.dependency_health`: the demo, with a SQLite file of its own or on the database that is given."""

import asyncio
import sys
from typing import Annotated

import typer

from everpoll.errors import EverpollError
from everpoll.policy import seconds
from examples.dependency_health.demo import play
from examples.plain_sql import somewhere
from examples.showing import quiet

For = Annotated[str | None, typer.Option("--for", help="End after this long, such as 20s; default: at Ctrl-C.")]
Url = Annotated[
    str | None, typer.Option("--url", help="sqlite:///health.db or postgresql://…; default: a file that goes.")
]


def main(duration: For = None, url: Url = None) -> None:
    """Look at sixteen services of this machine, and show how they are."""
    quiet()
    try:
        lasts_s = None if duration is None else seconds(duration, name="--for", positive=True)
        with somewhere(url, "dependency_health") as address:
            asyncio.run(play(address, lasts_s))
    except EverpollError as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        sys.exit("asyncpg is needed for Postgres and not installed: pip install asyncpg")


if __name__ == "__main__":
    typer.run(main)
