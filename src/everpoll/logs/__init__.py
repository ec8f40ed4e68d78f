"""Logs for machines and people: adds the task to log records, and formats records as lines.

`everpoll run` uses all of it. A program that sets up `logging` by itself can use parts of it:

    handler.addFilter(TaskFields())         # %(task)s, %(task_id)s, … in any formatter
    handler.setFormatter(JsonLines())       # one JSON object a line
"""

from everpoll.logs.context import task_fields
from everpoll.logs.fields import TaskFields
from everpoll.logs.handlers import log_handler
from everpoll.logs.lines import JsonLines, PlainLines

__all__ = ["JsonLines", "PlainLines", "TaskFields", "log_handler", "task_fields"]
