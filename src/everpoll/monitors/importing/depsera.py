"""Depsera: a manifest of version 1, as its teams keep it in JSON.

services      → services; `key` is only used to follow associations
aliases       → aliases
associations  → `depends_on`, where both ends are in this manifest
canonical_overrides, descriptions and metrics endpoints have no counterpart in everpoll, and are listed in the notes
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from everpoll.errors import BadInput
from everpoll.monitors.bounds import quoted
from everpoll.monitors.importing.imported import Collecting, Imported, every
from everpoll.monitors.mapping import compile_mapping
from everpoll.policy import shown

_SECTIONS = {"version", "services", "aliases", "canonical_overrides", "associations"}
_SERVICE_FIELDS = {
    *("key", "name", "health_endpoint", "description", "metrics_endpoint", "poll_interval_ms", "schema_config"),
    "health_endpoint_format",
}
_LONGEST_MS = 1e12
_NOT_CARRIED = {"description": "its description", "metrics_endpoint": "its metrics endpoint"}


def from_depsera(manifest: object) -> Imported:
    """Translate a parsed manifest; raise `BadInput` if it is not one."""
    if not isinstance(manifest, Mapping):
        raise BadInput(f"manifest={shown(manifest)}: not an object")
    if manifest.get("version") != 1:
        raise BadInput(f"manifest: version={shown(manifest.get('version'))}; only version 1 is known")
    services = manifest.get("services")
    if not isinstance(services, list):
        raise BadInput(f"manifest: services={shown(services)}; must be a list")
    into = Collecting()
    for section in manifest:
        if section not in _SECTIONS:
            into.note("manifest", f"{quoted(section)} is not known, and not carried over")
    names_by_key: dict[str, str] = {}
    for number, entry in enumerate(services):
        _service(f"services[{number}]", entry, names_by_key, into)
    _each(manifest, "aliases", into, _alias)
    _each(manifest, "canonical_overrides", into, _override)
    _each(manifest, "associations", into, lambda about, entry, into: _association(about, entry, names_by_key, into))
    return into.result()


def _service(about: str, entry: Any, names_by_key: dict[str, str], into: Collecting) -> None:
    if not isinstance(entry, Mapping):
        into.note(about, "left out: not an object")
        return
    name, key = entry.get("name"), entry.get("key")
    name = name.strip() if isinstance(name, str) and name.strip() else key
    # Depsera tells services apart by their keys, and lets them share a name.
    if isinstance(key, str) and isinstance(name, str) and into.has(name):
        into.note(about, f"another service is named {quoted(name)}, so this one is named by its key {quoted(key)}")
        name = key
    about = f"service {quoted(name)}" if isinstance(name, str) else about
    definition: dict[str, Any] = {"name": name, "target": entry.get("health_endpoint")}
    if not _add_reading(about, entry, definition, into):
        return
    interval = entry.get("poll_interval_ms")
    if isinstance(interval, int | float) and not isinstance(interval, bool) and 0 < interval < _LONGEST_MS:
        definition["every"] = every(about, interval / 1000, into)
    elif interval is not None:
        into.note(about, f"poll_interval_ms {quoted(interval)} is not an interval; the default of 30s holds")
    if into.add(about, definition):
        if isinstance(key, str):
            names_by_key[key] = str(name)
        _note_rest(about, entry, into)


def _add_reading(about: str, entry: Mapping[str, Any], definition: dict[str, Any], into: Collecting) -> bool:
    """Add format and mapping; return False if the service pushes its health instead of being looked at."""
    named = entry.get("health_endpoint_format")
    config = entry.get("schema_config")
    match named:
        case "otlp":
            into.note(about, "left out: it pushes its health by OTLP; use a heartbeat, or an endpoint to look at")
            return False
        case "default":
            config = None
        case None | "schema" | "prometheus":
            pass
        case _:
            into.note(about, f"format {quoted(named)} is not known; the format is recognized from the body")
            definition["format"] = "auto"
            return True
    definition["format"] = "prometheus" if named == "prometheus" else "proactive-deps"
    if config is not None:
        try:
            mapping = msgspec.json.decode(config) if isinstance(config, str) else config
            compile_mapping(mapping)
        except ValueError as wrong:
            into.note(about, f"its schema_config is not carried over, and the format is recognized: {wrong}")
            definition["format"] = "auto"
        else:
            definition["format"] = "prometheus" if named == "prometheus" else "mapping"
            definition["mapping"] = dict(mapping)
    return True


def _note_rest(about: str, entry: Mapping[str, Any], into: Collecting) -> None:
    for field, words in _NOT_CARRIED.items():
        if entry.get(field):
            into.note(about, f"{words} is not carried over")
    for field in entry:
        if field not in _SERVICE_FIELDS:
            into.note(about, f"{quoted(field)} is not known, and not carried over")


def _each(manifest: Mapping[str, Any], section: str, into: Collecting, translate: Any) -> None:
    entries = manifest.get(section)
    if entries is None:
        return
    if not isinstance(entries, list):
        into.note(section, "left out: not a list")
        return
    for number, entry in enumerate(entries):
        about = f"{section}[{number}]"
        if isinstance(entry, Mapping):
            translate(about, entry, into)
        else:
            into.note(about, "left out: not an object")


def _alias(about: str, entry: Mapping[str, Any], into: Collecting) -> None:
    alias, canonical = entry.get("alias"), entry.get("canonical_name")
    if not isinstance(alias, str) or not alias.strip() or not isinstance(canonical, str) or not canonical.strip():
        into.note(about, "left out: needs alias and canonical_name")
    elif into.aliases.setdefault(alias.strip(), canonical.strip()) != canonical.strip():
        into.note(about, f"left out: {quoted(alias)} stands for {quoted(into.aliases[alias.strip()])} already")


def _override(about: str, entry: Mapping[str, Any], into: Collecting) -> None:
    fields = " and ".join(field for field in ("contact", "impact") if entry.get(field) is not None) or "nothing"
    name = quoted(entry.get("canonical_name"))
    into.note(about, f"{fields} for {name} is not carried over; everpoll shows what the services report")


def _association(about: str, entry: Mapping[str, Any], names_by_key: dict[str, str], into: Collecting) -> None:
    service, linked = entry.get("service_key"), entry.get("linked_service_key")
    dependency = quoted(entry.get("dependency_name"))
    if not isinstance(service, str) or service not in names_by_key:
        into.note(about, f"left out: the service {quoted(service)} is not imported")
        return
    name = names_by_key[service]
    # Keys of services in other manifests have their team before them.
    key = linked.rpartition("/")[2] if isinstance(linked, str) else None
    if key is None or key not in names_by_key or names_by_key[key] == name:
        into.note(about, f"left out: {dependency} of {quoted(name)} leads to {quoted(linked)}, which is not imported")
        return
    depends_on = into.service(name).setdefault("depends_on", [])
    if names_by_key[key] not in depends_on:
        depends_on.append(names_by_key[key])
