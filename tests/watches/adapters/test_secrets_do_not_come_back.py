"""A secret that comes back from a remote is masked in all that is kept, but for the user's own result."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from everpoll.errors import BadInput
from everpoll.http.secrets import Secrets
from everpoll.watches.adapters import HttpError, Request, Response
from everpoll.watches.adapters.anthropic_batch import AnthropicBatch
from everpoll.watches.adapters.client import Client
from everpoll.watches.adapters.http202 import Http202
from everpoll.watches.adapters.openai_batch import OpenAIBatch
from everpoll.watches.verdicts import Done, Fail, Wait
from watches.adapters.fake_server import Answer, serving

TOKEN = "sk-very/secret+1234"  # noqa: S105 - that of a test
HOME = "https://api.example.com/ops/7"


def answering(status: int, body: bytes) -> Any:
    async def fetch(method: str, url: str, *, headers: Mapping[str, str], **more: Any) -> Response:
        return Response(status, {}, body, url=url)

    return fetch


def escapes(text: str) -> str:
    """As JSON may write it, too."""
    return text.replace("/", r"\/").replace("+", r"\u002B")


@pytest.mark.parametrize("written", [TOKEN, escapes(TOKEN), "sk-very%2Fsecret%2B1234"])
@pytest.mark.parametrize("status", [400, 401])
async def test_an_error_is_masked_however_json_writes_it(status: int, written: str) -> None:
    body = b'{"error": {"message": "bad key %s."}}' % written.encode()
    adapter = Http202(headers={"Authorization": f"Bearer {TOKEN}"}, fetch=answering(status, body))
    verdict = await adapter.look(HOME)
    assert isinstance(verdict, Fail)
    assert verdict.reason.endswith("bad key ***.")
    assert verdict.evidence["body"] == {"error": {"message": "bad key ***."}}
    with pytest.raises(HttpError) as error:
        await adapter.start(HOME, "k")
    assert "bad key ***." in str(error.value)
    assert b"1234" not in error.value.response.body


@pytest.mark.parametrize("written", [TOKEN, escapes(TOKEN)])
async def test_a_failure_that_comes_as_a_success_is_masked_as_well(written: str) -> None:
    said = b'{"status": "failed", "error": "bad %s"}' % written.encode()
    adapter = Http202(headers={"Authorization": f"Bearer {TOKEN}"}, fetch=answering(200, said))
    for verdict in (await adapter.look(HOME), (await adapter.start(HOME, "k")).verdict):
        assert isinstance(verdict, Fail)
        assert verdict.reason == "the remote says 'failed': bad ***"
        assert verdict.evidence["body"]["error"] == "bad ***"


async def test_a_text_that_only_holds_json_is_masked_as_well() -> None:
    said = b'{"status": "failed", "error": "%s", "x": "%s"}' % (escapes(TOKEN).encode(), b"y" * 5_000)
    verdict = await Http202(headers={"X-Api-Key": TOKEN}, fetch=answering(200, said)).look(HOME)
    assert isinstance(verdict, Fail)
    assert len(json.dumps(verdict.evidence)) < 5_000, "and bounded"
    assert "1234" not in json.dumps(verdict.evidence)


async def test_of_a_long_error_the_beginning_is_kept_and_masked() -> None:
    body = TOKEN.encode() + b"\\" * 8_000_000
    response = await Client(answering(400, body), {"X-Api-Key": TOKEN}).send(Request(HOME))
    assert response.body.startswith(b"***\\")
    assert len(response.body) < 300_000


async def test_words_and_notes_of_what_goes_on_are_masked_as_well() -> None:
    said = json.dumps({"status": f"waiting for {TOKEN}", "progress": f"with {TOKEN}"}).encode()
    verdict = await Http202(headers={"Authorization": f"Bearer {TOKEN}"}, fetch=answering(202, said)).look(HOME)
    assert verdict == Wait(status="waiting for ***", note="with ***")


async def test_a_result_is_the_users_own_and_left_as_it_is() -> None:
    said = json.dumps({"your key": TOKEN}).encode()
    adapter = Http202(headers={"Authorization": f"Bearer {TOKEN}"}, fetch=answering(200, said))
    assert await adapter.look(HOME) == Done({"your key": TOKEN})


async def test_headers_of_a_request_are_secrets_too() -> None:
    client = Client(answering(400, b"no tenant t-12345678 here"))
    response = await client.send(Request(HOME, headers={"X-Tenant-Token": "t-12345678", "Idempotency-Key": "tenant"}))
    assert response.body == b"no tenant *** here", "and a key of a run is none"


async def test_of_basic_the_password_in_clear_is_masked() -> None:
    basic = base64.b64encode(b"bob:hunter22").decode()
    client = Client(answering(400, b"bob:hunter22, that is hunter22"), {"Authorization": f"Basic {basic}"})
    assert (await client.send(Request(HOME))).body == b"***, that is ***"


async def test_tokens_of_before_are_masked_for_a_while_and_not_collected_for_ever() -> None:
    tokens = (f"token-number-{n}" for n in range(1_000))
    client = Client(answering(200, b""), lambda: {"Authorization": next(tokens)})
    for _ in range(100):
        await client.send(Request(HOME, "GET"))
    assert client.masked("token-number-99 token-number-98") == "*** ***"
    assert client.masked("token-number-1") == "token-number-1"
    assert len(client._sent) <= 32


def test_secrets_are_cut_out_quoted_in_parts_and_in_names() -> None:
    secrets = Secrets({"Cookie": "sid=abcd/efgh; theme=dark1234"}, "https://a.example/?sig=s1g%2Fnature&page=first")
    assert secrets.masked(["abcd/efgh", "abcd%2Fefgh", "dark1234", "s1g/nature"]) == ["***"] * 4
    assert secrets.masked({"abcd/efgh": {"first": ("abcd/efgh",)}}) == {"***": {"first": ["***"]}}


def test_the_longer_of_two_secrets_goes_first() -> None:
    secrets = Secrets({"X-Api-Key": "abcdefgh", "X-Other-Key": "abcdefgh-and-more"})
    assert secrets.masked("abcdefgh-and-more") == "***"


def test_secrets_in_addresses_that_are_none_are_found() -> None:
    assert Secrets({}, "user:s3cretpw@host.example/p").masked("user:s3cretpw, s3cretpw") == "***, ***"
    assert Secrets({}, "host.example/x#access_token=s3cretpw").masked("s3cretpw") == "***"
    assert Secrets({}, "http://[::1").masked("as it is") == "as it is"


# ── what cannot be sent ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "sent"),
    [("report:run-42", "report:run-42"), ("東京", "%E6%9D%B1%E4%BA%AC"), ("a\nb c", "a%0Ab%20c"), ("50%", "50%25")],
)
async def test_a_key_of_any_letters_is_sent(key: str, sent: str) -> None:
    with serving(lambda asked: Answer(200, {"id": "batch_1"})) as fake:
        await Http202().start(fake.url, key)
        await OpenAIBatch("sk-1", base_url=fake.url).start({"input_file_id": "f", "endpoint": "/v1"}, key)
        await AnthropicBatch("sk-1", base_url=fake.url).start([{"custom_id": "a"}], key)
        assert [one.headers["idempotency-key"] for one in fake.asked] == [sent] * 3
        assert fake.asked[1].body["metadata"]["everpoll_key"] == key


@pytest.mark.parametrize("headers", [{"X-Secret": "a\nb-secret"}, {"X-Secret": "東京-secret"}, {"X Secret": "secret"}])
async def test_a_header_that_cannot_be_sent_is_the_users_mistake(headers: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"X.Secret") as error:
        await Http202(headers=headers, fetch=answering(200, b"")).look(HOME)
    assert "-secret" not in str(error.value)
