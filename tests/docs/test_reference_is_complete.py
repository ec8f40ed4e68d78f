"""The reference names every public name, option, field, method, command and variable; the glossary stays in order."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import get_args

import pytest
import typer
from doc_pages import ROOT

import everpoll
import everpoll.errors
import everpoll.logs
import everpoll.monitors
import everpoll.monitors.importing
import everpoll.policy
import everpoll.testing
import everpoll.watches
from everpoll import Everpoll, Health, Job, Task, TaskInfo
from everpoll.cli.main import COMMANDS, commands
from everpoll.engine.meter import PollerHealth
from everpoll.jobs import JobOptions, ScheduleInfo
from everpoll.jobs.options import EnqueueOptions
from everpoll.logs.fields import ATTRIBUTES
from everpoll.loops import Loop, LoopOptions, Loops, LoopState, Outcome, Phase
from everpoll.monitors import (
    Alert,
    Email,
    IncidentInfo,
    Message,
    PlannedWindow,
    Service,
    ServiceEvent,
    ServiceInfo,
    ServiceOptions,
    Services,
    Slack,
    Webhook,
)
from everpoll.monitors.alerts.incidents import Incidents
from everpoll.monitors.alerts.letter import LetterBody, NoticeBody
from everpoll.monitors.alerts.maintenance_windows import MaintenanceWindows
from everpoll.monitors.condition_text import Subject
from everpoll.monitors.conditions import Facts
from everpoll.monitors.control import Waits
from everpoll.monitors.incident import IncidentWaits
from everpoll.policy import PauseReason
from everpoll.policy.uptime import Uptime
from everpoll.stores.contract import TaskState
from everpoll.stores.health import DependencyInfo, ErrorEntry, LatencyPoint, Look
from everpoll.tables import AdoptedTable, Row, Table
from everpoll.tables.contract import Finding
from everpoll.testing import ScriptedRemote, Timeline, VirtualClock
from everpoll.watches import History, Learned, LookContext, RunEvent, RunInfo, Watch, WatchOptions, WatchRun
from everpoll.watches.memory import Decision
from everpoll.watches.memory import Outcome as RunOutcome

REFERENCE = ROOT / "docs/reference"
SOURCES = sorted((ROOT / "src/everpoll").rglob("*.py")) + sorted((ROOT / "src/everpoll").rglob("*.sql"))
# These belong to the registry; their own comment in loop.py says so.
INTERNAL_OF_LOOP = {"become", "due", "end", "entry", "forget_run", "resume_at", "start", "under_way"}
INTERNAL_OF_LOOPS = {"cards", "event_loop_for", "in_thread", "now", "set_deadline", "spawn", "start", "threads"}

# What the engine calls, and not the user.
INTERNAL_OF_WATCH = {*("enqueuer", "new_task", "run_policy", "threads")}
INTERNAL_OF_SERVICES = {
    *("change", "define", "forget", "health", "publish", "row", "rows", "start", "stop", "store", "unregister", "wall"),
    *("alerts", "is_set_up", "looks", "worker"),  # for metrics and the start
}
# The reference writes them as they are passed, without their unit.
ALERT_FIELDS_IN_SECONDS = {"lasting_s", "delay_s", "reminder_s"}
INTERNAL_OF_LOOK = {"call", "check_memory", "detach", "has_reported"}


def reference(page: str) -> str:
    return (REFERENCE / page).read_text(encoding="utf-8")


def code_words(text: str) -> set[str]:
    """Every name that is written as code, inline or in a block, whatever is around it."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for span in spans for word in re.findall(r"\w+", span)}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def missing(wanted: set[str], page: str) -> list[str]:
    return sorted(wanted - code_words(reference(page)))


def rows(page: str) -> set[str]:
    """What has a row of its own in a table."""
    return set(re.findall(r"^\| `(\w+)` \|", reference(page), re.MULTILINE))


def test_every_public_name_is_in_the_reference() -> None:
    written = {word for page in REFERENCE.glob("*.md") for word in code_words(page.read_text(encoding="utf-8"))}
    assert sorted(set(everpoll.__all__) - written) == []


def test_every_option_of_a_loop_is_documented_with_its_own_row() -> None:
    assert sorted({"every", *LoopOptions.__annotations__} - rows("loops.md")) == []


def test_every_option_of_a_job_and_of_enqueue_is_documented_with_its_own_row() -> None:
    assert sorted(set(JobOptions.__annotations__) - rows("jobs.md")) == []
    assert sorted(set(EnqueueOptions.__annotations__) - rows("jobs.md")) == []


def test_every_parameter_and_method_of_the_app_is_documented() -> None:
    assert sorted(set(inspect.signature(Everpoll).parameters) - rows("app.md")) == []
    assert missing(public(Everpoll), "app.md") == []


