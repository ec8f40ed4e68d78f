"""Wakes workers after a change: those of this process directly, those of other processes by a notification."""

from collections.abc import Sequence

from everpoll.drivers.postgres.listener import Listener
from everpoll.stores.leases import Again
from everpoll.stores.postgres.marks import Marks
from everpoll.stores.postgres.notify import Notifier


class Waking:
    """Wakes workers for one store."""

    def __init__(self, marks: Marks, notifier: Notifier, listener: Listener) -> None:
        self._marks = marks
        self._notifier = notifier
        self._listener = listener

    def here(self, *, due_s: float = 0.0) -> None:
        """Wake the workers of this process: tasks are due in `due_s` seconds."""
        self._listener.wake(due_s=due_s)

    def everywhere(self, *, due_s: float = 0.0) -> None:
        """Wake the workers of all processes: tasks are due in `due_s` seconds."""
        self._notifier.soon()
        self._listener.wake(due_s=due_s)

    def out_of_order(self, *, cancel: bool = False) -> None:
        """Wake the workers of this process for tasks that may lie before a mark.

        The statement that made them due has notified other processes.

        `cancel`: a running task is to be canceled, or has new arguments.
        """
        self._marks.forget()
        self._listener.wake(cancel=cancel)

    def again(self, settlements: Sequence[Again]) -> None:
        """Wake all workers here, since the next due time has changed; elsewhere only if a task is due now."""
        if any(one.delay_s is None for one in settlements):
            self._marks.forget()
        is_set_aside = any(one.set_aside for one in settlements)
        if is_set_aside or any(not one.delay_s or one.delay_s <= 0 for one in settlements):
            self._notifier.soon()
        self._listener.wake(due_s=0.0 if is_set_aside else min(one.delay_s or 0.0 for one in settlements))
