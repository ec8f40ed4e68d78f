"""Channels from a configuration file: the tables `[channels.NAME]` of everpoll.toml. Pure.

    [channels.ops]
    type = "webhook"                      # or "slack", "email"
    url = "https://ops.example.com/hook"
    secret = "${OPS_SECRET}"
    group = "30s"                         # of every type; default: one minute

Promises: each error names the channel and says what to write. A secret must be a reference to the environment, because
files are copied, committed and shown.
"""

from collections.abc import Callable, Mapping
from typing import Any

from everpoll.errors import BadInput
from everpoll.monitors.alerts.channel import Channel
from everpoll.monitors.alerts.channels import RegisteredChannel, registered
from everpoll.monitors.alerts.mail import Email
from everpoll.monitors.alerts.webhook import Slack, Webhook
from everpoll.policy import shown

_TYPES: dict[str, tuple[Callable[..., Channel], frozenset[str], frozenset[str]]] = {
    # The class, its required options, and its optional ones.
    "webhook": (Webhook, frozenset({"url"}), frozenset({"secret", "headers"})),
    "slack": (Slack, frozenset({"url"}), frozenset()),
    "email": (Email, frozenset({"host", "to", "sender"}), frozenset({"port", "user", "password", "tls", "ca_file"})),
}
_SECRETS = ("secret", "password")


def channels_of(tables: Any) -> dict[str, RegisteredChannel]:
    """Read the table `channels` of a configuration file."""
    if not isinstance(tables, Mapping):
        raise BadInput(f"channels: must be tables; write [channels.ops], not {shown(tables)}")
    return {name: _channel(name, table) for name, table in tables.items()}


def _channel(name: str, table: Any) -> RegisteredChannel:
    where = f"[channels.{name}]"
    if not isinstance(table, Mapping):
        raise BadInput(f"{where}: must be a table, not {shown(table)}")
    options = dict(table)
    kind, group = options.pop("type", None), options.pop("group", None)
    if kind not in _TYPES:
        raise BadInput(f"{where}: type={shown(kind)}: write one of {', '.join(_TYPES)}")
    make, needed, optional = _TYPES[kind]
    if missing := sorted(needed - options.keys()):
        raise BadInput(f"{where}: {missing[0]} is missing")
    if unknown := sorted(options.keys() - needed - optional):
        known = ", ".join(sorted({"type", "group", *needed, *optional}))
        raise BadInput(f"{where}: there is no option {unknown[0]!r}; there are {known}")
    for option in _SECRETS:
        value = options.get(option)
        if value is not None and not (isinstance(value, str) and value.startswith("${") and value.endswith("}")):
            raise BadInput(f'{where}: {option} must be a reference to the environment; write {option} = "${{NAME}}"')
    try:
        return registered(name, make(**options), group)
    except BadInput as error:
        raise type(error)(f"{where}: {error}") from None
