"""`python -m examples.test_runner`: the demo, with a SQLite file of its own or on the database that is given."""

import asyncio
import os
import sys
from typing import Annotated

import typer

from everpoll.errors import EverpollError
from examples.plain_sql import Unusable, database, somewhere
from examples.showing import NotEnded, quiet
from examples.test_runner.chromium import NoBrowser, chromium

Url = Annotated[
    str | None, typer.Option("--url", help="sqlite:///jobs.db or postgresql://…; default: a file that goes.")
]


def main(url: Url = None) -> None:
    """Replay four recordings in a headless Chromium, from the table execution_jobs, and print how they went."""
    quiet()
    try:
        chromium()
        with somewhere(url, "test_runner") as address:
            os.environ["EVERPOLL_URL"] = address  # where the app looks for its table, when it is imported
            from examples.test_runner.demo import play  # noqa: PLC0415 - see above

            asyncio.run(play(database(address)))
    except (EverpollError, NoBrowser, NotEnded, Unusable) as error:
        sys.exit(str(error))
    except ModuleNotFoundError as error:
        if error.name not in {"playwright", "asyncpg"}:
            raise
        sys.exit(f"{error.name} is needed for this and not installed: pip install {error.name}")
    except KeyboardInterrupt:
        typer.echo("stopped; jobs that were running are queued again", err=True)
        sys.exit(130)


if __name__ == "__main__":
    typer.run(main)
