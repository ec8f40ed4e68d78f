"""`manage.py everpoll run`: the command line of everpoll, on the app and in the database of this project."""

from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand

from everpoll.cli.main import COMMANDS, main
from everpoll.contrib.django import app

APP = "everpoll.contrib.django:app"


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    """Passes its arguments on. Options of Django's own, such as --settings, stand before everpoll's command."""

    help = "Run workers, and look at jobs, with the commands of everpoll: manage.py everpoll run."
    requires_system_checks = ()  # a worker does not need the URLs of the project

    def add_arguments(self, parser: Any) -> None:
        """Pass all arguments to everpoll."""
        parser.add_argument(
            "arguments", nargs=REMAINDER, metavar="command", help=f"{', '.join(COMMANDS)}, and what belongs to it"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the command; another end than success ends the process with its exit code."""
        try:
            main(list(options["arguments"]), program="manage.py everpoll", app=APP, url=app.url)
        except SystemExit as ended:
            if ended.code:
                raise
