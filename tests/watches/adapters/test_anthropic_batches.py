"""Message batches of Anthropic: ended does not mean success; the server satisfies Anthropic's own client and ours."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import pytest

from everpoll.errors import BadInput
from everpoll.watches.adapters import Adapter, Canceler, Response, Starter
from everpoll.watches.adapters.anthropic_batch import AnthropicBatch
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait
from watches.adapters.fake_server import Answer, Asked, FakeServer, serving
from watches.adapters.looking import ended, timeline

KEY = "sk-ant-12345678"
REQUESTS: list[Any] = [
    {
        "custom_id": "one",
        "params": {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]},
    }
]
URL = "https://api.anthropic.com/v1/messages/batches/msgbatch_1/results"


def batch(status: str, *, url: str | None = None, **counts: int) -> dict[str, Any]:
    names = ("processing", "succeeded", "errored", "canceled", "expired")
    return {
        "id": "msgbatch_1",
        "type": "message_batch",
        "processing_status": status,
        "request_counts": {name: counts.get(name, 0) for name in names},
        "created_at": "2026-11-16T10:00:00Z",
        "expires_at": "2026-11-17T10:00:00Z",
        "ended_at": "2026-11-16T11:00:00Z" if status == "ended" else None,
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": url if status == "ended" else None,
    }


class FakeAnthropic:
    """Batches that go through their statuses, one step a look."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self.steps = steps
        self.batches: dict[str, dict[str, Any]] = {}
        self.at: dict[str, int] = {}

    def __call__(self, asked: Asked) -> Answer:
        # The documentation asks for the first; the vendor's own client, from version 2 on, sends the second.
        keys = (asked.headers.get("x-api-key"), asked.headers.get("authorization", "").removeprefix("Bearer "))
        if KEY not in keys or "anthropic-version" not in asked.headers:
            return _error(401, "authentication_error", "invalid x-api-key")
        match (asked.method, asked.path.removeprefix("/v1/messages/batches").strip("/").split("/")):
            case ("POST", [""]):
                name = f"msgbatch_{len(self.batches) + 1}"
                self.batches[name] = batch("in_progress", processing=len(asked.body["requests"])) | {"id": name}
                self.at[name] = 0
                return Answer(200, self.batches[name])
            case ("GET", [name]) if name in self.batches:
                return Answer(200, self._stepped(name))
            case ("POST", [name, "cancel"]) if name in self.batches:
                if self.batches[name]["processing_status"] == "ended":
                    return _error(400, "invalid_request_error", "Batch has ended")
                self.batches[name] |= {"processing_status": "canceling", "cancel_initiated_at": "2026-11-16T10:30:00Z"}
                return Answer(200, self.batches[name])
            case ("DELETE", [name]) if self.batches.pop(name, None):
                return Answer(200, {"id": name, "type": "message_batch_deleted"})
        return _error(404, "not_found_error", "Not found")

    def _stepped(self, name: str) -> dict[str, Any]:
        if self.batches[name]["processing_status"] == "canceling":
            self.batches[name] |= batch("ended", url=URL, canceled=1) | {"id": name}
        elif self.batches[name]["processing_status"] != "ended":
            self.batches[name] = self.steps[min(self.at[name], len(self.steps) - 1)] | {"id": name}
            self.at[name] += 1
        return self.batches[name]


def _error(status: int, kind: str, message: str) -> Answer:
    return Answer(status, {"type": "error", "error": {"type": kind, "message": message}})


@contextmanager
def remote(*steps: dict[str, Any]) -> Iterator[tuple[FakeServer, AnthropicBatch, anthropic.Anthropic]]:
    with (
        serving(FakeAnthropic(*steps)) as fake,
        anthropic.Anthropic(api_key=KEY, base_url=fake.url, max_retries=0) as client,
    ):
        yield fake, AnthropicBatch(KEY, base_url=fake.url), client


def judged(body: dict[str, Any], **options: Any) -> Verdict:
    return AnthropicBatch(KEY, **options).judge_batch(body)


def test_it_is_an_adapter() -> None:
    assert isinstance(AnthropicBatch(KEY), Adapter)
    assert isinstance(AnthropicBatch(KEY), Starter)
    assert isinstance(AnthropicBatch(KEY), Canceler)


@pytest.mark.parametrize("status", ["in_progress", "canceling", "some_day_new"])
def test_these_are_pending(status: str) -> None:
    note = "3 of 10 requests ended; expires at 2026-11-17T10:00:00Z"
    assert judged(batch(status, processing=7, succeeded=3)) == Wait(status=status, note=note)


@pytest.mark.parametrize(
    ("counts", "kind", "canceled"),
    [
        ({"succeeded": 3}, Done, False),
        ({"succeeded": 1, "errored": 2}, Done, False),
        ({"succeeded": 1, "canceled": 2}, Done, False),
        ({}, Done, False),
        ({"errored": 3}, Fail, False),
        ({"expired": 3}, Fail, False),
        ({"canceled": 3}, Fail, True),
        ({"canceled": 1, "errored": 2}, Fail, False),
        ({"canceled": 1, "expired": 2}, Fail, False),
    ],
)
def test_ended_is_judged_by_its_counts(counts: dict[str, int], kind: type, canceled: bool) -> None:
    verdict = judged(batch("ended", url=URL, **counts))
    assert isinstance(verdict, kind)
    assert getattr(verdict, "canceled", False) is canceled
    shown = verdict.value if isinstance(verdict, Done) else verdict.evidence if isinstance(verdict, Fail) else {}
    assert shown["results_url"] == URL


