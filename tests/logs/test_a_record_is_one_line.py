"""A record is one line, dated, with the fields of its task: as text without wrapping, or as JSON."""

import io
import json
import logging
import re

import pytest

from everpoll import BadInput
from everpoll.logs import JsonLines, PlainLines, log_handler
from everpoll.logs.context import about


def record(message: str, *args: object, **attributes: object) -> logging.LogRecord:
    made = logging.LogRecord("shop", logging.INFO, "", 1, message, args, None)
    vars(made).update(attributes)
    return made


FIELDS = about(task_id=7, kind="job", name="audit", queue="default", attempt=2, worker="till 1", duration_s=0.25)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def uncoloured(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def written(stream: io.StringIO, kind: str, one: logging.LogRecord) -> str:
    log_handler(kind, stream).handle(one)
    return stream.getvalue()


def test_plain_lines_are_dated_and_end_with_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal nothing is wrapped, padded or coloured, however long the line is."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = written(io.StringIO(), "pretty", record("paid %s", "x" * 500, **FIELDS))
    fields = 'task_id=7 kind=job name=audit queue=default attempt=2 worker="till 1" duration_s=0.25'
    dated = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"{dated} INFO shop: paid x{{500}} {re.escape(fields)}\n", said)


def test_on_a_terminal_the_task_stands_behind_what_its_handler_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of everpoll's own names its task already."""
    monkeypatch.setenv("COLUMNS", "200")
    assert "paid  (audit#7, attempt 2)" in uncoloured(written(Terminal(), "pretty", record("paid", **FIELDS)))
    said = uncoloured(written(Terminal(), "pretty", record("audit#7: done", **FIELDS)))
    assert said.count("audit#7") == 1
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", said), "dated"


def test_json_has_time_level_logger_message_fields_and_extras() -> None:
    """What a handler passes as `extra=` is in the object, too."""
    said = json.loads(written(io.StringIO(), "json", record("paid", order=9, **FIELDS)))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said.pop("time"))
    expected = {"level": "info", "logger": "shop", "message": "paid", "order": 9, **FIELDS["task_fields"]}
    assert said == expected


def test_a_traceback_is_a_field_in_json_and_lines_behind_the_record_in_text() -> None:
    """The lines are indented: none can be taken for a record."""
    try:
        raise ValueError("no card")
    except ValueError as error:
        one = record("failed", exc_info=(ValueError, error, error.__traceback__))
    said = json.loads(JsonLines().format(one))
    assert said["message"] == "failed"
    assert said["traceback"].endswith("ValueError: no card")
    first, *behind = PlainLines().format(one).splitlines()
    assert first.endswith("shop: failed")
    assert all(line.startswith("    ") for line in behind)
    assert behind[-1] == "    ValueError: no card"


@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()])
def test_an_error_with_a_huge_text_is_cut(formatter: logging.Formatter) -> None:
    """One failed job must not fill the disk with its traceback."""
    try:
        raise ValueError("x" * 1_000_000 + " the end")
    except ValueError as error:
        one = record("failed", exc_info=(ValueError, error, error.__traceback__))
    said = formatter.format(one)
    assert len(said) < 50_000
    assert "characters left out" in said
    assert "Traceback (most recent call last)" in said
    assert "the end" in said


@pytest.mark.parametrize("filler", range(19_960, 19_990, 5))
def test_a_cut_shows_no_half_of_a_secret(filler: int) -> None:
    """The end of the traceback begins in the middle of the token."""
    error = ValueError("x" * 50_000 + " Authorization: Bearer abcdefgh1234ijklmnop5678 " + "y" * filler)
    said = PlainLines().format(record("failed", exc_info=(ValueError, error, None)))
    assert "5678" not in said


@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()])
def test_secrets_are_masked(formatter: logging.Formatter) -> None:
    """In addresses, in authorization headers, and in fields whose name says so."""
    text = "cannot reach postgresql://shop:hunter22@db/shop with Authorization: Bearer abcdefgh1234"
    said = formatter.format(record(text, password="hunter22"))  # noqa: S106 - no real one
    assert "hunter22" not in said
    assert "abcdefgh1234" not in said
    assert "***@db/shop" in said


def test_no_record_is_lost_whatever_is_in_it() -> None:
    """Arguments that do not fit, a circle, NaN, and an object that cannot be shown."""

    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    circle: list[object] = []
    circle.append(circle)
    for wrong in (circle, float("nan"), Mute(), {1: Mute()}):
        said = json.loads(JsonLines().format(record("told", odd=wrong)))
        assert said["message"] == "told"
        assert "is not JSON" in said["odd"]
    assert "%d cards" in json.loads(JsonLines().format(record("%d cards", "no")))["message"]


def test_another_kind_of_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, and with what to write."""
    monkeypatch.setenv("EVERPOLL_LOG", "xml")
    with pytest.raises(BadInput, match="EVERPOLL_LOG='xml': write pretty or json"):
        log_handler()
