"""Loops: functions of this process that run again and again, and back off when they fail."""

from everpoll.loops.loop import Loop
from everpoll.loops.options import LoopOptions, LoopPolicy
from everpoll.loops.outcome import Failed, Ok, Stop
from everpoll.loops.registry import Loops
from everpoll.loops.state import LoopState, Outcome, Phase

__all__ = ["Failed", "Loop", "LoopOptions", "LoopPolicy", "LoopState", "Loops", "Ok", "Outcome", "Phase", "Stop"]