def test_a_caller_that_needs_all_says_so() -> None:
    mixed = judged(batch("ended", url=URL, succeeded=2, errored=1), all_must_succeed=True)
    assert isinstance(mixed, Fail)
    assert mixed.reason == "of 3 requests 2 succeeded, 1 errored"
    assert isinstance(judged(batch("ended", url=URL, succeeded=3), all_must_succeed=True), Done)
    cut = judged(batch("ended", url=URL, succeeded=2, canceled=1), all_must_succeed=True)
    assert isinstance(cut, Fail)
    assert cut.canceled


def test_results_that_are_not_there_yet_are_waited_for_unless_archived() -> None:
    assert isinstance(judged(batch("ended", url=None, succeeded=1)), Wait)
    gone = judged(batch("ended", url=None, succeeded=1) | {"archived_at": "2026-12-16T10:00:00Z"})
    assert isinstance(gone, Fail)
    assert "archived" in gone.reason


@pytest.mark.parametrize("body", [{}, {"processing_status": 1}, {"request_counts": [1]}])
def test_odd_bodies_are_pending(body: dict[str, Any]) -> None:
    assert isinstance(judged(body), Wait)


def test_an_overloaded_service_says_nothing_of_the_batch() -> None:
    verdict = AnthropicBatch(KEY).judge(Response(529, {"retry-after": "20"}))
    assert isinstance(verdict, Wait)
    assert verdict.after_s == 20


STEPS = [
    [batch("in_progress", processing=2), batch("ended", url=URL, succeeded=2)],
    [batch("in_progress", processing=2), batch("in_progress", processing=2), batch("ended", url=URL, errored=2)],
    [batch("ended", url=URL, expired=1)],
]


@pytest.mark.parametrize("steps", STEPS, ids=("succeeded", "errored", "expired"))
async def test_anthropics_own_client_sees_the_same_steps_and_end(steps: list[dict[str, Any]]) -> None:
    with remote(*steps) as (_, adapter, client):
        theirs = await asyncio.to_thread(lambda: client.messages.batches.create(requests=REQUESTS))
        seen = await asyncio.to_thread(client.messages.batches.retrieve, theirs.id)
        statuses = [seen.processing_status]
        while statuses[-1] != "ended":
            seen = await asyncio.to_thread(client.messages.batches.retrieve, theirs.id)
            statuses.append(seen.processing_status)
        handle = await adapter.start(REQUESTS, "run-42")
        verdicts = await timeline(adapter, handle)
    assert [one.status for one in verdicts if isinstance(one, Wait)] == statuses[:-1]
    last = verdicts[-1]
    assert isinstance(last, Done) is (seen.request_counts.succeeded > 0)
    shown = last.value if isinstance(last, Done) else last.evidence if isinstance(last, Fail) else {}
    assert shown["results_url"] == seen.results_url
    assert shown["request_counts"] == seen.request_counts.model_dump()


async def test_a_cancel_by_either_ends_in_canceled() -> None:
    with remote(batch("in_progress", processing=1)) as (_, adapter, client):
        for by_us in (True, False):
            handle = await adapter.start({"requests": REQUESTS}, "run-42")
            if by_us:
                await adapter.cancel(handle)
            else:
                await asyncio.to_thread(client.messages.batches.cancel, handle)
            verdict = await ended(adapter, handle)
            assert isinstance(verdict, Fail)
            assert verdict.canceled
            await adapter.cancel(handle)  # again, after its end: no error


async def test_an_ended_batch_can_be_deleted_once_or_twice() -> None:
    with remote(batch("ended", url=URL, succeeded=1)) as (_, adapter, _client):
        handle = await adapter.start(REQUESTS, "run-42")
        assert isinstance(await ended(adapter, handle), Done)
        await adapter.delete(handle)
        await adapter.delete(handle)
        assert isinstance(await ended(adapter, handle), Fail)  # not found any more


async def test_a_wrong_key_fails_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with remote(batch("in_progress")) as (fake, _, _client):
        verdict = await AnthropicBatch("sk-wrong-12345678", base_url=fake.url).look("msgbatch_1")
        assert isinstance(verdict, Fail)
        assert "authentication_error: invalid x-api-key" in verdict.reason
        assert "sk-wrong" not in repr(verdict)
        with pytest.raises(BadInput, match="ANTHROPIC_API_KEY"):
            await AnthropicBatch(base_url=fake.url).look("msgbatch_1")


@pytest.mark.parametrize("op", [[], {}, {"requests": []}, {"requests": "x"}])
async def test_what_cannot_begin_is_said_so(op: Any) -> None:
    with pytest.raises(BadInput, match="requests"):
        await AnthropicBatch(KEY).start(op, "k")


async def test_what_is_no_handle_is_said_so() -> None:
    with pytest.raises(BadInput, match="not a handle"):
        await AnthropicBatch(KEY).look(7)
