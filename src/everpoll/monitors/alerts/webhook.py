"""Webhook and Slack: send letters as HTTP requests.

A webhook receives a JSON object (see `letter.LetterBody`) and, if it has a secret, the headers of `signing`. The header
`Idempotency-Key` has the id of the message, which is the same for every try: a receiver that keeps ids for a day acts
on each message once.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from everpoll.errors import BadInput
from everpoll.http.headers import sendable
from everpoll.monitors.alerts.channel import Tools, Undelivered
from everpoll.monitors.alerts.letter import Letter, body_of
from everpoll.monitors.alerts.posting import checked_url, found_in_environment, host_of, post
from everpoll.monitors.alerts.signing import ID, SIGNATURE, TIMESTAMP, signed_headers

IDEMPOTENCY_KEY = "Idempotency-Key"
_OWN = frozenset({ID, TIMESTAMP, SIGNATURE, IDEMPOTENCY_KEY.lower(), "content-type"})
MAX_SLACK_CHARS = 30_000
"""Slack cuts a text after 40,000 characters."""
_BREAK = "\u200b"


class Webhook:
    """Sends letters as JSON, signed: `Webhook("https://ops.example.com/alerts", secret="${OPS_SECRET}")`.

    `headers` are added to each request: `{"Authorization": "Bearer ${TOKEN}"}`.
    """

    drops_repeats = True

    def __init__(self, url: str, secret: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        self._url = checked_url("Webhook", url)
        self._secret = _checked_secret(secret)
        self._headers = _checked_headers(headers)

    def __repr__(self) -> str:
        return f"<Webhook {host_of(self._url)}{'' if self._secret is None else ', signed'}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Send a letter; see `Channel`."""
        body = body_of(letter)
        secret = "" if self._secret is None else found_in_environment("the secret", self._secret, tools)
        try:
            headers = signed_headers(secret, letter.id, int(now), body) if secret else {ID: letter.id}
        except BadInput as error:
            raise Undelivered(str(error), is_certain=True) from None
        headers |= {"Content-Type": "application/json", IDEMPOTENCY_KEY: letter.id}
        for name, value in self._headers.items():
            headers[name] = found_in_environment(f"the header {name}", value, tools)
        await post(tools, self._url, headers, body, secret)


def _checked_secret(secret: Any) -> str | None:
    if secret is not None and (not isinstance(secret, str) or not secret):
        raise BadInput('Webhook: secret must be text; write "${NAME}"')
    return secret


def _checked_headers(headers: Any) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise BadInput('Webhook: headers must be names with values; write {"Authorization": "Bearer ${TOKEN}"}')
    if own := sorted(name for name in headers if str(name).lower() in _OWN):
        raise BadInput(f"Webhook: everpoll itself sets the header {own[0]}; leave it out")
    try:
        return dict(sendable(headers))
    except BadInput as error:
        raise BadInput(f"Webhook: {error}") from None


class Slack:
    """Sends letters to Slack, Mattermost and others that accept `{"text": …}`: `Slack("${SLACK_URL}")`.

    A repeat would be a second post, so a letter that may have arrived is not sent again.
    """

    drops_repeats = False

    def __init__(self, url: str) -> None:
        self._url = checked_url("Slack", url)

    def __repr__(self) -> str:
        return f"<Slack {host_of(self._url)}>"

    def __rich_repr__(self) -> Any:
        yield repr(self)

    async def deliver(self, letter: Letter, now: float, tools: Tools) -> None:
        """Send a letter; see `Channel`."""
        body = {"text": slack_text(letter), "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}
        await post(tools, self._url, {"Content-Type": "application/json"}, msgspec.json.encode(body))


def slack_text(letter: Letter) -> str:
    """Return the text of a letter with all markup escaped: no links, no mentions.

    Slack interprets &, < and >. Others interpret Markdown links and @names, which an invisible space breaks.
    """
    text = letter.text[:MAX_SLACK_CHARS].strip()
    for sign, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", f"@{_BREAK}"), ("](", f"]{_BREAK}(")):
        text = text.replace(sign, written)
    return text
