"""Monitors: the health of services and of what they depend on."""

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
from everpoll.monitors.read import FORMATS, checksum, read
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
