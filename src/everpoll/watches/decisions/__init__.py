"""The decisions of watches, as pure functions: no clock, no randomness, no I/O.

    decide(policy, memory, event, now, chance) → (memory, plan)

`events.py` has what can happen to a run, `plans.py` what it does next. The rules are in `starting.py`, `looking.py`,
`canceling.py` and `cleaning.py`; `draft.py` has what they share.
"""

from everpoll.watches.decisions.decide import decide

__all__ = ["decide"]
