"""Loops: a function of this process that runs again and again, backs off when it fails, and rests unseen."""

from everpoll.loops.loop import Loop
from everpoll.loops.options import LoopOptions, LoopPolicy
from everpoll.loops.outcome import Failed, Ok, Stop
from everpoll.loops.registry import Loops
from everpoll.loops.state import LoopState, Outcome, Phase

__all__ = ["Failed", "Loop", "LoopOptions", "LoopPolicy", "LoopState", "Loops", "Ok", "Outcome", "Phase", "Stop"]
