"""plain: the body is not read; the HTTP status says everything."""

from everpoll.monitors.gathering import Gathering

NAME = "plain"


def read(_body: object, _into: Gathering) -> None:
    """Leave the decision to the HTTP status."""
