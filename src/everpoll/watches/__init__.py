"""Watches: operations that run elsewhere, looked at until they have ended."""

from everpoll.watches.verdicts import Done, Fail, Verdict, Wait

__all__ = ["Done", "Fail", "Verdict", "Wait"]
