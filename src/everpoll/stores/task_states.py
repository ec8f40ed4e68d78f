"""The states of a task."""

from typing import Literal

TaskState = Literal["queued", "running", "done", "failed", "canceled"]
EndState = Literal["done", "failed", "canceled"]
LIVE_STATES: tuple[TaskState, ...] = ("queued", "running")
END_STATES: tuple[EndState, ...] = ("done", "failed", "canceled")
