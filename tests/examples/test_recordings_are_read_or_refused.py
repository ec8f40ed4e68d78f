"""Recordings, CSV and configuration: what can be replayed is read, everything else is refused with its place."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.test_runner.recording import (
    BadRecording,
    Click,
    Config,
    Expect,
    Open,
    Recording,
    Type,
    described,
    read_config,
    read_csv,
    read_recording,
    steps_for,
)

STEPS = [
    {"do": "open", "url": "/"},
    {"do": "type", "selector": "#email", "text": "${email}"},
    {"do": "click", "selector": "button"},
    {"do": "expect", "selector": "#welcome", "text": "Welcome, ${name}!"},
]
SIGN_UP = Recording(
    "Sign up", (Open("/"), Type("#email", "${email}"), Click("button"), Expect("#welcome", "Welcome, ${name}!"))
)
SHOP = Config(base_url="http://shop.example")


def recorded(*steps: object) -> str:
    return json.dumps({"name": "A", "steps": steps})


def test_a_recording_is_read_from_text_and_from_what_a_database_decoded_already() -> None:
    value = {"name": "Sign up", "steps": STEPS}
    assert read_recording(json.dumps(value)) == read_recording(json.dumps(value).encode()) == SIGN_UP
    assert read_recording(value) == SIGN_UP


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "the recording: Expected `object`, got `null`"),
        ("", "the recording: Input data was truncated"),
        ("{", "the recording: Input data was truncated"),
        ("nonsense", "the recording: JSON is malformed"),
        ("[]", "the recording: Expected `object`, got `array`"),
        ('{"steps": []}', "the recording: Object missing required field `name`"),
        ('{"name": "A"}', "the recording: Object missing required field `steps`"),
        (recorded(), "the recording has no steps"),
        (recorded({"do": "hover", "selector": "a"}), "step 1: Invalid value 'hover'; a step does one of: open, click"),
        (recorded(STEPS[0], {"selector": "a"}), "the recording, step 2: Object missing required field `do`"),
        (recorded(STEPS[0], {"do": "click"}), "the recording, step 2: Object missing required field `selector`"),
        (recorded(STEPS[0], STEPS[1], {"do": "open", "url": 7}), "the recording, step 3: Expected `str`, got `int`"),
        (recorded({"do": "click", "selector": "a", "twice": True}), "step 1: Object contains unknown field `twice`"),
        (recorded({"do": "click", "selector": ""}), "step 1 (click): the selector is empty"),
        (recorded("click"), "the recording, step 1: Expected `object`, got `str`"),
    ],
)
def test_a_bad_recording_is_refused_with_its_place(value: object, complaint: str) -> None:
    with pytest.raises(BadRecording) as caught:
        read_recording(value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("value", [None, "", "{}", {}])
def test_no_config_means_the_defaults(value: object) -> None:
    assert read_config(value) == Config(base_url="", timeout_s=5.0, open_timeout_s=30.0)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ('{"timeout_s": 0}', "timeout_s is 0"),
        ('{"timeout_s": -1}', "timeout_s is -1"),
        ('{"timeout_s": 301}', "up to 300"),
        ('{"open_timeout_s": 0}', "open_timeout_s is 0"),
        ('{"timeout_s": "soon"}', "the config: Expected `float`"),
        ('{"basis": 1}', "unknown field `basis`"),
        ("7", "the config: Expected `object`, got `int`"),
    ],
)
def test_a_bad_config_is_refused(value: object, complaint: str) -> None:
    with pytest.raises(BadRecording) as caught:
        read_config(value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_without_a_csv_the_recording_is_replayed_once(text: str | None) -> None:
    assert read_csv(text) == [{}]


@pytest.mark.parametrize(
    "text",
    [
        "name,email\nAda,ada@example.com\nAlan,alan@example.com\n",
        "\ufeffname,email\r\nAda,ada@example.com\r\n\r\nAlan,alan@example.com",
        'name , email\n"Ada", ada@example.com\n\nAlan,alan@example.com\n  \n',
    ],
)
def test_a_csv_is_read_by_the_names_in_its_header(text: str) -> None:
    assert read_csv(text) == [
        {"name": "Ada", "email": "ada@example.com"},
        {"name": "Alan", "email": "alan@example.com"},
    ]


def test_a_value_may_hold_commas_quotes_lines_and_nothing() -> None:
    assert read_csv('a,b\n"x, ""y""\nz",\n') == [{"a": 'x, "y"\nz', "b": ""}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name,email", "the CSV has 0 rows below its header; 1 to 1,000"),
        ("a\n" + "1\n" * 1_001, "the CSV has 1001 rows"),
        ("name,email\nAda", "row 1 has 1 values, the header has 2"),
        ("name,email\nAda,a@b.c\nAlan,a@b.c,30", "row 2 has 3 values, the header has 2"),
        (",\n,", "every column needs a name"),
        ("name,\nAda,x", "every column needs a name"),
        ("name,name\nAda,x", "every column needs a name of its own"),
        ('name\n"Ada', "the CSV: line 2: unexpected end of data"),
    ],
)
def test_a_bad_csv_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(BadRecording) as caught:
        read_csv(text)
    assert complaint in str(caught.value)


def test_placeholders_are_filled_in_every_text_of_a_step() -> None:
    recording = Recording(
        "A", (Open("/${name}"), Click("#${name}"), Type("#x", "${name} ${name}"), Expect("#y", "$name"))
    )
    assert steps_for(recording, {"name": "Ada"}, SHOP) == (
        Open("http://shop.example/Ada"),
        Click("#Ada"),
        Type("#x", "Ada Ada"),
        Expect("#y", "$name"),
    )


def test_a_value_that_looks_like_a_placeholder_is_left_as_it_is() -> None:
    recording = Recording("A", (Type("#x", "${name}"),))
    assert steps_for(recording, {"name": r"${other} \1"}, SHOP) == (Type("#x", r"${other} \1"),)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"name": "Ada"}, "step 2 (type) needs ${email}; columns of the CSV: name"),
        ({}, "step 2 (type) needs ${email}; columns of the CSV: none: the job has no CSV"),
    ],
)
def test_a_column_that_the_csv_does_not_have_is_named(values: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadRecording) as caught:
        steps_for(SIGN_UP, values, SHOP)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("base_url", "url", "address"),
    [
        ("http://shop.example", "/cart", "http://shop.example/cart"),
        ("http://shop.example/a/", "b", "http://shop.example/a/b"),
        ("http://shop.example", "https://other.example/x", "https://other.example/x"),
        ("", "https://other.example/x", "https://other.example/x"),
    ],
)
def test_addresses_are_joined(base_url: str, url: str, address: str) -> None:
    assert steps_for(Recording("A", (Open(url),)), {}, Config(base_url=base_url)) == (Open(address),)


@pytest.mark.parametrize(
    "url", ["/cart", "file:///etc/hostname", "javascript:alert(1)", "about:blank", "http://", "http://["]
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(BadRecording, match=r"step 1 \(open\): .* is not a web address"):
        steps_for(Recording("A", (Open(url),)), {}, Config())


def test_a_csv_cannot_smuggle_in_another_kind_of_address() -> None:
    with pytest.raises(BadRecording, match="not a web address"):
        steps_for(Recording("A", (Open("${url}"),)), {"url": "file:///etc/hostname"}, SHOP)


def test_steps_are_described_in_words() -> None:
    assert [described(step) for step in SIGN_UP.steps] == [
        "open /",
        "type into #email",
        "click button",
        "expect #welcome",
    ]


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_whatever_lies_in_the_table_is_read_or_refused(value: str | bytes) -> None:
    for read in (read_recording, read_config):
        with contextlib.suppress(BadRecording):
            read(value)


@given(st.text(alphabet=st.sampled_from('ab,"\n\r \0é'), max_size=60) | st.text(max_size=200))
def test_any_text_as_a_csv_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadRecording):
        assert len({tuple(row) for row in read_csv(text)}) == 1
