"""The fields of a log record: those of its `extra=`, and those of the context.

Promises: fields of `extra=` win over those of the context. A record that passes the filter keeps its fields when a
formatter in another thread reads it later, as behind a `QueueHandler`.
"""

import logging

from everpoll.logs.context import Fields, task_fields

ATTRIBUTES = {
    "task_id": "task_id",
    "kind": "task_kind",
    "name": "task_name",
    "queue": "task_queue",
    "key": "task_key",
    "attempt": "task_attempt",
    "worker": "task_worker",
    "duration_s": "duration_s",
    "outcome": "outcome",
    "error_type": "error_type",
}
"""The attribute of the record for each field. `name` is used already: it is the logger's name."""
NO_TASK = "-"


def fields_of(record: logging.LogRecord) -> Fields:
    """Return the fields of a record that are not None."""
    given = getattr(record, "task_fields", None)
    found = task_fields()
    if isinstance(given, dict):
        # If the record is about another task than the context, the context's fields do not belong to it.
        found = {**found, **given} if given.get("task_id") in {None, found.get("task_id")} else given
    return {name: value for name, value in found.items() if value is not None}


def label_of(fields: Fields) -> str:
    """Return the label of the task for people: "audit#7", "loop prices"."""
    name = fields.get("key") or fields.get("name")
    if "task_id" not in fields:
        return NO_TASK if name is None else f"{fields.get('kind', 'task')} {name}"
    return f"{fields.get('name', 'task')}#{fields['task_id']}"


class TaskFields(logging.Filter):
    """Lets every record pass, and sets attributes that say which task it is about.

    Sets `task` (a label such as "audit#7", or "-") and `task_id`, `task_kind`, `task_name`, `task_queue`, `task_key`,
    `task_attempt`, `task_worker`, `duration_s`, `outcome`, `error_type`, each None if it is unknown. Add it to a
    handler, not to a logger: filters of a logger do not see the records of the loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the attributes of one record."""
        fields = fields_of(record)
        record.task_fields = fields
        record.task = label_of(fields)
        for name, attribute in ATTRIBUTES.items():
            setattr(record, attribute, fields.get(name))
        return True
