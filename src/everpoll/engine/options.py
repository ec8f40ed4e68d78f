"""The options of a worker. Each has a default that fits most programs."""

import logging
import os
import secrets
import socket
from dataclasses import dataclass, field

from everpoll.errors import BadInput
from everpoll.policy import Backoff, shown, whole_number


def worker_label() -> str:
    """Return `WORKER_ID`, or host and a random part: a unique label of the process for people."""
    return os.environ.get("WORKER_ID") or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of one worker process."""

    slots: int = 50
    """Tasks at a time, over all queues."""
    queues: dict[str, int] | None = None
    """Slots per queue; None serves the queues of everything registered, without limits of their own."""
    lease_s: float = 30.0
    """How long a worker that falls silent keeps its tasks."""
    beat_s: float | None = None
    """The time between two heartbeats; None: a third of the lease."""
    poll: Backoff = field(default_factory=lambda: Backoff("5s", factor=1.5, cap="30s", jitter=0, steady=2))
    """The waits between polls that find nothing, while push does not work."""
    safety_poll: Backoff = field(default_factory=lambda: Backoff("30s", factor=2, cap="60s", jitter=0.1))
    """The waits between polls that find nothing, while push works."""
    refusal_patience_s: float | None = None
    """How long a settlement that the store refuses is tried again before it is replaced; None: as long as a lease."""
    keep_s: float | None = 30 * 86_400.0
    """How long ended tasks stay in history; None keeps them for ever."""
    gather_s: float | None = None
    """How long to wait, while nearly all slots are in use, for more handlers to end, so that their tasks are settled
    together and others leased. Larger batches need less CPU time for each task; None: do not wait."""
    aging_s: float | None = None
    """A task that has been due for longer than this goes first, whatever its priority; None: priorities do not age."""
    unknown_s: float | None = 3600.0
    """How long a task whose name no live worker has registered may wait before it fails; None: for ever."""
    lease_level: int = logging.INFO
    """The log level of leases. The worker that checks services leases all the time, and logs that at debug level."""
    label: str = field(default_factory=worker_label)

    def __post_init__(self) -> None:
        whole_number(self.slots, name="slots", at_least=1, accepted="how many tasks run at a time, 1 or more")
        if self.queues is None:
            return
        queues: object = self.queues  # a list of names is a likely mistake
        if not isinstance(queues, dict) or not queues:
            raise BadInput(
                f'queues={shown(self.queues)}: write the slots of each queue, as {{"default": 50, "mail": 5}}'
            )
        for queue, slots in self.queues.items():
            whole_number(slots, name=f"queues[{queue!r}]", at_least=1, accepted="its slots, 1 or more")
