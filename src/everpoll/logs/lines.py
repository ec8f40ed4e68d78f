"""Log lines: a record as text for people, or as a JSON object for machines.

Promises: text from remotes in a record (an error's message, a server's answer) cannot control the terminal: control
characters are escaped, and further lines are indented, so that none looks like a record. Passwords in addresses, bearer
tokens and values of fields with the name of a secret become ***. No record is lost: neither one with arguments that do
not fit its text, nor one that cannot be encoded (a lone surrogate) or written as JSON. Never wraps, pads or colours.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from everpoll.logs.context import Fields
from everpoll.logs.fields import ATTRIBUTES, NO_TASK, fields_of, label_of
from everpoll.policy.visible_texts import escaped, visible

INDENT = "    "
HALF_CHARS = 20_000
"""Characters at the beginning and at the end of a long traceback that are kept."""
MARGIN_CHARS = 8_000
"""Longer than any secret."""
_OWN = frozenset({"task", "task_fields", *ATTRIBUTES.values()})
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class PlainLines(logging.Formatter):
    """One line for each record: time (UTC), level, logger, message, then the task's fields as `name=value`.

    Further lines of the message, and the traceback, follow with an indentation.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        first, *further = _said(self, record).split("\n")
        fields = "".join(f" {name}={_value(value)}" for name, value in fields_of(record).items())
        head = f"{_time(record)} {record.levelname} {record.name}: {first}{visible(_safe(fields))}"
        return f"\n{INDENT}".join((head, *further))


class TerminalLines(logging.Formatter):
    """The message, then the task that it is about, for a handler that shows time and level by itself."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text for a terminal."""
        first, *further = _said(self, record).split("\n")
        fields = fields_of(record)
        label = label_of(fields)
        if label != NO_TASK and fields.get("key", label) not in first and label not in first:
            first += f"  ({visible(label)}{', attempt ' + str(fields['attempt']) if 'attempt' in fields else ''})"
        return f"\n{INDENT}".join((first, *further))


class JsonLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, the task's fields, those of `extra=`, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry: Fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        entry |= {name: value for name, value in fields_of(record).items() if name not in entry}
        if traceback := _traceback(self, record):
            entry["traceback"] = traceback
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in _OWN:
                entry.setdefault(name, _as_json(value))
        return escaped(json.dumps(_safe(entry), ensure_ascii=False, default=str))


def _said(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return message and traceback, without control characters and secrets."""
    traceback = _traceback(formatter, record)
    text = _message(record) + (f"\n{traceback}" if traceback else "")
    return visible(_safe(text))


def _safe(value: Any) -> Any:
    """Return a text, or JSON with texts, without secrets."""
    # Imported here: a command that lists jobs imports the context of this package, and needs no HTTP.
    from everpoll.http.stored_secrets import without_secrets  # noqa: PLC0415

    return without_secrets(value)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - a wrong placeholder, or an argument that cannot be shown
        return f"{record.msg} (its arguments do not fit: {type(error).__name__})"


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        # Kept in the record, as `logging.Formatter` does, so that other handlers need not format it again.
        record.exc_text = _cut(formatter.formatException(record.exc_info))
    stack = formatter.formatStack(record.stack_info) if record.stack_info else ""
    return "\n".join(one for one in (record.exc_text, stack) if one)


def _cut(traceback: str) -> str:
    """Return a traceback without its middle if it is too long: an error's text may have a hundred megabytes."""
    left_out = len(traceback) - 2 * HALF_CHARS
    if left_out <= 0:
        return traceback
    # Masked before they are cut: half a secret would not be recognized.
    start, end = _safe(traceback[: HALF_CHARS + MARGIN_CHARS]), _safe(traceback[-HALF_CHARS - MARGIN_CHARS :])
    return f"{start[:HALF_CHARS]}\n… {left_out:,} characters left out …\n{end[-HALF_CHARS:]}"


def _time(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03}Z"


def _value(value: object) -> str:
    """Return the value as text, in quotes if it has a space in it."""
    text = str(value)
    return text if text and not any(one in text for one in ' "=\n\t') else json.dumps(text, ensure_ascii=False)


def _as_json(value: Any) -> Any:
    """Return a user's value as JSON. A cycle, NaN or an object without a text is replaced by the name of its type."""
    if value is None or isinstance(value, str | bool | int):
        return value
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=str))
    except Exception:  # noqa: BLE001 - the record must be written, without the value if necessary
        return f"({type(value).__name__} that is not JSON)"
