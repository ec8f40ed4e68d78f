"""Written options: reads the options of a service from a file or a request, where they are plain tables.

Promises: a mistake raises `BadInput`, which names the key and says what to write. A literal password or token is
refused, because it would be stored; no message repeats it.
"""

import difflib
import inspect
from collections.abc import Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from everpoll.errors import BadInput
from everpoll.http.environment import references
from everpoll.http.secrets import HARMLESS, TELLING
from everpoll.monitors.alerting import Alert
from everpoll.monitors.options import ServiceOptions
from everpoll.policy import Backoff, Breaker, shown

OPTIONS = frozenset(ServiceOptions.__annotations__)
NESTED: dict[str, type[Alert | Breaker | Backoff]] = {"alert": Alert, "breaker": Breaker, "backoff": Backoff}
# Keys that users of other tools write, and ours.
_CALLED = {"url": ["target"], "interval": ["every"], "service": ["services"], "channel": ["channels"]}
# TOML has no null: there, false says that a service is to have none.
_MAY_BE_FALSE = frozenset({"breaker", "backoff"})

T = TypeVar("T")


def written_options(table: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the options of one entry; nested tables become objects such as `Alert`."""
    check_known(table, known, "key")
    options = {key: value for key, value in table.items() if key in OPTIONS}
    for key, kind in NESTED.items():
        if key in options:
            options[key] = _nested(key, kind, options[key])
    refuse_literal_secrets(options.get("headers"))
    return options


def _nested(key: str, kind: type[T], value: Any) -> T | None:
    if (value is False or value is None) and key in _MAY_BE_FALSE:
        return None
    try:
        names = tuple(inspect.signature(kind).parameters)
        if not isinstance(value, dict):
            none = f", or {key} = false for none" if key in _MAY_BE_FALSE else ""
            raise BadInput(f"{shown(value)}: must be a table of {', '.join(names)}{none}")
        check_known(value, names, "key")
        if key == "backoff" and "initial" not in value:
            raise BadInput('initial is missing; write {initial = "1s", factor = 2, cap = "5m"}')
        return kind(**value)
    except BadInput as error:
        raise BadInput(f"{key}: {error}") from None


def refuse_literal_secrets(headers: Any) -> None:
    """Raise `BadInput` for a header that has the name of a secret and a literal value."""
    if not isinstance(headers, dict):
        return
    for name, value in headers.items():
        is_telling = TELLING.search(name) and name.lower() not in HARMLESS
        if is_telling and isinstance(value, str) and not references({name: value}):
            raise BadInput(
                f"headers: the value of {shown(name)[1:-1]} is written out, and is stored with the service; "
                f"keep the secret in the environment and write ${{NAME}} for it"
            )


def refuse_password(target: str) -> None:
    """Raise `BadInput` for an address that has a user or a password in it."""
    try:
        has_password = "@" in urlsplit(target).netloc
    except ValueError:
        return  # Registering the target raises the error.
    if has_password:
        raise BadInput(
            "target: must not have a user or a password in it, because it is stored with the service; "
            "keep the base64 of user:password in the environment, and send the header Authorization: Basic ${NAME}"
        )


def check_known(table: Mapping[str, Any], known: Collection[str], what: str) -> None:
    """Raise `BadInput` for the first unknown key, with the known key that is most like it."""
    for key in table:
        if key not in known:
            near = _CALLED.get(key, difflib.get_close_matches(key[:100], known, 1))
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise BadInput(f"there is no {what} {shown(key)}; {hint}")
