"""`${NAME}` in a header is read when the request is sent, and its value never shows in an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http import HttpClient, NotAsked, Request
from everpoll.http.environment import references, resolved
from http_room.loopback import Loopback, answer, say

ENVIRONMENT = {"TOKEN": "s3cret", "USER_1": "ann", "FROM_FILE": "s3cret\n", "EMPTY": "", "LINES": "s3cret\r\nX: y"}


def test_references_are_replaced() -> None:
    headers = {"Authorization": "Bearer ${TOKEN}", "X-Both": "${USER_1}:${TOKEN}", "Accept": "*/*"}
    assert resolved(headers, ENVIRONMENT) == {"Authorization": "Bearer s3cret", "X-Both": "ann:s3cret", "Accept": "*/*"}
    assert references(headers) == {"TOKEN", "USER_1"}
    assert resolved({"X": "${FROM_FILE}"}, ENVIRONMENT) == {"X": "s3cret"}


def test_what_is_no_reference_stays() -> None:
    headers = {"X": "$TOKEN $ {TOKEN} ${} ${1} $${TOKEN} {TOKEN}"}
    assert resolved(headers, ENVIRONMENT) == {"X": "$TOKEN $ {TOKEN} ${} ${1} ${TOKEN} {TOKEN}"}
    assert references(headers) == frozenset()


@pytest.mark.parametrize("name", ["MISSING", "EMPTY"])
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(
        NotAsked, match=rf"the header X-Key refers to \$\{{{name}\}}, which the environment does not have"
    ):
        resolved({"X-Key": f"${{{name}}}"}, ENVIRONMENT)


def test_a_variable_cannot_smuggle_in_another_header() -> None:
    with pytest.raises(NotAsked, match="the header X-Key cannot be sent") as error:
        resolved({"X-Key": "${LINES}"}, ENVIRONMENT)
    assert "s3cret" not in str(error.value)


async def test_a_client_without_an_environment_sends_what_is_written() -> None:
    client = HttpClient(environment=None)
    async with Loopback(say(answer())) as remote:
        await client.send(Request(remote.url, headers={"X-Key": "${HOME}"}))
        await client.close()
    assert remote.asked[0].headers["x-key"] == "${HOME}"


@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=50))
def test_a_value_is_not_read_for_references_again(value: str) -> None:
    """A secret may have any sign in it."""
    try:
        found = resolved({"X": "${V}"}, {"V": value, "TOKEN": "s3cret"})
    except NotAsked:
        return
    assert found["X"] == value.strip()
