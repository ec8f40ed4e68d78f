"""`manage.py everpoll run`: the command line of everpoll, on the app and in the database of this project."""

from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand

from everpoll.cli.main import COMMANDS, main
from everpoll.contrib.django import app

APP = "everpoll.contrib.django:app"


class Command(BaseCommand):  # type: ignore[misc] # Django has no types
    """Passes its arguments on. Options of Django's own, such as --settings, stand before everpoll's command."""

    help = "Run the commands of everpoll on this project: manage.py everpoll run, manage.py everpoll jobs list."
    requires_system_checks = ()  # a worker does not need the URLs of the project

    def add_arguments(self, parser: Any) -> None:
        """Pass all arguments to everpoll."""
        parser.add_argument(
            "arguments", nargs=REMAINDER, metavar="command", help=f"{', '.join(COMMANDS)}, and its own arguments"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run the command; if it does not succeed, end the process with its exit code."""
        try:
            main(list(options["arguments"]), program="manage.py everpoll", app=APP, url=app.url)
        except SystemExit as ended:
            if ended.code:
                raise
