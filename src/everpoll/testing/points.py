"""Crash points: places where a process may die or freeze, named, in order.

A point does nothing outside of `explore`. Inside, the explorer may inject a fault: the process stops there, for ever or
until the explorer lets it go on, much too late.
"""

import asyncio
import contextvars
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["crash", "zombie"]


@dataclass(slots=True, eq=False)
class Process:
    """One simulated process: alive, dead, or frozen until the test thaws it."""

    name: str
    fault: "InjectedFault"
    state: Literal["alive", "dead", "frozen"] = "alive"
    thawed: asyncio.Event = field(default_factory=asyncio.Event)

    async def gate(self) -> None:
        """Return if the process lives; else wait here, for ever if it is dead, or until it goes on."""
        while self.state != "alive":
            if self.state == "dead":
                await asyncio.get_running_loop().create_future()
            await self.thawed.wait()


@dataclass(slots=True, eq=False)
class InjectedFault:
    """The one fault of a story: the process that passes the nth point stops there."""

    at: int | None = None
    fate: Fate = "crash"
    passed: list[str] = field(default_factory=list)
    injected_at: str | None = None
    injected: asyncio.Event = field(default_factory=asyncio.Event)

    def passes(self, process: Process, name: str) -> None:
        """Note that a process passes a point; if it is the chosen one, stop the process there."""
        self.passed.append(name)
        if self.injected_at is None and self.at == len(self.passed) - 1:
            self.injected_at = name
            process.state = "dead" if self.fate == "crash" else "frozen"
            self.injected.set()


here: contextvars.ContextVar[Process | None] = contextvars.ContextVar("everpoll_process", default=None)


async def crash_point(name: str) -> None:
    """Mark a place where the explorer may stop the process; does nothing outside of `explore`."""
    process = here.get()
    if process is None:
        return
    await process.gate()
    process.fault.passes(process, name)
    await process.gate()
