"""What neither the command line nor the HTTP API shows of what is stored: the values of fields that hold credentials.

A handle is a URL with a signature, an operation is a request with its headers: both are in the database, as they must
be, and `everpoll runs show` is for screens that others see. Told by their names alone. Pure.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http.secrets import MASK, rewritten

# A page's token and the key of a run are no secrets; "api_key" and "x-goog-api-key" are.
_FIELD = re.compile(
    r"authorization|cookie|passw|secret|credential|signature|^sig$|(api|access|private|account|signing)[-_]?key"
    r"|^token$|(access|refresh|id|auth|bearer|session|security|sas)[-_]?token|^auth$|session[-_]?id",
    re.IGNORECASE,
)
# Of a dependency, what its service wrote: it may repeat a secret, its own or the reader's.
_OF_DEPENDENCIES = frozenset(
    {"name", "canonical", "type", "impact", "description", "contact", "check_details", "error", "error_message"}
)
_PARAMETER = re.compile(r"(?<=[?&#;])([^=&#\s]{1,100})=([^&#\s\"']+)")
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)


Dependency = TypeVar("Dependency", bound=Struct)


def without_secrets(value: Any) -> Any:
    """The same, with *** for what a field's name, a parameter of a URL or a scheme says is a secret."""
    return rewritten(value, lambda name, text: MASK if name and text and _FIELD.search(name) else _cut(text))


def safe_dependency(one: Dependency, safe: Callable[[Any], Any] = without_secrets) -> Dependency:
    """Return a dependency, reported or stored, with its texts as they may be printed."""
    texts = _OF_DEPENDENCIES.intersection(one.__struct_fields__)
    return replace(one, **{name: safe(getattr(one, name)) for name in texts})


def _cut(text: str) -> str:
    text = _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if _FIELD.search(found[1]) else found[0], text)
    return _SCHEME.sub(rf"\1 {MASK}", _USER.sub(f"{MASK}@", text))
