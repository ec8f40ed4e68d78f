"""Posting: sends one letter as one HTTP request, and tells whether it was delivered.

Promises: a status of 200 to 299 means delivered. After another status, a refused connection, an unknown host name or a
failed handshake the letter did not arrive; after a gateway's 502 or 504, or if no answer came, it may have. Errors show
only the host of the address, because the path is a secret.
"""

from collections.abc import Mapping
from typing import Any

from everpoll.errors import BadInput
from everpoll.http import NotAsked, NotReached, Request, retry_after_s
from everpoll.http.environment import replaced
from everpoll.http.secrets import Secrets
from everpoll.http.urls import shown, target_of
from everpoll.monitors.alerts.channel import MAX_ERROR_CHARS, Tools, Undelivered
from everpoll.monitors.alerts.letter import one_line

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 64 * 1024
_GATEWAY_FAILED = frozenset({502, 504})
"""The statuses of a gateway that forwarded the request and got no usable answer."""
_QUOTED_CHARS = 100


def checked_url(what: str, url: Any) -> str:
    """Return the address of a channel, checked; one with references to the environment is checked when it is used."""
    if not isinstance(url, str) or not url:
        raise BadInput(f'{what}: url must be text; write "https://…" or "${{NAME}}"')
    if "${" not in url:
        try:
            target_of(url)
        except BadInput as error:
            raise BadInput(f"{what}: {error}") from None
    return url


def host_of(url: str) -> str:
    """Return the part of an address that may be shown."""
    return url if url.startswith("${") and url.endswith("}") and url.count("}") == 1 else _place(url)


async def post(tools: Tools, url: str, headers: Mapping[str, str], body: bytes, secret: str = "") -> None:
    """Send a letter as one request; raise `Undelivered` unless it was accepted. `url` may have `${NAME}` references."""
    address = found_in_environment("the url", url, tools)
    # A new connection: if the server closes a reused one, it stays unknown whether the letter arrived.
    try:
        request = Request(
            address,
            method="POST",
            headers=headers,
            body=body,
            timeout_s=TIMEOUT_S,
            max_body_bytes=MAX_ANSWER_BYTES,
            fresh=True,
        )
    except BadInput as error:
        # The reason without the value, which may be a secret.
        why = str(error) if "header" in str(error) else f"{host_of(url)} is not a valid http or https URL"
        raise Undelivered(why, is_certain=True) from None
    hidden = Secrets(headers, address, (target_of(address).path, secret))

    def without_secrets(why: str) -> str:
        masked: str = hidden.masked(why.replace(shown(target_of(address).url), _place(address)))
        return one_line(masked, MAX_ERROR_CHARS)

    try:
        answer = await tools.client.send(request)
    except NotAsked as error:
        raise Undelivered(without_secrets(str(error)), is_certain=True) from None
    except NotReached as error:
        raise Undelivered(without_secrets(str(error)), is_certain=error.is_unsent) from None
    if 200 <= answer.status < 300:
        return
    said = answer.body[:_QUOTED_CHARS].decode("utf-8", "replace").strip()
    why = f"{_place(address)} answered with HTTP {answer.status}{f': {said}' if said else ''}"
    if 300 <= answer.status < 400:
        why = f"{_place(address)} answered with a redirect, HTTP {answer.status}: write the address that it leads to"
    wait_s = retry_after_s(answer.headers, longest="1h")
    raise Undelivered(without_secrets(why), is_certain=answer.status not in _GATEWAY_FAILED, retry_after_s=wait_s)


def found_in_environment(what: str, text: str, tools: Tools) -> str:
    """Return a text with its references to the environment replaced."""
    try:
        return replaced(what, text, tools.environment)
    except NotAsked as error:
        raise Undelivered(str(error), is_certain=True) from None


def _place(url: str) -> str:
    try:
        target = target_of(url)
    except BadInput:
        return "the address"
    return f"{target.scheme}://{target.host_header}"
