"""everpoll: durable polling for Python. Look, judge, decide when to look again."""

from everpoll.app import Everpoll
from everpoll.errors import BadDuration, BadInput, EverpollError, EverpollWarning, LoopNotFound, NotRunning
from everpoll.loops import Failed, Loop, LoopPolicy, LoopState, Ok, Outcome, Phase, Stop
from everpoll.policy import Adaptive, Backoff, Breaker, Budget, PauseReason, Snooze
from everpoll.version import __version__

__all__ = [
    "Adaptive",
    "Backoff",
    "BadDuration",
    "BadInput",
    "Breaker",
    "Budget",
    "Everpoll",
    "EverpollError",
    "EverpollWarning",
    "Failed",
    "Loop",
    "LoopNotFound",
    "LoopPolicy",
    "LoopState",
    "NotRunning",
    "Ok",
    "Outcome",
    "PauseReason",
    "Phase",
    "Snooze",
    "Stop",
    "__version__",
]
