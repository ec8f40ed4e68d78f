"""Interleaved rounds: every competitor once a round, each round from another one on; medians are taken at the end.

Promises: a competitor that fails is reported and left out, and never costs the others their results.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.arm import Answer, Arm, ArmFailed
from bench.progress import Progress


@dataclass(slots=True)
class Samples:
    """What each arm answered, round by round."""

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, arm: str, figure: str = "rate") -> list[float]:
        """One figure of one arm over the rounds."""
        return [answer[figure] for answer in self.answers.get(arm, []) if figure in answer]

    @property
    def noisy(self) -> str:
        """How many timed pieces began on a machine that was not quiet."""
        answers = [one for taken in self.answers.values() for one in taken]
        starts = [start for one in answers for start in one.get("quiet", [])]
        foreign = [one["foreign"] for one in answers if "foreign" in one]
        used = f", and others used {median(foreign):.0%} of it meanwhile (median)" if foreign else ""
        return f"{starts.count(False)} of {len(starts)} timed pieces began although the machine was not quiet{used}"


def interleaved(
    bench: str, arms: Sequence[Arm], count: int, measure: Callable[[Arm], Answer], shown: str = "rate"
) -> Samples:
    """Measure every arm `count` times. One that fails is not tried again."""
    progress = Progress(bench)
    samples = Samples({arm.name: [] for arm in arms})
    broken: set[str] = set()
    for number, arm in _turns(arms, count):
        if arm.name in broken:
            continue
        progress.begin(f"round {number}/{count}, {arm.name}")
        try:
            answer = measure(arm)
        except ArmFailed as error:
            broken.add(arm.name)
            samples.failures.append(f"failed and left out: {error.brief}")
            progress.end(f"FAILED: {error}")
            continue
        samples.answers[arm.name].append(answer)
        progress.end(f"{answer[shown]:,.0f}" if shown in answer else "done")
    return samples


def _turns(arms: Sequence[Arm], count: int) -> Iterator[tuple[int, Arm]]:
    for number in range(count):
        start = number % len(arms)
        for arm in [*arms[start:], *arms[:start]]:
            yield number + 1, arm
