"""mapping: a JSON body of any shape, read by a compiled mapping."""

from collections.abc import Iterable
from typing import Any

from everpoll.monitors.bounds import latency_ms, name, optional_text, quoted
from everpoll.monitors.gathering import Gathering, Unreadable
from everpoll.monitors.mapping import Comparison, SchemaMapping, word_of
from everpoll.monitors.paths import Path, value_at
from everpoll.monitors.report import Dependency, Status

NAME = "mapping"
# The words that are understood without `equals` or `in` in the mapping.
_YES = {"true", "ok", "healthy", "up"}
_NO = {"false", "error", "unhealthy", "down", "critical"}


def read(body: Any, into: Gathering, mapping: SchemaMapping) -> Status:
    """Read every item at the root of the mapping."""
    items = value_at(body, mapping.root)
    if isinstance(items, dict):
        pairs: Iterable[tuple[Any, Any]] = items.items()
    elif isinstance(items, list):
        if mapping.name is None:
            raise Unreadable(f'{_root(mapping)} is a list, and the mapping\'s "$key" needs an object')
        pairs = enumerate(items)
    else:
        raise Unreadable(f"{_root(mapping)} is neither an object nor a list")
    for key, item in pairs:
        if not into.more():
            break
        dependency = _read_item(key, item, mapping, into)
        if dependency is not None:
            into.add(dependency)
    return into.from_parts()


def _root(mapping: SchemaMapping) -> str:
    return f"what the mapping's root {quoted(mapping.root_text)} leads to" if mapping.root else "the body"


def _read_item(key: str | int, item: Any, mapping: SchemaMapping, into: Gathering) -> Dependency | None:
    if type(item) is not dict and type(item) is not list:
        into.warn(f"item {_shown(key)}: not an object")
        return None
    label = name(key if mapping.name is None else value_at(item, mapping.name))
    if not label:
        into.warn(f"item {_shown(key)}: its name is missing or not a text")
        return None
    is_skipped = mapping.skipped is not None and _is_yes(item, mapping.skipped)
    status = Status.UP if is_skipped else _status(label, item, mapping.healthy, into)
    if status is None:
        return None
    error = _at(item, mapping.error)
    return Dependency(
        name=label,
        status=status,
        skipped=is_skipped,
        latency_ms=latency_ms(_at(item, mapping.latency), mapping.latency_unit_ms),
        type=optional_text(_at(item, mapping.type)) or "other",
        impact=optional_text(_at(item, mapping.impact)),
        description=optional_text(_at(item, mapping.description)),
        contact=into.json_object(label, "contact", _at(item, mapping.contact)),
        check_details=into.json_object(label, "checkDetails", _at(item, mapping.check_details)),
        error=None if error is None else into.tree(label, "error", error),
        error_message=optional_text(_at(item, mapping.error_message)),
    )


def _at(item: Any, path: Path | None) -> Any:
    return None if path is None else value_at(item, path)


def _shown(key: str | int) -> str:
    return str(key) if isinstance(key, int) else quoted(key)


def _is_yes(item: Any, comparison: Comparison) -> bool:
    word = word_of(value_at(item, comparison.path))
    return word == "true" if comparison.accepted is None else word in comparison.accepted


def _status(label: str, item: Any, comparison: Comparison, into: Gathering) -> Status | None:
    value = value_at(item, comparison.path)
    if value is None:
        into.warn(f"dependency {quoted(label)}: healthy is missing")
        return None
    word = word_of(value)
    if comparison.accepted is not None:
        if word in comparison.warned:
            return Status.DEGRADED
        return Status.UP if word in comparison.accepted else Status.DOWN
    if isinstance(value, bool | str):
        if word in _YES:
            return Status.UP
        if word in _NO:
            return Status.DOWN
    into.warn(f"dependency {quoted(label)}: healthy is {quoted(value)}, which is neither yes nor no")
    return None
