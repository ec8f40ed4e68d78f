"""How `everpoll run` writes its log: for people, or as JSON lines for machines.

Promises: text of others in a record (an error's message, a server's words) is shown and not obeyed: no control
character reaches the terminal, and no line of it can be taken for a record of its own. A record that cannot be encoded
(a lone surrogate) is written, too.
"""

import json
import logging

from everpoll.cli.session import escaped, visible

INDENT = "    "


class PlainLines(logging.Formatter):
    """The message of a record; further lines of it, and of a traceback, are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text for a terminal."""
        return visible(super().format(record)).replace("\n", f"\n{INDENT}")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        entry: dict[str, object] = {
            "at": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (task := getattr(record, "task", None)) is not None:
            entry["task"] = task
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return escaped(json.dumps(entry, ensure_ascii=False, default=str))
