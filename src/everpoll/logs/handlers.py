"""The log handler of `everpoll run`, which other programs may use, too."""

import logging
import os
import sys
from typing import TextIO

from everpoll.errors import BadInput
from everpoll.logs.fields import TaskFields
from everpoll.logs.lines import JsonLines, PlainLines, TerminalLines

KINDS = ("pretty", "json")


def log_handler(kind: str | None = None, stream: TextIO | None = None) -> logging.Handler:
    """Return a handler that writes to a stream, by default standard error.

    `kind` is "pretty" for people or "json" for machines; by default `$EVERPOLL_LOG`, then "pretty". On a terminal,
    pretty has colours and the terminal's width; elsewhere, it writes one plain line for each record.
    """
    kind = os.environ.get("EVERPOLL_LOG") or "pretty" if kind is None else kind
    if kind not in KINDS:
        raise BadInput(f"EVERPOLL_LOG={kind!r}: write pretty or json")
    stream = sys.stderr if stream is None else stream
    handler: logging.Handler
    if kind == "json":
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines())
    elif stream.isatty():
        handler = _terminal_handler(stream)
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(PlainLines())
    handler.addFilter(TaskFields())
    return handler


def _terminal_handler(stream: TextIO) -> logging.Handler:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.logging import RichHandler  # noqa: PLC0415

    handler = RichHandler(
        console=Console(file=stream),
        show_path=False,
        rich_tracebacks=False,
        omit_repeated_times=False,
        log_time_format="%Y-%m-%d %H:%M:%S",
    )
    handler.setFormatter(TerminalLines())
    return handler
