"""Paths: the way to a value inside JSON: `checks.0.status`, with `\\.` for a dot that belongs to a key."""

from typing import Any

from everpoll.errors import BadInput
from everpoll.policy import shown

Path = tuple[str, ...]
MAX_PATH_CHARS = 500
MAX_PATH_PARTS = 50


def parse_path(text: object, *, name: str) -> Path:
    """Split a path into its keys; `name` is the parameter that error messages name."""
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f'{name}={shown(text)}: not a path; write the keys with dots between them, such as "a.b.0"')
    if len(text) > MAX_PATH_CHARS:
        raise BadInput(f"{name}={shown(text)}: longer than {MAX_PATH_CHARS} characters")
    # NUL replaces an escaped dot meanwhile; stored JSON texts contain none.
    path = tuple(part.replace("\0", ".") for part in text.replace("\\.", "\0").split("."))
    if len(path) > MAX_PATH_PARTS:
        raise BadInput(f"{name}={shown(text)}: has more than {MAX_PATH_PARTS} parts")
    return path


def value_at(value: Any, path: Path) -> Any:
    """Return the value at the end of the path; None if there is none. A number reaches into a list."""
    for part in path:
        if type(value) is dict:
            value = value.get(part)
        elif type(value) is list:
            if not (part.isascii() and part.isdigit() and len(part) <= 9 and int(part) < len(value)):
                return None
            value = value[int(part)]
        else:
            return None
    return value
