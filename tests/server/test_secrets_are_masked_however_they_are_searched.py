"""The quick search for traces of secrets never lets one through that reading text by text would mask."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everpoll.http.secrets import DEPTH_LIMIT, MASK, rewritten
from everpoll.http.stored_secrets import _masked, each_without_secrets, without_secrets

WORDS = st.sampled_from(
    [
        "Authorization", "cookie", "PASSWORD", "pa\u017f\u017fword", "client_secret", "credentials", "Signature", "sig",
        "sig\n", "apiKey", "access-key", "to\u212aen", "token", "refresh_token", "auth", "SessionId", "session-id",
        "Bearer abcdefgh1", "BASIC\tabcdefgh1", "https://u:p@host", "?sig=abc", "&token=x;key=y", "design", "Ünï", "",
    ]
)  # fmt: skip
TEXTS = st.one_of(WORDS, st.text(max_size=8), st.builds("{}{}".format, WORDS, WORDS))
JSON = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


@given(JSON)
def test_the_search_changes_no_answer(value: Any) -> None:
    assert without_secrets(value) == rewritten(value, _masked, DEPTH_LIMIT)


@given(st.lists(JSON, max_size=40))
def test_values_that_are_searched_together_have_the_same_answers(values: list[Any]) -> None:
    assert each_without_secrets(values) == [without_secrets(value) for value in values]


@pytest.mark.parametrize("deep", [DEPTH_LIMIT - 1, DEPTH_LIMIT, DEPTH_LIMIT + 1, 100_000])
def test_deep_json_is_cut_at_the_same_level(deep: int) -> None:
    value: Any = 1
    for _ in range(deep):
        value = [value]
    found, expected, depth = without_secrets(value), rewritten(value, _masked, DEPTH_LIMIT), 0
    while isinstance(expected, list):
        [found], [expected], depth = found, expected, depth + 1
    assert found == expected
    assert depth == min(deep, DEPTH_LIMIT)


def test_values_that_are_not_json_are_left_as_they_are() -> None:
    class Table:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    table = Table()
    assert without_secrets({"token": "abc", "frame": table}) == {"token": MASK, "frame": table}
    assert without_secrets([table]) == [table]
