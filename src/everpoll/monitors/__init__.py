"""Monitors: the health of services and of what they depend on.

A name is imported when it is first used: an app without services loads almost nothing of this package.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from everpoll.monitors.alerting import Alert, Message
    from everpoll.monitors.alerts.channel import Channel, Undelivered
    from everpoll.monitors.alerts.incidents import IncidentInfo
    from everpoll.monitors.alerts.mail import Email
    from everpoll.monitors.alerts.maintenance_windows import PlannedWindow
    from everpoll.monitors.alerts.signing import is_authentic
    from everpoll.monitors.alerts.webhook import Slack, Webhook
    from everpoll.monitors.events import ServiceEvent, StatusChange
    from everpoll.monitors.info import ServiceInfo
    from everpoll.monitors.maintenance import Window, once, weekly
    from everpoll.monitors.mapping import compile_mapping
    from everpoll.monitors.options import ServiceOptions
    from everpoll.monitors.reading import FORMATS, checksum, read
    from everpoll.monitors.report import Dependency, Report, Status
    from everpoll.monitors.service import Service
    from everpoll.monitors.services import Services

__all__ = [
    "FORMATS",
    "Alert",
    "Channel",
    "Dependency",
    "Email",
    "IncidentInfo",
    "Message",
    "PlannedWindow",
    "Report",
    "Service",
    "ServiceEvent",
    "ServiceInfo",
    "ServiceOptions",
    "Services",
    "Slack",
    "Status",
    "StatusChange",
    "Undelivered",
    "Webhook",
    "Window",
    "checksum",
    "compile_mapping",
    "is_authentic",
    "once",
    "read",
    "weekly",
]

_NAMES = {
    "everpoll.monitors.alerting": "Alert Message",
    "everpoll.monitors.alerts.channel": "Channel Undelivered",
    "everpoll.monitors.alerts.incidents": "IncidentInfo",
    "everpoll.monitors.alerts.mail": "Email",
    "everpoll.monitors.alerts.maintenance_windows": "PlannedWindow",
    "everpoll.monitors.alerts.signing": "is_authentic",
    "everpoll.monitors.alerts.webhook": "Slack Webhook",
    "everpoll.monitors.events": "ServiceEvent StatusChange",
    "everpoll.monitors.info": "ServiceInfo",
    "everpoll.monitors.maintenance": "Window once weekly",
    "everpoll.monitors.mapping": "compile_mapping",
    "everpoll.monitors.options": "ServiceOptions",
    "everpoll.monitors.reading": "FORMATS checksum read",
    "everpoll.monitors.report": "Dependency Report Status",
    "everpoll.monitors.service": "Service",
    "everpoll.monitors.services": "Services",
}
"""The module of each name, for the interpreter. Type checkers read the imports above."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'everpoll.monitors' has no attribute {name!r}")
        found = globals()[name] = getattr(_importlib.import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