def test_every_method_of_a_job_and_a_task_is_documented() -> None:
    assert missing(public(Job), "jobs.md") == []
    assert missing(public(Task), "jobs.md") == []


def test_every_field_and_state_of_a_task_is_documented() -> None:
    assert missing({*TaskInfo.__struct_fields__, "errors"}, "jobs.md") == []
    assert missing(set(ScheduleInfo.__struct_fields__), "jobs.md") == []
    assert sorted(set(get_args(TaskState)) - rows("jobs.md")) == []


def test_every_kind_of_note_in_a_trail_is_documented_with_its_own_row() -> None:
    # A finding of a table's inspection also has a field `what`. It is not a note.
    sources = [source for source in SOURCES if "tables" not in source.parts]
    written = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    # As Python and SQL write them; a choice between two kinds is written in one place only, which has both anyway.
    kinds = set(re.findall(r'"what": ?"([\w-]+)"', written)) | set(re.findall(r'what="([\w-]+)"', written))
    assert len(kinds) > 5, "the pattern does not find them any more"
    documented = set(re.findall(r"^\| `([\w-]+)` \|", reference("jobs.md"), re.MULTILINE))
    assert sorted(kinds - documented) == []


def test_every_option_of_a_table_is_documented_with_its_own_row_and_every_method() -> None:
    options = {one.name for one in dataclasses.fields(Table)}
    assert sorted(options - rows("tables.md")) == []
    assert missing(public(Row) | public(AdoptedTable) - {"threads"}, "tables.md") == []
    assert missing(set(Finding.__struct_fields__), "tables.md") == []


def test_every_figure_of_health_is_documented() -> None:
    assert missing({*Health.__struct_fields__, *PollerHealth.__struct_fields__}, "health.md") == []


def test_every_environment_variable_is_documented_with_its_own_row() -> None:
    written = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES)
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', written))
    assert "EVERPOLL_URL" in read, "the pattern does not find them any more"
    assert sorted(read - rows("app.md")) == []


def command_lines(group: object, path: str) -> Iterator[tuple[str, list[str]]]:
    """Every command, and the long form of its options. Typer brings its own copy of click, hence no types here."""
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from command_lines(command, f"{path} {name}")
            continue
        options = [word for one in command.params for word in one.opts if word.startswith("--")]
        yield f"{path} {name}", options


@pytest.mark.parametrize(
    ("command", "options"), list(command_lines(typer.main.get_command(commands(*COMMANDS)), "everpoll"))
)
def test_every_command_and_its_options_are_documented(command: str, options: list[str]) -> None:
    page = reference("command-line.md")
    assert f"| `{command}` |" in page
    assert [option for option in options if f"`{option}" not in page] == []


def test_every_option_of_a_watch_is_documented_with_its_own_row() -> None:
    assert sorted({"every", "budget", *WatchOptions.__annotations__} - rows("watches.md")) == []


def test_every_method_of_a_watch_a_run_and_a_look_is_documented() -> None:
    for kind, internal in ((Watch, INTERNAL_OF_WATCH), (WatchRun, set()), (LookContext, INTERNAL_OF_LOOK)):
        assert missing(public(kind) - internal, "watches.md") == [], kind.__name__
    assert missing(set(everpoll.watches.__all__), "watches.md") == []


def test_every_field_phase_and_outcome_of_a_run_is_documented() -> None:
    for struct in (RunInfo, RunEvent, Decision):
        assert missing(set(struct.__struct_fields__), "watches.md") == [], struct.__name__
    live = {"intent", "looking", "verifying", "canceling", "cleaning"}
    assert sorted({*live, "needs_code", "ended", *get_args(RunOutcome)} - rows("watches.md")) == []


def test_every_parameter_of_a_cadence_is_documented() -> None:
    for kind in (History, Learned):
        assert missing(set(inspect.signature(kind).parameters), "watches.md") == [], kind.__name__


def test_every_field_of_state_and_outcome_is_documented() -> None:
    assert missing(public(LoopState) - {"life"}, "loops.md") == []
    assert missing(set(LoopState.__struct_fields__) - {"life"}, "loops.md") == []
    assert missing(set(Outcome.__struct_fields__) | {"ok"}, "loops.md") == []


def test_every_method_of_a_loop_and_of_all_loops_is_documented() -> None:
    assert missing(public(Loop) - INTERNAL_OF_LOOP, "loops.md") == []
    assert missing(public(Loops) - INTERNAL_OF_LOOPS, "loops.md") == []


@pytest.mark.parametrize("words", [Phase, PauseReason], ids=lambda words: words.__name__)
def test_every_phase_and_pause_reason_is_documented(words: type[Enum]) -> None:
    assert missing({member.value for member in words}, "loops.md") == []


