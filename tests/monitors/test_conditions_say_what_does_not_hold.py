"""Conditions on an answer are compiled once, judged without surprises, and told in words where they do not hold."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everpoll.errors import BadInput
from everpoll.monitors.conditions import Facts, failures, parse_condition

reproducible = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

BODY = {
    "status": "UP",
    "items": [{"n": 3}, {"n": 4.5}],
    "odd key": {"a.b": True},
    "tags": ["x", 2, None],
    "version": "2",
    "nothing": None,
    "largest": 2**53,
    "0": "zero",
}
ANSWER = Facts(
    status=200,
    latency_ms=250,
    headers={"content-type": "application/json", "x-version": "2", "x-name": "shop"},
    body=msgspec.json.encode(BODY),
    certificate_s=20 * 86_400,
    ip="10.1.2.3",
)

HOLD = [
    *("status == 200", "status != 500", "status < 400", "status <= 200", "status >= 200", "status in [200, 204]"),
    *("status not in [500]", "latency < 300ms", "latency <= 250ms", "latency > 0.1s", "latency >= 250ms"),
    *("certificate > 14d", "certificate > 19d23h", "connected == true"),
    *("connected != false", 'ip == "10.1.2.3"', 'ip matches "10.*"', 'ip in ["10.1.2.3"]', 'ip != "::1"'),
    *('header.x-version == "2"', "header.x-version == 2", "header.X-Version >= 2", 'header.x-name contains "ho"'),
    *("header.x-name exists", "header.x-none missing", 'header["x-name"] matches "s*p"', "len(header.x-name) == 4"),
    *('json.status == "UP"', "json.items[0].n >= 3", "json.items[1].n == 4.5", "json.items.0.n == 3"),
    *('json["odd key"]["a.b"] == true', "json.tags contains 2", 'json.tags contains "x"', "json.tags contains null"),
    *("json.version == 2", 'json.version == "2"', "json.nothing == null", "json.nothing exists", "json.none missing"),
    *('json.none != "x"', 'json.none not contains "x"', "json.none not in [1, 2]", "len(json.items) == 2"),
    *("len(json.items) in [1, 2]", "json.largest == 9007199254740992", 'json contains "status"', 'json["0"] == "zero"'),
    *('body contains "UP"', 'body matches "{*}"', 'body not contains "DOWN"', 'body != ""', "len(body) > 10"),
]
FAIL = [
    ("status == 204", "it is 200"),
    ("status not in [200, 204]", "it is 200"),
    ("latency < 100ms", "it is 250ms"),
    ("certificate > 30d", "it is 20d"),
    ("connected == false", "it is true"),
    ('header.x-version == "3"', 'it is "2"'),
    ("header.x-none exists", "there is no such header"),
    ('header.x-none == "a"', "there is no such header"),
    ("header.x-name > 3", 'it is "shop"'),
    ('json.status == "up"', 'it is "UP"'),
    ("json.status == true", 'it is "UP"'),
    ("json.items[2].n == 3", "there is no such value"),
    ("json.items[0] == 3", "it is an object"),
    ("json.status missing", 'it is "UP"'),
    ("json.none exists", "there is no such value"),
    ("json.none == null", "there is no such value"),
    ("json.items[0].n == true", "it is 3"),
    ("json.nothing > 0", "it is null"),
    ("json.tags contains 3", "it is a list"),
    ("len(json.items) > 2", "it is 2"),
    ("len(json.largest) > 2", "9007199254740992 has no length"),
    ('json.status matches "D*"', 'it is "UP"'),
    ('body contains "DOWN"', 'it is "{"status":"UP","items":[{"n":3},{"n":4.5}],"odd key":{"a.b"…"'),
    ('ip == "10.0.0.1"', 'it is "10.1.2.3"'),
]
WRONG = [
    (5, "not a condition"),
    ("", "not a condition"),
    ("status == " + "1" * 500, "longer than 500 characters"),
    (
        "foo == 1",
        "foo is not a subject; write status, latency, certificate, connected, ip, header, json",
    ),
    ("status", "it ends where an operator should be"),
    ("status ==", "it ends where a value should be"),
    ("status = 200", "cannot read = 200"),
    ("status == 200 and status < 300", "unexpected text after the condition: and"),
    ('status == "200"', "status is compared with whole numbers"),
    ("status == 200.5", "status is compared with whole numbers"),
    ("status == true", "status is compared with whole numbers"),
    ('status contains "2"', "contains is not an operator here; write =="),
    ("latency < 300", "300 is not a duration; write one such as 300ms or 14d"),
    ("latency == 300ms", "== is not an operator here; write <, <=, >, >="),
    ("certificate > 14x", "14x is not a duration"),
    ("certificate > -1d", "-1d is not a duration"),
    ("connected == 1", "connected is compared with true or false"),
    ('json.x > "3"', "> needs a number"),
    ("json.x > true", "> needs a number"),
    ("json.x matches 3", "json matches needs a text in quotes"),
    ("json. == 3", "cannot read . == 3"),
    ("json.a..b == 3", "cannot read ..b == 3"),
    ("json.items[-1] == 1", "[-1] is not a step"),
    ("json.items[0 == 1", "] is missing before =="),
    ("json.x in []", "] is not a value"),
    ("json.x in [1", "] is missing before its end"),
    ("json.x in [" + ",".join(["1"] * 101) + "]", "a list has at most 100 values"),
    ("json.x == up", "up is not a value; write a number, a text in quotes, true, false or null"),
    ('json.x == "a\\qb"', "is not a text; write it as in JSON"),
    ("json.x not == 3", "not == is not an operator; write not before in, contains, matches"),
    ("header == 3", "a header needs its name, such as header.x-version"),
    ("header.a.b == 3", "a header needs its name"),
    ("header.a contains 3", "header contains needs a text in quotes"),
    ("body > 3", "> is not an operator here"),
    ("body == 3", "body == needs a text in quotes"),
    ("len(status) == 3", "status has no length"),
    ("len(body) == 1.5", "a length is compared with whole numbers"),
    ('len(body) contains "x"', "contains is not an operator here"),
    ("len body == 3", "( is missing before body"),
    ("__import__('os').system('x') == 0", "is not a subject"),
]


def problems(text: str, facts: Facts = ANSWER) -> tuple[str, ...]:
    return failures([parse_condition(text)], facts)


@pytest.mark.parametrize("text", HOLD)
def test_it_holds(text: str) -> None:
    assert problems(text) == ()


@pytest.mark.parametrize(("text", "seen"), FAIL)
def test_it_does_not_hold_and_the_value_is_told(text: str, seen: str) -> None:
    assert problems(text) == (f"{text}: {seen}",)


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_is_not_a_condition_is_refused_in_words(text: Any, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_condition(text)
    assert words in str(refused.value)
    assert str(refused.value).startswith("condition=")


def test_all_that_do_not_hold_are_told_in_order() -> None:
    texts = ["status == 500", "status == 200", 'json.status == "DOWN"', "latency < 1ms"]
    answer = failures([parse_condition(text) for text in texts], ANSWER)
    assert answer == (
        "status == 500: it is 200",
        'json.status == "DOWN": it is "UP"',
        "latency < 1ms: it is 250ms",
    )


@pytest.mark.parametrize("text", ["status != 200", "latency > 0ms", "certificate > 0s", 'ip != "x"'])
def test_what_was_not_found_holds_for_nothing(text: str) -> None:
    assert len(problems(text, Facts(connected=False))) == 1


@pytest.mark.parametrize("text", ["json.x == 1", "json.x != 1", "json.x missing", "json.x exists", "len(json) > 0"])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"oops", "the body is not valid JSON"),
        (b"", "the body is empty"),
        (b"[" * 5_000, "the JSON is nested deeper than 100 levels"),
        (b" " * (8 * 1024 * 1024 + 1), "the body is longer than 8,388,608 bytes"),
    ],
    ids=["text", "empty", "deep", "long"],
)
def test_a_body_that_is_not_json_fails_every_condition_on_json(text: str, body: bytes, reason: str) -> None:
    assert problems(text, Facts(body=body)) == (f"{text}: {reason}",)


def test_the_charset_of_the_header_counts() -> None:
    facts = Facts(body=b"caf\xe9", headers={"content-type": "text/plain; charset=iso-8859-1"})
    assert problems('body == "café"', facts) == ()


def test_an_expired_certificate_is_told() -> None:
    assert problems("certificate > 14d", Facts(certificate_s=-7200)) == ("certificate > 14d: it is -2h",)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3),
)
TEXTS = st.lists(
    st.sampled_from(
        [
            *("status", "latency", "json", ".a", "[0]", '["b"]', "header", "body", "len", "(", ")", "not", "in", "["),
            *(
                "]",
                ",",
                "==",
                "!=",
                "<",
                ">=",
                "contains",
                "matches",
                "exists",
                "missing",
                "1",
                "300ms",
                '"x*"',
                "true",
            ),
        ]
    )
    | st.text(max_size=3),
    max_size=9,
).map(" ".join)


@settings(reproducible, max_examples=400)
@given(TEXTS, JSON)
def test_any_text_is_a_condition_or_refused_and_any_answer_is_judged(text: str, body: Any) -> None:
    try:
        condition = parse_condition(text)
    except BadInput:
        return
    facts = Facts(body=msgspec.json.encode(body), headers={"a": "1"}, status=200, latency_ms=5)
    answer = failures([condition], facts)
    assert answer == failures([condition], facts)
    assert all(one.startswith(f"{condition.text}: ") and len(one) < 700 for one in answer)
    assert parse_condition(condition.text) == condition


@reproducible
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**9), 10**9))
def test_exactly_one_of_less_equal_and_greater_holds(seen: float, wanted: int) -> None:
    facts = Facts(body=msgspec.json.encode({"n": seen}))
    answer = [bool(problems(f"json.n {operator} {wanted}", facts)) for operator in ("<", "==", ">")]
    assert answer.count(False) == 1
    assert bool(problems(f"json.n <= {wanted}", facts)) == (answer[0] and answer[1])
    assert bool(problems(f"json.n >= {wanted}", facts)) == (answer[1] and answer[2])
    assert bool(problems(f"json.n != {wanted}", facts)) != answer[1]


@reproducible
@given(JSON, JSON)
def test_not_turns_every_answer_about_a_value_that_is_there(seen: Any, wanted: Any) -> None:
    literal = msgspec.json.encode(wanted).decode()
    if isinstance(wanted, list | dict) or len(literal) > 400:
        return
    facts = Facts(body=msgspec.json.encode({"x": seen}))
    for operator, operand in (("contains", literal), ("in", f"[{literal}]")):
        plainly = problems(f"json.x {operator} {operand}", facts)
        assert bool(plainly) != bool(problems(f"json.x not {operator} {operand}", facts))


@settings(reproducible, max_examples=500)
@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_stands_for_any_characters(pattern: str, text: str) -> None:
    expected = re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), text) is not None
    facts = Facts(body=text)
    assert (problems(f'body matches "{pattern}"', facts) == ()) == expected


def test_a_pattern_that_ruins_regular_expressions_is_searched_in_linear_time() -> None:
    """No clock is read: with backtracking this test would never end."""
    facts = Facts(body="a" * 4_000_000)
    assert len(problems('body matches "' + "a*" * 200 + 'b"', facts)) == 1
    assert problems('body matches "' + "*a" * 200 + '*"', facts) == ()
