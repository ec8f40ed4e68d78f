"""What a caller has ordered for one run: time and looks that are added to its budget, and its pause.

Both are stored with the operation, in the arguments of the run's task. A running look writes the run's memory and never
its arguments, so it can undo neither.
"""

from typing import Any

import msgspec
from msgspec import Struct

from everpoll.policy import LONGEST_S, Budget, human
from everpoll.stores.contract import encode

KEY = "everpoll.extended"
_START = f'{{"{KEY}":'
LOOKS_LIMIT = 1_000_000


class RunPause(Struct, frozen=True, omit_defaults=True):
    """Why a run is paused, and by which actor."""

    reason: str = ""
    by: str = ""

    def __str__(self) -> str:
        by = f"paused by {self.by}" if self.by else "paused"
        return f"{by}: {self.reason}" if self.reason else by


class Extension(Struct, frozen=True, omit_defaults=True):
    """The sum of all extensions of a run, and its pause."""

    time_s: float = 0.0
    looks: int = 0
    pause: RunPause | None = None
    """None: it is not paused. Releases that do not know the field go on looking."""

    def __add__(self, more: "Extension") -> "Extension":
        time_s, looks = self.time_s + more.time_s, self.looks + more.looks
        return Extension(min(time_s, LONGEST_S), min(looks, LOOKS_LIMIT), self.pause)

    def __bool__(self) -> bool:
        return self.time_s > 0 or self.looks > 0

    def __str__(self) -> str:
        parts = [human(self.time_s)] if self.time_s else []
        parts += [f"{self.looks} {'look' if self.looks == 1 else 'looks'}"] if self.looks else []
        return " and ".join(parts) or "nothing"

    def grown(self, budget: Budget) -> Budget:
        """Return the budget with this extension; a budget without a limit of looks stays without one."""
        looks = None if budget.looks is None else budget.looks + self.looks
        return Budget(min(budget.time_s + self.time_s, LONGEST_S), looks)


NONE = Extension()


class _Wrapped(Struct, rename={"extension": KEY}):
    extension: Extension
    op: Any


def with_extension(op: Any, extension: Extension) -> str:
    """Return the arguments of a run with this extension of its budget."""
    return encode(_Wrapped(extension, op))


def extension_of(text: str) -> Extension:
    """Read the extension from stored arguments; without one, nothing is decoded."""
    return read_args(text)[1] if text.startswith(_START) else NONE


def read_args(text: str) -> tuple[Any, Extension]:
    """Read the operation and the extension from stored arguments."""
    if not text.startswith(_START):
        return msgspec.json.decode(text), NONE
    return split_args(msgspec.json.decode(text))


def split_args(args: Any) -> tuple[Any, Extension]:
    """Read the operation and the extension from decoded arguments."""
    if not (isinstance(args, dict) and args.keys() == {KEY, "op"}):
        return args, NONE
    wrapped = msgspec.convert(args, _Wrapped)
    return wrapped.op, wrapped.extension
