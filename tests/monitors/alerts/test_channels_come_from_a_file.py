"""Channels of everpoll.toml: read by a pure function, every mistake with its place."""

import tomllib

import pytest

from everpoll.errors import BadInput
from everpoll.monitors.alerts.channel_config import channels_of

FILE = """
[channels.ops]
type = "webhook"
url = "https://ops.example.com/hook"
secret = "${OPS_SECRET}"
group = "30s"

[channels.chat]
type = "slack"
url = "${SLACK_URL}"

[channels.mail]
type = "email"
host = "smtp.example.com"
to = ["ops@example.com"]
sender = "everpoll@example.com"
user = "everpoll"
password = "${SMTP_PASSWORD}"
tls = "implicit"
"""


def test_every_type_is_read() -> None:
    channels = channels_of(tomllib.loads(FILE)["channels"])
    assert {name: (repr(one.channel), one.group_s) for name, one in channels.items()} == {
        "ops": ("<Webhook https://ops.example.com, signed>", 30.0),
        "chat": ("<Slack ${SLACK_URL}>", 60.0),
        "mail": ("<Email ops@example.com by smtp.example.com:465>", 60.0),
    }
    assert channels_of({}) == {}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('url = "https://x"', r"\[channels.ops\]: type=None: write one of webhook, slack, email"),
        ('type = "pager"', r"type='pager': write one of"),
        ('type = "slack"', r"\[channels.ops\]: url is missing"),
        ('type = "slack"\nurl = "nonsense"', r"\[channels.ops\]: Slack: .*must be an http or https URL"),
        ('type = "slack"\nurl = "https://x.io"\nsecret = "${X}"', "there is no option 'secret'; there are group, type"),
        ('type = "webhook"\nurl = "https://x.io"\nsecret = "s3cret"', 'write secret = "\\$\\{NAME\\}"'),
        ('type = "webhook"\nurl = "https://x.io"\ngroup = "soon"', r"\[channels.ops\]: channel 'ops': group='soon'"),
        ('type = "email"\nhost = "h"\nto = []\nsender = "a@b.io"', r"\[channels.ops\]: Email: to=\[\]"),
    ],
)
def test_mistakes_are_told_with_their_place_and_without_secrets(table: str, why: str) -> None:
    with pytest.raises(BadInput, match=why) as caught:
        channels_of(tomllib.loads(f"[channels.ops]\n{table}")["channels"])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("tables", [[], "ops", {"ops": "slack"}, None])
def test_what_is_no_table_is_refused(tables: object) -> None:
    with pytest.raises(BadInput, match="must be"):
        channels_of(tables)
