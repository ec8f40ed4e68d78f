"""References to the environment: `${NAME}` in a header or another text is replaced by the variable's value.

Promises: the value is read for each request, so a rotated secret is used at once. An error about a missing or unusable
value has the variable's name, never its value. `$${` means `${` itself.
"""

import re
from collections.abc import Mapping

from everpoll.errors import BadInput
from everpoll.http.contract import NotAsked
from everpoll.http.headers import sendable

_REFERENCE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)


def resolved(headers: Mapping[str, str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers with every reference replaced; raise `NotAsked` if a variable is missing."""
    if not any("${" in value for value in headers.values()):
        return headers
    found = {name: replaced(f"the header {name}", value, environment) for name, value in headers.items()}
    try:
        return sendable(found)
    except BadInput as error:
        raise NotAsked(f"{error}; look at the environment variables that it refers to") from None


def references(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the environment variables that these headers refer to."""
    return frozenset(found[2] for value in headers.values() for found in _REFERENCE.finditer(value) if found[2])


def replaced(what: str, value: str, environment: Mapping[str, str]) -> str:
    """Return a text with every reference replaced; raise `NotAsked`, which names `what`, if a variable is missing."""

    def of(reference: re.Match[str]) -> str:
        if reference[1]:
            return reference[1]
        found = environment.get(reference[2])
        if not found:
            raise NotAsked(f"{what} refers to ${{{reference[2]}}}, which the environment does not have")
        # Files and `echo` end a secret with a line break, which is not part of it.
        return found.strip()

    return _REFERENCE.sub(of, value)
