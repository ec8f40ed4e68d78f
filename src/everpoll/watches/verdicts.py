"""Verdicts: a look returns whether the remote operation has succeeded, has failed, or has not ended yet.

    Done(value)      ready, with what it produced      Wait(after="10s")   not ended; the next look in 10 s or later
    Fail(reason)     failed, with the evidence         Wait()              not ended; the watch's own cadence decides


A start may return a verdict with the handle: Started(handle, Wait("10s")), Started(handle, Done(rows)).

Pure values: frozen, comparable, checked when they are made. Never decide when to look: `after` is a floor.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from everpoll.errors import BadInput
from everpoll.policy import Duration, human, number, seconds, shown


@dataclass(frozen=True, slots=True)
class Done:
    """The operation has succeeded: `Done(rows)`."""

    value: Any = None
    _: KW_ONLY
    why: str = field(default="the look says so", compare=False)
    """What proves the success; shown as the reason of the outcome."""
    status: str | None = field(default=None, compare=False)
    """The remote's own word, for people."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The operation has ended without success: `Fail("quota exceeded", evidence=body)`."""

    reason: str
    _: KW_ONLY
    evidence: Any = None
    """What the remote said; stored with the outcome."""
    canceled: bool = False
    """True: the remote reports that the operation was canceled, not that it failed."""
    status: str | None = field(default=None, compare=False)
    """The remote's own word, for people."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Wait:
    """The operation has not ended: `Wait()`, or `Wait("10s")` where the remote said how long."""

    after_s: float | None
    """The next look comes no sooner than this; None: the cadence decides."""
    note: str | None
    """For people: how far the operation is, or what it waits for."""
    status: str | None
    """The remote's own word."""
    progress: float | None
    """How far the operation is, as the remote reports it: a share from 0 to 1. `Learned` learns what it is worth."""

    def __init__(
        self,
        after: Duration | None = None,
        *,
        note: str | None = None,
        status: str | None = None,
        progress: float | None = None,
    ) -> None:
        object.__setattr__(self, "after_s", None if after is None else seconds(after, name="after"))
        object.__setattr__(self, "note", note)
        object.__setattr__(self, "status", status)
        if progress is not None:
            progress = number(progress, name="progress", at_least=0, at_most=1, accepted="a share, as 0.4 for 40 %")
        object.__setattr__(self, "progress", progress)

    def __repr__(self) -> str:
        said = [] if self.after_s is None else [repr(human(self.after_s))]
        said += [
            f"{name}={value!r}" for name in ("note", "status", "progress") if (value := getattr(self, name)) is not None
        ]
        return f"Wait({', '.join(said)})"


Verdict: TypeAlias = Done | Fail | Wait


@dataclass(frozen=True, slots=True)
class Verify:
    """A look returns it as `return w.verify("rowset")`: the named check must prove that the operation is ready."""

    name: str


@dataclass(frozen=True, slots=True)
class Started:
    """What start returns if the remote answered more than a handle: `Started(handle, Wait("10s"))`."""

    handle: Any
    """What the look needs to find the operation; None only if the verdict is `Done` or `Fail`."""
    verdict: Verdict = field(default_factory=Wait)
    """`Done` or `Fail`: the operation has ended already. `Wait(after)`: the first look comes no sooner."""

    def __post_init__(self) -> None:
        if not isinstance(self.verdict, (Done, Fail, Wait)):
            raise BadInput(f"Started(…, {shown(self.verdict)}): write Done(…), Fail(…) or Wait(…) after the handle")
