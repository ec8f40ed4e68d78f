"""The app: the object that a program creates. This is the only package that imports every other."""

from everpoll.app.everpoll import Companion, Everpoll

__all__ = ["Companion", "Everpoll"]
