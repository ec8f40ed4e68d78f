"""The events of a loop, and the effects that the reducer returns for the shell to carry out.

Both are plain data with a `type` tag, so that the conformance vectors can be decoded directly.
"""

from enum import StrEnum

from msgspec import Struct

from everpoll.loops.state import Outcome
from everpoll.policy import PauseReason


class Start(Struct, frozen=True, gc=False, tag="start"):
    """The app has started, or the loop was registered while it runs."""


class Tick(Struct, frozen=True, gc=False, tag="tick"):
    """The deadline has come. `condition` is the answer of the condition, or the text of its error."""

    condition: bool | str = True


class Finished(Struct, frozen=True, gc=False, tag="finished"):
    """Run number `run`, begun in `generation`, has ended."""

    run: int
    generation: int
    outcome: Outcome


class Overran(Struct, frozen=True, gc=False, tag="overran"):
    """Run number `run`, begun in `generation`, has failed by its timeout, but its thread still runs."""

    run: int
    generation: int
    outcome: Outcome


class Trigger(Struct, frozen=True, gc=False, tag="trigger"):
    """The caller of `trigger()` wants a run now."""

    force: bool = False


class Pause(Struct, frozen=True, gc=False, tag="pause"):
    """One more reason not to run."""

    reason: PauseReason = PauseReason.OPERATOR


class Resume(Struct, frozen=True, gc=False, tag="resume"):
    """One reason fewer; `position` is the place among the stale loops that resume together."""

    reason: PauseReason = PauseReason.OPERATOR
    position: int = 0


class Reset(Struct, frozen=True, gc=False, tag="reset"):
    """Forget the failures; the base interval holds from now on."""


class Replace(Struct, frozen=True, gc=False, tag="replace"):
    """The name was registered again: the policy handed to the reducer is the new one."""


class PushUp(Struct, frozen=True, gc=False, tag="push_up"):
    """A push channel is connected: polling becomes the safety net."""


class PushDown(Struct, frozen=True, gc=False, tag="push_down"):
    """The push channel is lost: polling returns to the ordinary interval."""


class Close(Struct, frozen=True, gc=False, tag="close"):
    """Make no more runs, and cancel the running one."""


Event = Start | Tick | Finished | Overran | Trigger | Pause | Resume | Reset | Replace | PushUp | PushDown | Close


class Effect(StrEnum):
    """What the shell does after a step, in addition to setting the timer to `state.next_due`."""

    NONE = "none"
    RUN = "run"
    """Start run number `state.in_flight`."""
    JOIN = "join"
    """The trigger shares the one follow-up of the run under way."""
    SKIP = "skip"
    """The trigger (or the follow-up run) does not run: answer the callers that wait for it."""
    CANCEL = "cancel"
    """Cancel the run under way."""
