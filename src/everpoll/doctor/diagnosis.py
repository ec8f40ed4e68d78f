"""The diagnosis: checks, each with a level, the evidence in words, and a remedy."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warning", "problem"]
LEVELS: tuple[Level, ...] = ("ok", "warning", "problem")
LISTED = 5
"""How many names one finding lists; the others are counted."""


class Verdict(Struct, frozen=True):
    """The result of one judgement."""

    level: Level
    says: str
    remedy: str = ""


class Check(Struct, frozen=True, kw_only=True):
    """One check of the doctor."""

    name: str
    level: Level
    says: str
    """The evidence, in words."""
    remedy: str
    """What to do; empty where there is nothing to do."""


class Diagnosis(Struct, frozen=True):
    """All checks; `ok` is True if the level of each is ok."""

    ok: bool
    checks: tuple[Check, ...]

    @property
    def worst(self) -> Level:
        """The level of the worst check."""
        return max((one.level for one in self.checks), key=LEVELS.index, default="ok")


def fine(says: str) -> Verdict:
    """Return the verdict that nothing needs to be done."""
    return Verdict("ok", says)


def warning(says: str, remedy: str) -> Verdict:
    """Return the verdict that a part works, but badly, or not for long."""
    return Verdict("warning", says, remedy)


def problem(says: str, remedy: str) -> Verdict:
    """Return the verdict that a part does not work."""
    return Verdict("problem", says, remedy)


def worst_of(verdicts: Iterable[Verdict], otherwise: Verdict) -> Verdict:
    """Combine several findings: the worst level, and all their texts, the worst first."""
    found = sorted(verdicts, key=lambda one: -LEVELS.index(one.level))
    if not found:
        return otherwise
    remedies = dict.fromkeys(one.remedy for one in found if one.remedy)
    return Verdict(found[0].level, "; ".join(one.says for one in found), "; ".join(remedies))


def listed(names: Iterable[str]) -> str:
    """Write names for people: the first few, and how many more."""
    found = list(names)
    more = len(found) - LISTED
    return ", ".join(found[:LISTED]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Write a number with its noun: `1 task`, `2,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sized(size_bytes: int) -> str:
    """Write a size for people."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"
