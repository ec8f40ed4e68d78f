"""Mapping: tells where a JSON body of any shape has its dependencies, and the names of their fields.

    {"root": "checks", "fields": {"name": "$key", "healthy": {"field": "status", "equals": "UP"}}}

Promises: compiling checks the whole mapping, and each error names the field, the value and what to write. Mappings of
Depsera work unchanged. A compiled mapping is frozen; any number of threads can use it.
"""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from everpoll.errors import BadInput
from everpoll.monitors.formats.prometheus import LABELS, METRICS, MetricNames, metric_names
from everpoll.monitors.paths import Path, parse_path
from everpoll.policy import number, shown

MAX_WORDS = 100
"""How many words one `in` or `warn` may have, and how many names `metrics` or `labels`."""
_UNITS_MS = {"ms": 1.0, "s": 1000.0, "us": 0.001}
_COMPARABLE = {"latency", "impact", "description", "type"}
_PATHS_ONLY = {"checkDetails", "contact", "error", "errorMessage"}
_FIELDS = ("name", "healthy", "latency", "impact", "description", "type", "skipped", *sorted(_PATHS_ONLY))
_KEY = "$key"


class Comparison(Struct, frozen=True):
    """A path to a value, and the words that mean yes."""

    path: Path
    accepted: frozenset[str] | None = None
    """None: the value is a boolean or a common word such as "ok"."""
    warned: frozenset[str] = frozenset()


class SchemaMapping(Struct, frozen=True, kw_only=True):
    """A compiled mapping of JSON."""

    root: Path
    root_text: str
    name: Path | None
    """None: the key of the item."""
    healthy: Comparison
    skipped: Comparison | None = None
    latency: Path | None = None
    latency_unit_ms: float = 1.0
    impact: Path | None = None
    description: Path | None = None
    type: Path | None = None
    check_details: Path | None = None
    contact: Path | None = None
    error: Path | None = None
    error_message: Path | None = None


CompiledMapping: TypeAlias = SchemaMapping | MetricNames


def compile_mapping(mapping: Mapping[str, Any] | CompiledMapping) -> CompiledMapping:
    """Check a mapping of JSON (`root`, `fields`) or of metrics (`metrics`, `labels`); `BadInput` says what is wrong."""
    if isinstance(mapping, SchemaMapping | MetricNames):
        return mapping
    if not isinstance(mapping, Mapping):
        raise BadInput(f"mapping={shown(mapping)}: not a mapping; write an object with root and fields")
    if "metrics" in mapping or "labels" in mapping:
        return _compile_metrics(mapping)
    return _compile_schema(mapping)


def word_of(value: Any) -> str | None:
    """Return a value as a word to compare: in lower case, numbers as in JSON; None if the value is not a word."""
    if isinstance(value, str):
        return value.lower()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e21
        return str(int(value)) if whole else repr(value).replace("e-0", "e-")
    return str(value) if isinstance(value, int) and abs(value) < 10**100 else None


def _compile_schema(mapping: Mapping[str, Any]) -> SchemaMapping:
    _check_keys(mapping, ("root", "fields"), "mapping")
    root, fields = mapping.get("root"), mapping.get("fields")
    if not isinstance(root, str):
        raise BadInput(f'mapping.root={shown(root)}: not a path; write "" for the top level of the body')
    if not isinstance(fields, Mapping):
        raise BadInput(f"mapping.fields={shown(fields)}: not an object; write at least name and healthy")
    _check_keys(fields, _FIELDS, "mapping.fields")
    for required in ("name", "healthy"):
        if required not in fields:
            raise BadInput(f"mapping.fields.{required} is missing; name and healthy are required")
    paths = {field: _path(fields, field) for field in sorted(_COMPARABLE | _PATHS_ONLY)}
    return SchemaMapping(
        root=parse_path(root, name="mapping.root") if root.strip() else (),
        root_text=root,
        name=None if fields["name"] == _KEY else parse_path(fields["name"], name="mapping.fields.name"),
        healthy=_comparison(fields["healthy"], "healthy"),
        skipped=_comparison(fields["skipped"], "skipped") if "skipped" in fields else None,
        latency=paths["latency"],
        latency_unit_ms=_latency_unit_ms(fields.get("latency")),
        impact=paths["impact"],
        description=paths["description"],
        type=paths["type"],
        check_details=paths["checkDetails"],
        contact=paths["contact"],
        error=paths["error"],
        error_message=paths["errorMessage"],
    )


