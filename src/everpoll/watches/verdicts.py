"""What a look says of the remote operation: it has ended well, it has ended badly, or it is to be looked at again.

    Done(value)      ready, with what it produced      Wait(after="10s")   not ended; not before that long
    Fail(reason)     failed, with the evidence         Wait()              not ended; the watch's own cadence decides

A start may say one of them too, beside what it started: Started(handle, Wait("10s")), Started(handle, Done(rows)).

Pure values: frozen, comparable, checked when they are made. Never decide when to look: `after` is a floor.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from everpoll.errors import BadInput
from everpoll.policy import Duration, human, seconds, shown


@dataclass(frozen=True, slots=True)
class Done:
    """The operation has ended as wanted: `Done(rows)`."""

    value: Any = None
    _: KW_ONLY
    why: str = field(default="the look says so", compare=False)
    """Which proof it was, for whoever asks."""
    status: str | None = field(default=None, compare=False)
    """The remote's own word, for people."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The operation has ended otherwise, and why: `Fail("quota exceeded", evidence=body)`."""

    reason: str
    _: KW_ONLY
    evidence: Any = None
    """What the remote said, for whoever asks why."""
    canceled: bool = False
    """The remote says that it was canceled, not that it failed."""
    status: str | None = field(default=None, compare=False)
    """The remote's own word, for people."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Wait:
    """The operation has not ended: `Wait()`, or `Wait("10s")` where the remote said how long."""

    after_s: float | None
    """No look before that long from now; None leaves it to the cadence."""
    note: str | None
    """For people: how far it is, or what is in the way."""
    status: str | None
    """The remote's own word."""

    def __init__(self, after: Duration | None = None, *, note: str | None = None, status: str | None = None) -> None:
        object.__setattr__(self, "after_s", None if after is None else seconds(after, name="after"))
        object.__setattr__(self, "note", note)
        object.__setattr__(self, "status", status)

    def __repr__(self) -> str:
        said = [] if self.after_s is None else [repr(human(self.after_s))]
        said += [f"{name}={value!r}" for name in ("note", "status") if (value := getattr(self, name)) is not None]
        return f"Wait({', '.join(said)})"


Verdict: TypeAlias = Done | Fail | Wait


@dataclass(frozen=True, slots=True)
class Started:
    """What start returns where the remote said more than a handle: `Started(handle, Wait("10s"))`."""

    handle: Any
    """What the look needs to find it; None only where there is nothing left to look at."""
    verdict: Verdict = field(default_factory=Wait)
    """`Done` or `Fail`: it has ended already. `Wait(after)`: the first look comes no sooner."""

    def __post_init__(self) -> None:
        if not isinstance(self.verdict, (Done, Fail, Wait)):
            raise BadInput(f"Started(…, {shown(self.verdict)}): write Done(…), Fail(…) or Wait(…) behind the handle")
