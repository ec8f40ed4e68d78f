"""The command line, one file per group of commands."""

from everpoll.cli.main import main

__all__ = ["main"]