def _path(fields: Mapping[str, Any], field: str) -> Path | None:
    """Return the path of an optional field; None if it is left out, or if it is a comparison, which gives no value."""
    value, parameter = fields.get(field), f"mapping.fields.{field}"
    if field not in fields:
        return None
    if field == "latency" and isinstance(value, Mapping) and "unit" in value:
        _check_keys(value, ("field", "unit"), parameter)
        value = value.get("field")
    elif field in _COMPARABLE and isinstance(value, Mapping):
        _comparison(value, field)
        return None
    _refuse_key(value, parameter)
    return parse_path(value, name=parameter)


def _latency_unit_ms(latency: object) -> float:
    if not isinstance(latency, Mapping) or "unit" not in latency:
        return 1.0
    return _unit_ms(latency["unit"], "mapping.fields.latency.unit")


def _unit_ms(unit: object, parameter: str) -> float:
    if not isinstance(unit, str) or unit not in _UNITS_MS:
        raise BadInput(f"{parameter}={shown(unit)}: not a unit; write ms, s or us")
    return _UNITS_MS[unit]


def _comparison(value: object, field: str) -> Comparison:
    parameter = f"mapping.fields.{field}"
    if not isinstance(value, Mapping):
        _refuse_key(value, parameter)
        return Comparison(parse_path(value, name=parameter))
    _check_keys(
        value, ("field", "equals", "in", "warn") if field == "healthy" else ("field", "equals", "in"), parameter
    )
    if ("equals" in value) == ("in" in value):
        raise BadInput(f"{parameter}={shown(dict(value))}: write either equals or in beside field")
    accepted = [value["equals"]] if "equals" in value else value["in"]
    warned = value.get("warn", ())
    comparison = Comparison(
        parse_path(value.get("field"), name=f"{parameter}.field"),
        _words(accepted, f"{parameter}.{'equals' if 'equals' in value else 'in'}"),
        _words(warned, f"{parameter}.warn") if warned != () else frozenset(),
    )
    both = sorted((comparison.accepted or frozenset()) & comparison.warned)
    if both:
        raise BadInput(f"{parameter}.warn: {shown(both[0])} cannot mean both up and degraded")
    return comparison


def _words(values: object, parameter: str) -> frozenset[str]:
    if isinstance(values, str | Mapping) or not isinstance(values, Collection) or not 0 < len(values) <= MAX_WORDS:
        raise BadInput(f"{parameter}={shown(values)}: write a list of 1 to {MAX_WORDS} words")
    words = set()
    for value in values:
        word = word_of(value)
        if not word:
            raise BadInput(f"{parameter}: {shown(value)} is not a word; write texts, numbers, true or false")
        words.add(word)
    return frozenset(words)


def _compile_metrics(mapping: Mapping[str, Any]) -> MetricNames:
    _check_keys(mapping, ("metrics", "labels", "latency_unit", "healthy_value"), "mapping")
    healthy_value = mapping.get("healthy_value", 1)
    return metric_names(
        _targets(mapping.get("metrics", {}), METRICS, "mapping.metrics"),
        _targets(mapping.get("labels", {}), LABELS, "mapping.labels"),
        _unit_ms(mapping.get("latency_unit", "ms"), "mapping.latency_unit"),
        number(healthy_value, name="mapping.healthy_value", accepted="a number, such as 1", at_least=-1e308),
    )


def _targets(names: object, defaults: dict[str, str], parameter: str) -> dict[str, str]:
    targets = sorted(set(defaults.values()))
    if not isinstance(names, Mapping) or len(names) > MAX_WORDS:
        raise BadInput(f"{parameter}={shown(names)}: write an object of at most {MAX_WORDS} names")
    seen: dict[str, str] = {}
    for key, target in names.items():
        if not isinstance(key, str) or not key.strip() or len(key) > 200:
            raise BadInput(f"{parameter}: {shown(key)} is not a name")
        if target not in targets:
            raise BadInput(f"{parameter}.{key}={shown(target)}: not a field; write {', '.join(targets)}")
        if target in seen:
            raise BadInput(f"{parameter}: both {seen[target]} and {key} stand for {target}; write one of them")
        seen[target] = key
    return {key: target for target, key in seen.items()}


def _check_keys(value: Mapping[str, Any], known: tuple[str, ...], parameter: str) -> None:
    for key in value:
        if key not in known:
            raise BadInput(f"{parameter}: {shown(key)} is not known; write {', '.join(known)}")


def _refuse_key(value: object, parameter: str) -> None:
    if value == _KEY:
        raise BadInput(f'{parameter}="$key": only the name can be the key of the item; write a path')
