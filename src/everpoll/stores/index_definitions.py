"""The indexes that a doctor expects, read from the SQL of the migrations."""

import re
from collections.abc import Iterable

_CREATED = re.compile(r"create (?:unique )?index (\w+) on [^;]+", re.IGNORECASE)
_DROPPED = re.compile(r"drop index (?:if exists )?(?:\w+\.)?(\w+)", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*")


def expected_indexes(migrations: Iterable[str]) -> dict[str, str]:
    """Return the name of each index, and the statement that makes it; what a later migration drops is not expected."""
    found: dict[str, str] = {}
    for migration in migrations:
        sql = _COMMENT.sub("", migration)
        steps = [(one.start(), one) for one in (*_CREATED.finditer(sql), *_DROPPED.finditer(sql))]
        for _, step in sorted(steps, key=lambda one: one[0]):
            if step.re is _DROPPED:
                found.pop(step[1], None)
            else:
                found[step[1]] = " ".join(step[0].split())
    return found
