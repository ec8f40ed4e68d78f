"""What is replayed: a recording, the CSV with its values, and the job's configuration. Pure: text in, values out.

    {"name": "Sign up", "steps": [
        {"do": "open", "url": "/"},
        {"do": "type", "selector": "#email", "text": "${email}"},
        {"do": "click", "selector": "button"},
        {"do": "expect", "selector": "#message", "text": "Welcome, ${name}!"}]}

Promises: whatever cannot be replayed is a `BadRecording` that names the step, the line or the option, before a browser
was started. `${column}` stands for that column of the CSV, in any text of a step; other text is taken as it is.
"""

import csv
import io
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct

CSV_ROWS_LIMIT = 1_000
"""One job holds its worker for so long; more belongs into several jobs."""
PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")

T = TypeVar("T")


class BadRecording(ValueError):
    """A recording, a CSV or a configuration that cannot be replayed; the message says where, and what would do."""


class Open(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="open"):
    """Go to an address; a relative one is joined to the job's `base_url`."""

    url: str


class Click(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="click"):
    """Click on the first element that the CSS selector finds."""

    selector: str


class Type(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="type"):
    """Put this text into a field, in place of what it holds."""

    selector: str
    text: str


class Expect(Struct, frozen=True, forbid_unknown_fields=True, tag_field="do", tag="expect"):
    """The element is to be seen and, where a text is given, holds it."""

    selector: str
    text: str = ""


Step = Open | Click | Type | Expect


class Recording(Struct, frozen=True, forbid_unknown_fields=True):
    """What a user did in a browser, in order."""

    name: str
    steps: tuple[Step, ...]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The job's own settings."""

    base_url: str = ""
    timeout_s: float = 5.0
    """How long a step may take."""
    open_timeout_s: float = 30.0
    """How long a page may take to open: the first look at an application that just started is slow."""


def read_recording(value: Any) -> Recording:
    """From JSON, as text or already decoded: databases differ in what they hand out."""
    recording = _decoded("the recording", value, Recording)
    if not recording.steps:
        raise BadRecording("the recording has no steps: it needs at least one, such as {'do': 'open', 'url': '/'}")
    for number, step in enumerate(recording.steps, 1):
        if not getattr(step, "selector", "any"):
            raise BadRecording(f"step {number} ({_verb(step)}): the selector is empty; write a CSS selector")
    return recording


def read_config(value: Any) -> Config:
    """From JSON; nothing at all means the defaults."""
    config = Config() if value in (None, "", b"") else _decoded("the config", value, Config)
    for option in ("timeout_s", "open_timeout_s"):
        if not 0 < getattr(config, option) <= 300:
            found = getattr(config, option)
            raise BadRecording(f"the config: {option} is {found:g}; write seconds, above 0 and up to 300")
    return config


def read_csv(text: str | None) -> list[dict[str, str]]:
    """The lines of the CSV by the names in its header; without a CSV, the recording is replayed once, as it is."""
    if text is None or not text.strip():
        return [{}]
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        found = [[cell.strip() for cell in line] for line in lines if any(cell.strip() for cell in line)]
    except csv.Error as error:
        raise BadRecording(f"the CSV: line {lines.line_num}: {error}") from None
    header, rows = (found[0], found[1:]) if found else ([""], [])
    if "" in header or len(set(header)) < len(header):
        raise BadRecording(f"the CSV: its header is {', '.join(header)}: every column needs a name of its own")
    if not 0 < len(rows) <= CSV_ROWS_LIMIT:
        raise BadRecording(f"the CSV has {len(rows)} rows below its header; 1 to {CSV_ROWS_LIMIT:,} can be replayed")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise BadRecording(f"the CSV: row {number} has {len(row)} values, the header has {len(header)}")
    return [dict(zip(header, row, strict=True)) for row in rows]


def steps_for(recording: Recording, values: Mapping[str, str], config: Config) -> tuple[Step, ...]:
    """The steps with this row's values in place of `${column}`, and with whole addresses."""
    return tuple(_ready(number, step, values, config) for number, step in enumerate(recording.steps, 1))


def described(step: Step) -> str:
    """For people: `type into #email`."""
    match step:
        case Open(url=url):
            return f"open {url}"
        case Type(selector=selector):
            return f"type into {selector}"
        case Click(selector=selector) | Expect(selector=selector):
            return f"{_verb(step)} {selector}"


def _decoded(what: str, value: Any, kind: type[T]) -> T:
    try:
        if isinstance(value, str | bytes):
            return msgspec.json.decode(value, type=kind)
        return msgspec.convert(value, kind)
    except msgspec.DecodeError as error:
        problem, _, path = str(error).partition(" - at `")
        if place := re.match(r"\$\.steps\[(\d+)\](\.do)?", path):
            what = f"{what}, step {int(place[1]) + 1}"
            problem += "; a step does one of: open, click, type, expect" if place[2] else ""
        raise BadRecording(f"{what}: {problem}") from None


def _ready(number: int, step: Step, values: Mapping[str, str], config: Config) -> Step:
    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            columns = ", ".join(values) or "none: the job has no CSV"
            raise BadRecording(f"step {number} ({_verb(step)}) needs ${{{found[1]}}}; columns of the CSV: {columns}")
        return values[found[1]]

    texts = {name: PLACEHOLDER.sub(value, getattr(step, name)) for name in step.__struct_fields__}
    if isinstance(step, Open):
        texts["url"] = _address(number, texts["url"], config)
    return msgspec.structs.replace(step, **texts)


def _address(number: int, url: str, config: Config) -> str:
    """Web addresses only: a program that writes a row must not make a worker open its own files."""
    try:
        joined = urljoin(config.base_url, url)
        parts = urlsplit(joined)
        is_fit = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        joined, is_fit = url, False
    if not is_fit:
        todo = "write https://…, or a path here and a base_url in the config"
        raise BadRecording(f"step {number} (open): {joined!r} is not a web address; {todo}")
    return joined


def _verb(step: Step) -> str:
    return str(step.__struct_config__.tag)
