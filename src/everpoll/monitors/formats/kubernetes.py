"""kubernetes: the text of `/healthz?verbose`, `/livez?verbose` and `/readyz?verbose`: one line for each check."""

import re

from everpoll.monitors.bounds import name, optional_text
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.report import Dependency, Status

NAME = "kubernetes"
BEGINNINGS = (b"[+]", b"[-]")
"""The beginnings of a body; no JSON begins like this."""
_LINE = re.compile(r"^\[([+-])\][ \t]*(\S+)([^\n]*)$", re.MULTILINE)


def recognizes_text(data: bytes) -> bool:
    """Tell whether the body begins with the line of a check."""
    return data.startswith(BEGINNINGS)


def read(body: object, into: Gathering) -> Status:
    """Read every line of a check."""
    if not isinstance(body, str) or (_LINE.search(body) is None and body[:10].strip() != "ok"):
        raise Unreadable("the body is neither ok nor has a line such as [+]ping ok")
    for line in _LINE.finditer(body):
        if not into.more():
            break
        sign, label, said = line[1], name(line[2]), line[3].strip()
        if sign == "+":
            into.add(Dependency(name=label, status=Status.UP, skipped=said.startswith("excluded")))
        else:
            into.add(Dependency(name=label, status=Status.DOWN, error_message=optional_text(_reason(said))))
    return into.from_parts()


def _reason(said: str) -> str:
    return said.removeprefix("failed").removeprefix(":").strip()
