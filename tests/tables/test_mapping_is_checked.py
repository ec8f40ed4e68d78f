"""What a user says about a table is checked when it is said, with a message that tells what to write."""

import re
from typing import Any

import pytest

from everpoll import Backoff, BadInput, Everpoll
from everpoll.tables import Table

BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "write its name"),
    ({"name": "a.b.c"}, "with its schema"),
    ({"name": 7}, "write its name"),
    ({"name": "jobs", "status": ""}, "status=''"),
    ({"name": "jobs", "worker": "w" * 64}, "up to 63 bytes"),
    ({"name": "jobs", "error": "a\x00b"}, "write the name of a column"),
    ({"name": "jobs", "guard": "luck"}, "write one of skip_locked, status, version, timestamp"),
    ({"name": "jobs", "queued": "running"}, "must be different words"),
    ({"name": "jobs", "done": "queued"}, "must be different words"),
    ({"name": "jobs", "canceled": "queued"}, "must be different words"),
    ({"name": "jobs", "failed": ""}, "words of its status column"),
    ({"name": "jobs", "canceled": ""}, "words of its status column"),
    ({"name": "jobs", "columns": "payload"}, "write a tuple of column names"),
    ({"name": "jobs", "results": (7,)}, "write a tuple of column names"),
    ({"name": "jobs", "attempts": 0}, "how many attempts"),
    ({"name": "jobs", "backoff": 5}, "write Backoff"),
    ({"name": "jobs", "stale_after": "80s"}, "at least three times heartbeat_every"),
    ({"name": "jobs", "heartbeat_every": "soon"}, "heartbeat_every"),
    ({"name": "jobs", "timeout": 0}, "timeout"),
    ({"name": "jobs", "worker": "started_at"}, "is named as worker and as started_at: one column, one use"),
    ({"name": "jobs", "results": ("status",)}, "is named as status and as results"),
    ({"name": "jobs", "results": ("id",)}, "is named as key and as results"),
    ({"name": "jobs", "guard": "timestamp", "heartbeat": "updated_at"}, "is named as heartbeat and as updated_at"),
]


@pytest.mark.parametrize(("options", "words"), BAD, ids=lambda value: str(value)[:40])
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        Table(**options)


def test_a_handler_may_read_whatever_it_wants() -> None:
    """Also what everpoll writes, or what has the name of another use."""
    table = Table("jobs", status="state", columns=("status", "id", "worker_id", "created_at"), results=("error",))
    assert table.columns == ("status", "id", "worker_id", "created_at")
    assert table.used["column status"] == "status"
    assert table.used["column error"] == "error"
    assert "error" not in table.used


def test_the_defaults_are_those_of_the_requirements() -> None:
    """The rests of empty looks are the poller's; heartbeats and rescue are the table's."""
    table = Table("jobs")
    assert (table.heartbeat_every_s, table.stale_after_s, table.attempts) == (30, 300, 3)
    assert table.guard == "skip_locked"
    app = Everpoll("memory://")
    options = app.table(table, url="postgresql://localhost/none")._options
    assert (options.lease_s, options.beat_s) == (300, 30)
    assert [options.poll.delay(n) for n in range(1, 9)] == [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30]
    assert (options.safety_poll.initial_s, options.safety_poll.cap_s) == (30, 60)


def test_a_table_is_adopted_once_with_one_handler() -> None:
    app = Everpoll("memory://")
    jobs = app.table(Table("jobs"), url="postgresql://localhost/none")
    with pytest.raises(BadInput, match="was adopted already"):
        app.table(Table("jobs", backoff=Backoff("1s")), url="postgresql://localhost/none")
    with pytest.raises(BadInput, match="not the address of a database"):
        app.table(Table("others"), url="ftp://localhost")
    with pytest.raises(BadInput, match="is not a Table"):
        app.table("jobs")  # type: ignore[arg-type]
    jobs.handler(lambda row: None)
    with pytest.raises(BadInput, match="has a handler already"):
        jobs.handler(lambda row: None)


def test_a_password_in_an_address_is_never_shown() -> None:
    app = Everpoll("memory://")
    with pytest.raises(BadInput) as caught:
        app.table(Table("others"), url="mysql://me:hunter2@localhost/db")
    assert "hunter2" not in str(caught.value)


def test_three_beats_in_the_stale_limit_are_enough_whatever_floats_say() -> None:
    for every, after in (("100ms", "300ms"), ("50ms", "150ms"), ("30s", "90s")):
        assert Table("jobs", heartbeat_every=every, stale_after=after).heartbeat_every == every
