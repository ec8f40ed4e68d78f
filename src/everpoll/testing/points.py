"""Crash points: places where a process may die or freeze, named, in order.

A point does nothing outside of `explore`. Inside, it is where the explorer's knife falls: the process stops there, for
ever or until it is thawed, and whatever it would have done next does not happen, or happens much too late.
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
    knife: "Knife"
    state: Literal["alive", "dead", "frozen"] = "alive"
    thawed: asyncio.Event = field(default_factory=asyncio.Event)

    async def gate(self) -> None:
        """Pass while it lives; else stay here: for ever, or until it is thawed."""
        while self.state != "alive":
            if self.state == "dead":
                await asyncio.get_running_loop().create_future()
            await self.thawed.wait()


@dataclass(slots=True, eq=False)
class Knife:
    """Where it falls: at the nth point that is passed, once."""

    at: int | None = None
    fate: Fate = "crash"
    passed: list[str] = field(default_factory=list)
    fell_at: str | None = None
    on_fall: asyncio.Event = field(default_factory=asyncio.Event)

    def meets(self, process: Process, name: str) -> None:
        """This process passes this point."""
        self.passed.append(name)
        if self.fell_at is None and self.at == len(self.passed) - 1:
            self.fell_at = name
            process.state = "dead" if self.fate == "crash" else "frozen"
            self.on_fall.set()


here: contextvars.ContextVar[Process | None] = contextvars.ContextVar("everpoll_process", default=None)


async def crash_point(name: str) -> None:
    """A place where the explorer may stop the process that runs this code; nothing outside of `explore`."""
    process = here.get()
    if process is None:
        return
    await process.gate()
    process.knife.meets(process, name)
    await process.gate()
