"""Versions of a job's arguments: converts the arguments of waiting tasks to those that the function takes now.

    enqueued with version 1 ──migrate(1, 2)──▶ ──migrate(2, 3)──▶ run by version 3
    enqueued with version 4 ──▶ waits for a worker that has version 4

Promises: a step converts to a later version, and there is one from each version. If a step is missing, the task fails
at once with a clear error.
"""

from collections.abc import Callable, Sequence
from typing import Any

from everpoll.errors import BadInput
from everpoll.policy import shown, whole_number

VERSION_LIMIT = 32_767
ACCEPTED = "the version of its arguments, 1 or more"

Step = Callable[[Sequence[Any], dict[str, Any]], tuple[Sequence[Any], dict[str, Any]]]


class Versions:
    """The version of one job's arguments, and the steps from earlier versions."""

    def __init__(self, where: str, version: object) -> None:
        self._where = where
        self.version = _version(f"{where}: version", version)
        self._steps: dict[int, tuple[int, Step]] = {}

    def add(self, start: int, end: int, step: Step) -> None:
        """Register a step; raise `BadInput` if it does not convert to a later version, or there is one already."""
        start, end = (_version(f"{self._where}: migrate", one) for one in (start, end))
        if not start < end <= self.version:
            raise BadInput(
                f"{self._where}: migrate({start}, {end}) must lead upwards, and at most to version {self.version}"
            )
        if start in self._steps:
            raise BadInput(f"{self._where}: version {start} has a migration already, to {self._steps[start][0]}")
        self._steps[start] = (end, step)

    def migrated(self, version: int, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert arguments of an earlier version to those that the function takes now."""
        version = max(1, version)
        while version < self.version:
            if version not in self._steps:
                raise BadInput(
                    f"they have version {version}, the job has version {self.version}, and no migration begins at "
                    f"{version}: write @job.migrate({version}, {version + 1})"
                )
            version, step = self._steps[version]
            changed: object = step(args, kwargs)
            if not isinstance(changed, tuple) or len(changed) != 2 or not isinstance(changed[1], dict):
                raise BadInput(f"the migration to {version} must return (args, kwargs); it returned {shown(changed)}")
            args, kwargs = changed
        return list(args), kwargs


def _version(name: str, value: Any) -> int:
    number = whole_number(value, name=name, at_least=1, accepted=ACCEPTED)
    if number > VERSION_LIMIT:
        raise BadInput(f"{name}={number}: write at most {VERSION_LIMIT:,}")
    return number