def test_every_policy_and_its_parameters_are_documented() -> None:
    page = "policies.md"
    values = [
        getattr(everpoll.policy, name)
        for name in ("Adaptive", "Backoff", "Breaker", "Budget", "Confirm", "Gate", "Rate")
    ]
    assert missing({value.__name__ for value in values}, page) == []
    for value in values:
        assert missing(set(inspect.signature(value).parameters), page) == [], value.__name__
        assert missing({name for name in public(value) if callable(getattr(value, name))}, page) == [], value.__name__


def test_every_error_is_documented() -> None:
    kinds = {name for name, value in vars(everpoll.errors).items() if isinstance(value, type)}
    assert missing(kinds, "errors.md") == []


def test_the_log_is_described() -> None:
    assert missing({*everpoll.logs.__all__, *ATTRIBUTES, *ATTRIBUTES.values()}, "logs.md") == []


def test_the_test_kit_and_every_method_of_the_virtual_clock_are_documented() -> None:
    assert missing(set(everpoll.testing.__all__), "testing.md") == []
    for kind in (VirtualClock, ScriptedRemote, Timeline):
        assert missing(public(kind), "testing.md") == [], kind.__name__


def test_every_format_of_a_health_answer_is_documented_with_its_own_row() -> None:
    page = reference("health-formats.md")
    assert [name for name in everpoll.monitors.FORMATS if f"| `{name}` |" not in page] == []


def test_every_part_of_reading_health_is_documented() -> None:
    page = "health-formats.md"
    assert missing({"FORMATS", "Report", "checksum", "compile_mapping", "read"}, page) == []
    assert missing(set(everpoll.monitors.importing.__all__), page) == []
    for struct in (everpoll.monitors.Report, everpoll.monitors.Dependency, Facts, everpoll.monitors.importing.Imported):
        assert missing(set(struct.__struct_fields__), page) == [], struct.__name__
    assert missing({status.value for status in everpoll.monitors.Status}, page) == []
    assert missing({*get_args(Subject), "not", "in", "contains", "matches", "exists", "missing", "len"}, page) == []


def test_every_option_of_a_service_is_documented_with_its_own_row() -> None:
    assert sorted(set(ServiceOptions.__annotations__) - rows("services.md")) == []
    assert sorted(set(inspect.signature(Alert).parameters) - rows("services.md")) == []
    assert missing({one.name for one in dataclasses.fields(Alert)} - ALERT_FIELDS_IN_SECONDS, "services.md") == []


def test_every_name_of_monitors_is_documented() -> None:
    pages = code_words(reference("services.md")) | code_words(reference("health-formats.md"))
    assert sorted(set(everpoll.monitors.__all__) - pages) == []


def test_every_method_of_a_service_and_of_all_services_is_documented() -> None:
    page = "services.md"
    assert missing(public(Service), page) == []
    assert missing(public(Services) - INTERNAL_OF_SERVICES, page) == []
    for kind in (Incidents, MaintenanceWindows):
        assert missing(public(kind), page) == [], kind.__name__
    for function in (Services.configure, everpoll.monitors.once, everpoll.monitors.weekly, Webhook, Slack, Email):
        assert missing(set(inspect.signature(function).parameters) - {"self"}, page) == [], function


def test_every_field_of_what_is_read_about_services_is_documented() -> None:
    structs = (ServiceInfo, IncidentInfo, DependencyInfo, Look, ErrorEntry, LatencyPoint, PlannedWindow, Message)
    for struct in structs:
        assert missing(set(struct.__struct_fields__), "services.md") == [], struct.__name__
    assert missing({one.name for one in dataclasses.fields(Uptime)}, "services.md") == []
    assert missing({*get_args(Waits), *get_args(IncidentWaits)}, "services.md") == []
    bodies = {camel for body in (LetterBody, NoticeBody) for camel in body.__struct_encode_fields__}
    assert missing(bodies, "services.md") == []


def test_every_event_of_services_is_documented_with_its_fields() -> None:
    page = reference("services.md")
    for event in ServiceEvent.__subclasses__():
        assert f"`{event.__struct_config__.tag}`" in page
        assert missing(set(event.__struct_fields__), "services.md") == [], event.__name__


def test_glossary_terms_are_sorted_and_appear_once() -> None:
    """The first section is in the order of reading, the others are sorted."""
    sections = reference("glossary.md").split("\n## ")[1:]
    first, *others = [re.findall(r"^\| \*\*(.+?)\*\*", section, re.MULTILINE) for section in sections]
    assert len(others) == 2
    for terms in others:
        assert terms == sorted(terms, key=str.lower)
    every = [*first, *(term for terms in others for term in terms)]
    assert sorted(set(every)) == sorted(every)
