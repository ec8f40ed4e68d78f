"""Letter: one message for one channel, with its notices.

Promises: the same notices, id and time make the same letter. Each text is one printable line, whatever a remote wrote:
no control characters, no line breaks, nothing that changes the direction of text. Its JSON has at most MAX_NOTICES
notices; the rest is counted. Pure.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from everpoll.monitors.alerting import Message, Notice, message

MAX_NOTICES = 100
MAX_SUBJECT_CHARS = 300
MAX_LINE_CHARS = 1_000


class Letter(Struct, frozen=True, kw_only=True):
    """A message, its notices, and its id, under which it may be sent again."""

    id: str
    made_at: float
    message: Message
    notices: tuple[Notice, ...]

    @property
    def text(self) -> str:
        """The whole message as plain text."""
        return "\n".join((self.message.subject, "", *self.message.lines)) + "\n"


class LetterBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON that a webhook receives."""

    id: str
    """The same for every try to send one message."""
    channel: str
    at: float
    """When the message was made, in seconds since the epoch."""
    subject: str
    text: str
    notices: list["NoticeBody"]
    more: int
    """Notices that the list leaves out."""


class NoticeBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """One notice in the JSON of a webhook."""

    id: str
    kind: str
    """alert, reminder or recovered."""
    incident: str
    service: str
    dependency: str | None
    """None: the service itself."""
    at: float
    since: float
    """When the first of the failed looks was."""
    error: str | None
    held_by: tuple[str, ...]
    affected: tuple[str, ...]
    number: int
    """The number of a reminder, from 1."""
    reason: str | None
    """Why the incident was closed without a recovery."""


def compose(letter_id: str, notices: Sequence[Notice], made_at: float) -> Letter:
    """Make a letter of the notices of one channel."""
    clean = tuple(_cleaned(notice) for notice in notices)
    composed = message(clean, made_at)
    lines = tuple(one_line(line, MAX_LINE_CHARS) for line in composed.lines)
    return Letter(
        id=letter_id,
        made_at=made_at,
        message=replace(composed, id=letter_id, subject=one_line(composed.subject, MAX_SUBJECT_CHARS), lines=lines),
        notices=clean,
    )


def body_of(letter: Letter) -> bytes:
    """Return the JSON of a letter."""
    listed = letter.notices[:MAX_NOTICES]
    body = LetterBody(
        id=letter.id,
        channel=letter.message.channel,
        at=letter.made_at,
        subject=letter.message.subject,
        text=letter.text,
        notices=[msgspec.convert(notice, NoticeBody, from_attributes=True) for notice in listed],
        more=len(letter.notices) - len(listed),
    )
    return msgspec.json.encode(body)


def one_line(text: str, most_chars: int) -> str:
    """Return a text without control characters and line breaks, cut to its length."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return text if len(text) <= most_chars else text[: most_chars - 1] + "…"


def _cleaned(notice: Notice) -> Notice:
    return replace(
        notice,
        service=one_line(notice.service, MAX_SUBJECT_CHARS),
        dependency=None if notice.dependency is None else one_line(notice.dependency, MAX_SUBJECT_CHARS),
        error=None if notice.error is None else one_line(notice.error, MAX_LINE_CHARS),
        held_by=tuple(one_line(name, MAX_SUBJECT_CHARS) for name in notice.held_by),
        affected=tuple(one_line(name, MAX_SUBJECT_CHARS) for name in notice.affected),
    )
