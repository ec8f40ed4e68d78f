"""Whatever a key or a name looks like, PostgREST reads it as itself; no address becomes too long."""

import uuid
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.drivers.postgrest.filters import URL_LIMIT, chunks, column, one_of, quoted
from servers.supabase import Gateway
from tables.postgrest_stage import PostgRestStage
from tables.stages import JOBS, keys

ODD = [
    "a,b",
    "(a)",
    "a)b",
    'say "hi"',
    '"',
    "\\",
    '\\"',
    "a\\,b",
    "{a}",
    "null",
    "NULL",
    "",
    " ",
    "a&b=c",
    "a+b",
    "100%",
    "%2C",
    "a.b",
    "not.eq.1",
    "eq.1",
    "*",
    "ü ☃ 𝄞",
    "line\nbreak",
    "tab\t",
    "'; drop table jobs; --",
    "#?/",
]


async def test_keys_that_need_quoting(postgrest_stage: PostgRestStage) -> None:
    """All in one list, and each by itself."""
    stage = postgrest_stage
    await stage.create(JOBS | {"id": "text key"})
    await stage.queue(*ODD)
    async with stage.claimer(stage.mapping(guard="status")) as worker:
        leases = await worker.take()
        assert keys(leases) == ODD
        assert (await worker.beat(*leases)).canceled == ()
        assert await worker.retry(*leases) == set()
        for _ in ODD:
            lease = await worker.take_one()
            assert (await worker.beat(lease)).canceled == ()
            assert await worker.end(lease) == set()
    assert set((await stage.statuses()).values()) == {"completed"}


@pytest.mark.parametrize("kind", ["uuid key", "number key", "text key"])
async def test_500_rows_are_claimed_and_settled_by_addresses_that_are_not_too_long(
    postgrest_stage: PostgRestStage, gateway: Gateway, kind: Any
) -> None:
    ids: dict[str, list[Any]] = {
        "uuid key": [str(uuid.UUID(int=number)) for number in range(500)],
        "number key": [2**62 + number for number in range(500)],
        "text key": [f"☃ {number} {'x' * 50}" for number in range(500)],
    }
    stage = postgrest_stage
    await stage.create(JOBS | {"id": kind})
    await stage.queue(*ids[kind])
    async with stage.claimer(stage.mapping(guard="status")) as worker:
        leases = await worker.take(500)
        assert keys(leases) == ids[kind]
        assert (await worker.beat(*leases)).canceled == ()
        assert await worker.end(*leases) == set()
    assert set((await stage.statuses()).values()) == {"completed"}
    assert max(len(path) for _, path, _ in gateway.asked) <= URL_LIMIT


@given(st.lists(st.text(max_size=80), min_size=1), st.integers(0, 5_000))
def test_chunks_keep_every_value_once_and_in_order(values: list[str], taken: int) -> None:
    parts = list(chunks(values, taken))
    assert [one for part in parts for one in part] == values
    for part in parts:
        assert len(part) == 1 or taken + len(one_of(part)) <= URL_LIMIT


@given(st.text())
def test_what_is_quoted_has_no_meaning_left(text: str) -> None:
    inside = quoted(text)[1:-1]
    assert inside.replace("\\\\", "").replace('\\"', "").count('"') == 0
    assert inside.replace('\\"', '"').replace("\\\\", "\\") == text or "\\" in text


def test_a_list_of_one_is_no_list() -> None:
    """PostgREST reads `in.("")` as a list without values."""
    assert one_of([""]) == "eq."
    assert unquote(one_of(["a", "b"])) == 'in.("a","b")'


def test_words_of_postgrest_are_quoted_as_columns() -> None:
    assert [column(name) for name in ("id", "order", "Or", "a b")] == ["id", '"order"', '"Or"', '"a b"']
