"""Safe definition: a service's definition without header values, passwords, queries and tokens, to be shown.

A definition may contain secrets that its author wrote or imported: they are stored in the database, and nothing prints
them. Pure.
"""

import re
from typing import Any

import msgspec
from msgspec.structs import asdict

from everpoll.http.secrets import HARMLESS, MASK
from everpoll.monitors.checks.assignment import Assignment
from everpoll.monitors.definition import Definition
from everpoll.monitors.targets import shown_target

_REFERENCES = re.compile(r"(?:[A-Za-z]+ )?(?:\$\{[A-Za-z_]\w*\}[ ;,:]*)+")


def safe_definition(definition: Definition) -> dict[str, Any]:
    """Return a definition for people and scripts; header values are masked, except references to the environment."""
    fields: dict[str, Any] = msgspec.to_builtins(asdict(definition))
    fields["target"] = shown_target(definition.target)
    fields["headers"] = {name: _safe_header(name, value) for name, value in definition.headers.items()}
    fields["witness"] = [shown_target(one) for one in definition.witness]
    # It is a hash of hidden values, so a guess could be compared with it.
    del fields["fetch"]
    return fields


def safe_arguments(args: Any) -> Any:
    """Return the arguments of a service's task without secrets; a mask if they cannot be read."""
    try:
        assignment = msgspec.convert(args, Assignment)
    except msgspec.ValidationError:
        return MASK
    fields: dict[str, Any] = msgspec.to_builtins(asdict(assignment) | {"definition": None})
    return fields | {"definition": safe_definition(assignment.definition)}


def _safe_header(name: str, value: str) -> str:
    return value if name.lower() in HARMLESS or _REFERENCES.fullmatch(value) else MASK
