"""FunctionChannel: a function of the user as a channel; async ones run in the event loop, plain ones in a thread.

Promises: if the function returns, the message is delivered. If it raises, the message is not delivered, and the
function is called again, with the same message or a larger one. If it takes longer than TIMEOUT_S, the message may be
delivered, and the function is not called with it again.
"""

from collections.abc import Callable
from typing import Any

from everpoll.engine.calls import Callee
from everpoll.errors import JobTimeout
from everpoll.monitors.alerting import Message
from everpoll.monitors.alerts.channel import MAX_ERROR_CHARS, Tools, Undelivered
from everpoll.monitors.alerts.letter import Letter, one_line

TIMEOUT_S = 60.0


class FunctionChannel:
    """Calls a function with each `Message`."""

    drops_repeats = False

    def __init__(self, function: Callable[[Message], Any]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"<FunctionChannel {getattr(self._function, '__qualname__', type(self._function).__name__)}>"

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Call the function; see `Channel`."""
        call = Callee(self._function, TIMEOUT_S, lambda: tools.threads)
        try:
            await call(letter.message)
        except JobTimeout as error:
            raise Undelivered(f"its function {error}", is_certain=False) from None
        except Exception as error:
            why = f"its function raised {type(error).__name__}: {error}"
            raise Undelivered(one_line(why, MAX_ERROR_CHARS), is_certain=True) from error
