"""Keys of jobs: which key a call has, and what its enqueue does if another task has that key.

    existing   returns the task that has the key
    reject     `KeyTaken`, which carries that task
    replace    a waiting task takes the new arguments, delay and priority; a running one goes on, and the key
               passes to a new task

Promises: these options cost nothing for jobs without them. Options that contradict each other are refused at
registration.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from everpoll.errors import BadInput, KeyTaken
from everpoll.policy import flaw_of, human, seconds, shown
from everpoll.stores.contract import Enqueued, NewTask, OnConflict, Unique

KEY_LIMIT = 200
"""The longest key, in characters."""
CHOICES: tuple[str, ...] = get_args(OnConflict)

KeyFunction = Callable[..., str | None]


@dataclass(frozen=True, slots=True)
class KeyRules:
    """The options of a job, or of one enqueue, about keys."""

    where: str
    of_call: KeyFunction | None = None
    on_conflict: OnConflict = "existing"
    for_s: float | None = None

    @classmethod
    def of(cls, where: str, options: Mapping[str, Any]) -> "KeyRules | None":
        """Return the rules of a job; None if it has no options for keys."""
        of_call = options.get("key")
        if of_call is not None and not callable(of_call):
            raise BadInput(
                f"{where}: key={shown(of_call)}: one key would be the same for every task; write a function of the "
                "arguments, as key=lambda url: f'audit:{url}'"
            )
        if inspect.iscoroutinefunction(of_call):
            raise BadInput(f"{where}: key={shown(of_call)} is async: write a plain function of the arguments")
        rules = cls(where, of_call).changed(options)
        return None if rules == cls(where) else rules

    def changed(self, options: Mapping[str, Any]) -> "KeyRules":
        """Return these rules, changed by the options of one enqueue."""
        rules = self
        if options.get("on_conflict") is not None:
            rules = replace(rules, on_conflict=_on_conflict(self.where, options["on_conflict"]))
        if options.get("unique_for") is not None:
            for_s = seconds(options["unique_for"], name=f"{self.where}: unique_for", positive=True)
            rules = replace(rules, for_s=for_s)
        return rules

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return the key of a call by the job's `key=`, or None."""
        if self.of_call is None:
            return None
        try:
            key = self.of_call(*args, **kwargs)
        except Exception as error:
            raise BadInput(f"{self.where}: key= raised {type(error).__name__}: {error}") from error
        return None if key is None else checked_key(self.where, key)

    def unique(self, *, together: bool) -> Unique | None:
        """Return how the store handles a taken key, or None for the default; `together`: the task is one of several."""
        rejects_all = together and self.on_conflict == "reject"
        if self.on_conflict != "replace" and self.for_s is None and not rejects_all:
            return None
        return Unique(self.on_conflict, self.for_s, rejects_all)

    def refuse(self, task: NewTask, enqueued: Enqueued, handle: Callable[[int], Any]) -> None:
        """Raise `KeyTaken` if this enqueue has on_conflict="reject" and another task has its key."""
        if self.on_conflict != "reject" or enqueued.is_new or task.key is None or enqueued.id == 0:
            return
        window = "" if self.for_s is None else f" or had it within the last {human(self.for_s)}"
        says = f"{self.where}: task {enqueued.id} has the key {task.key!r}{window}; nothing was enqueued"
        raise KeyTaken(says, handle(enqueued.id))

    def refuse_repeats(self, tasks: Sequence[NewTask]) -> None:
        """Raise `BadInput` if the call has on_conflict="reject" and two of its tasks have the same key."""
        keys = [task.key for task in tasks if task.key is not None]
        if self.on_conflict == "reject" and len(set(keys)) < len(keys):
            twice = next(key for place, key in enumerate(keys) if key in keys[:place])
            raise BadInput(f"{self.where}: two tasks of this call have the key {twice!r}: the second would be rejected")


def checked_key(where: str, key: object) -> str:
    """Return the key; raise `BadInput` if a database cannot store it."""
    if (flaw := flaw_of(key, KEY_LIMIT)) is not None:
        raise BadInput(f"{where}: key={shown(key)} {flaw}: write a text of 1 to {KEY_LIMIT} characters")
    assert isinstance(key, str), "anything else has a flaw"
    return key


def _on_conflict(where: str, value: object) -> OnConflict:
    if value not in CHOICES:
        raise BadInput(f"{where}: on_conflict={shown(value)}: must be one of {', '.join(CHOICES)}")
    choice: OnConflict = value  # type: ignore[assignment]
    return choice
