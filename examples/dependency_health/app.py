"""What concerns everpoll: one app, its services, and a channel for alerts."""

from collections.abc import Callable, Mapping

from everpoll import Alert, Everpoll
from everpoll.monitors import Message
from examples.dependency_health.stories import STORIES


def monitor(url: str, targets: Mapping[str, str], tell: Callable[[Message], None]) -> Everpoll:
    """Make the app that looks at all services, and tells about them."""
    app = Everpoll(url)
    app.services.configure(shortest="1s")
    app.services.channel("screen", tell, group="1s")
    app.services.alias("pg-main", "postgres")  # catalog and billing mean the same database
    for story in STORIES:
        app.service(
            story.name,
            targets[story.name],
            every="1s",
            timeout="3s",
            alert=Alert(after=2, to=["screen"]),
            **story.options,
        )
    return app
