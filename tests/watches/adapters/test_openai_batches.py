"""Batches of OpenAI: what each status means, and a server that satisfies OpenAI's own client and our adapter alike."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from everpoll.errors import BadInput
from everpoll.watches.adapters import Adapter, Canceler, HttpError, Refused, Response, Starter
from everpoll.watches.adapters.openai_batch import KEY_FIELD, OpenAIBatch
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait
from watches.adapters.fake_server import Answer, Asked, FakeServer, serving
from watches.adapters.looking import ended, timeline

KEY = "sk-test-12345678"
OP = {"input_file_id": "file-in", "endpoint": "/v1/chat/completions"}


def batch(status: str, total: int = 0, completed: int = 0, failed: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "id": "batch_1",
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "input_file_id": "file-in",
        "completion_window": "24h",
        "created_at": 1_800_000_000,
        "status": status,
        "request_counts": {"total": total, "completed": completed, "failed": failed},
        **more,
    }


class FakeOpenAI:
    """Batches that go through their statuses, one step a look."""

    def __init__(self, *steps: dict[str, Any]) -> None:
        self.steps = steps
        self.batches: dict[str, dict[str, Any]] = {}
        self.at: dict[str, int] = {}

    def __call__(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return Answer(401, {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}})
        path, _, query = asked.path.removeprefix("/v1/batches").partition("?")
        match (asked.method, path.strip("/").split("/")):
            case ("POST", [""]):
                return self._created(asked.body)
            case ("GET", [""]):
                return self._listed(query)
            case ("GET", [name]) if name in self.batches:
                return Answer(200, self._stepped(name))
            case ("POST", [name, "cancel"]) if name in self.batches:
                return self._canceled(name)
        return Answer(404, {"error": {"message": "No batch found", "type": "invalid_request_error"}})

    def _created(self, body: dict[str, Any]) -> Answer:
        name = f"batch_{len(self.batches) + 1}"
        self.batches[name] = batch("validating", metadata=body.get("metadata"), id=name)
        self.at[name] = 0
        return Answer(200, self.batches[name])

    def _listed(self, query: str) -> Answer:
        names = list(self.batches)[::-1]
        after = query.partition("after=")[2]
        rest = names[names.index(after) + 1 :] if after else names
        page = rest[:2]
        return Answer(200, {"object": "list", "data": [self.batches[one] for one in page], "has_more": len(rest) > 2})

    def _stepped(self, name: str) -> dict[str, Any]:
        kept = {"id": name, "metadata": self.batches[name]["metadata"]}
        if self.batches[name]["status"] == "cancelling":
            self.batches[name] |= {"status": "cancelled", "output_file_id": "file-part"}
        elif self.batches[name]["status"] != "cancelled":
            self.batches[name] = self.steps[min(self.at[name], len(self.steps) - 1)] | kept
            self.at[name] += 1
        return self.batches[name]

    def _canceled(self, name: str) -> Answer:
        if self.batches[name]["status"] in ("completed", "failed", "expired", "cancelled"):
            return Answer(409, {"error": {"message": "Cannot cancel a batch that has ended", "type": "conflict"}})
        self.batches[name] |= {"status": "cancelling"}
        return Answer(200, self.batches[name])


@contextmanager
def remote(*steps: dict[str, Any]) -> Iterator[tuple[FakeServer, OpenAIBatch, openai.OpenAI]]:
    with serving(FakeOpenAI(*steps)) as fake:
        base = f"{fake.url}/v1"
        with openai.OpenAI(api_key=KEY, base_url=base, max_retries=0) as client:
            yield fake, OpenAIBatch(KEY, base_url=base), client


def judged(body: dict[str, Any]) -> Verdict:
    return OpenAIBatch(KEY).judge_batch(body)


def test_it_is_an_adapter() -> None:
    assert isinstance(OpenAIBatch(KEY), Adapter)
    assert isinstance(OpenAIBatch(KEY), Starter)
    assert isinstance(OpenAIBatch(KEY), Canceler)


@pytest.mark.parametrize("status", ["validating", "in_progress", "finalizing", "cancelling", "some_day_new"])
def test_these_are_pending(status: str) -> None:
    verdict = judged(batch(status, total=10, completed=4, failed=1))
    assert verdict == Wait(status=status, note="4 of 10 requests done, 1 failed")


def test_completed_is_done_and_names_its_files() -> None:
    verdict = judged(batch("completed", 3, 2, 1, output_file_id="file-out", error_file_id="file-err"))
    assert isinstance(verdict, Done)
    assert verdict.value["output_file_id"] == "file-out"
    assert verdict.value["error_file_id"] == "file-err"
    assert verdict.value["request_counts"] == {"total": 3, "completed": 2, "failed": 1}


def test_an_empty_file_id_is_none() -> None:
    verdict = judged(batch("completed", 3, 3, output_file_id="file-out", error_file_id=""))
    assert isinstance(verdict, Done)
    assert verdict.value["error_file_id"] is None


def test_completed_without_one_success_is_failure() -> None:
    verdict = judged(batch("completed", 3, 0, 3, error_file_id="file-err"))
    assert isinstance(verdict, Fail)
    assert verdict.reason == "all 3 requests of the batch failed"
    assert verdict.evidence["error_file_id"] == "file-err"


def test_refused_input_says_which_line_and_why() -> None:
    errors = {"object": "list", "data": [{"code": "bad", "message": "no such model", "line": 2, "param": "model"}]}
    verdict = judged(batch("failed", errors=errors))
    assert isinstance(verdict, Fail)
    assert verdict.reason == "the batch was refused: line 2: no such model"
    assert judged(batch("failed", errors=None)).reason == "the batch was refused: no reason given"  # type: ignore[union-attr]


def test_expired_and_cancelled_keep_what_was_done() -> None:
    expired = judged(batch("expired", 10, 4, output_file_id="file-part"))
    assert isinstance(expired, Fail)
    assert (expired.canceled, expired.evidence["output_file_id"]) == (False, "file-part")
    cancelled = judged(batch("cancelled", 10, 4, output_file_id="file-part"))
    assert isinstance(cancelled, Fail)
    assert (cancelled.canceled, cancelled.evidence["output_file_id"]) == (True, "file-part")


@pytest.mark.parametrize(
    "body", [{}, {"status": None}, {"status": 3, "request_counts": "many"}, {"request_counts": None}]
)
def test_odd_bodies_are_pending(body: dict[str, Any]) -> None:
    assert isinstance(judged(body), Wait)


def test_troubles_of_the_service() -> None:
    adapter = OpenAIBatch(KEY)
    busy = adapter.judge(Response(429, {"retry-after-ms": "1500", "retry-after": "2"}))
    assert isinstance(busy, Wait)
    assert busy.after_s == 1.5
    assert isinstance(adapter.judge(Response(401)), Fail)
    assert isinstance(adapter.judge(Response(404), misses=0), Wait)
    assert isinstance(adapter.judge(Response(404), misses=3), Fail)


STEPS = [
    [batch("in_progress", 3, 1), batch("finalizing", 3, 3), batch("completed", 3, 3, output_file_id="file-out")],
    [batch("validating"), batch("failed", errors={"object": "list", "data": [{"message": "so"}]})],
    [batch("in_progress", 3, 1), batch("expired", 3, 1, output_file_id="file-part")],
    [batch("completed", 2, 0, 2, error_file_id="file-err")],
]


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: str(steps[-1]["status"]))
async def test_openais_own_client_sees_the_same_steps_and_end(steps: list[dict[str, Any]]) -> None:
    with remote(*steps) as (_, adapter, client):
        theirs = await asyncio.to_thread(
            lambda: client.batches.create(completion_window="24h", endpoint="/v1/chat/completions", input_file_id="f")
        )
        seen = await asyncio.to_thread(client.batches.retrieve, theirs.id)
        statuses = [seen.status]
        while statuses[-1] not in ("completed", "failed", "expired", "cancelled"):
            seen = await asyncio.to_thread(client.batches.retrieve, theirs.id)
            statuses.append(seen.status)
        handle = await adapter.start(OP, "run-42")
        verdicts = await timeline(adapter, handle)
    assert len(verdicts) == len(statuses)
    assert [one.status for one in verdicts if isinstance(one, Wait)] == statuses[:-1]
    last = verdicts[-1]
    shown = last.value if isinstance(last, Done) else last.evidence if isinstance(last, Fail) else {}
    assert (shown["status"], shown["output_file_id"]) == (statuses[-1], seen.output_file_id)
    assert isinstance(last, Done) is (statuses[-1] == "completed" and shown["request_counts"]["completed"] > 0)


async def test_what_we_began_their_client_finds_and_the_other_way_round() -> None:
    with remote(*STEPS[0]) as (fake, adapter, client):
        ours = await adapter.start(OP | {"metadata": {"who": "me"}}, "run-42")
        seen = await asyncio.to_thread(client.batches.retrieve, ours)
        assert seen.metadata == {"who": "me", KEY_FIELD: "run-42"}
        assert fake.asked[0].body["completion_window"] == "24h"
        theirs = await asyncio.to_thread(
            lambda: client.batches.create(completion_window="24h", endpoint="/v1/chat/completions", input_file_id="f")
        )
        assert isinstance(await ended(adapter, theirs.id), Done)


async def test_a_cancel_by_either_ends_in_canceled_with_partial_output() -> None:
    with remote(batch("in_progress", 3, 1)) as (_, adapter, client):
        for by_us in (True, False):
            handle = await adapter.start(OP, "run-42")
            if by_us:
                await adapter.cancel(handle)
            else:
                await asyncio.to_thread(client.batches.cancel, handle)
            verdict = await ended(adapter, handle)
            assert isinstance(verdict, Fail)
            assert verdict.canceled
            assert verdict.evidence["output_file_id"] == "file-part"
            await adapter.cancel(handle)  # again, after its end: no error
        await adapter.cancel("batch_gone")


async def test_a_crash_before_the_handle_was_stored_is_adopted_by_key() -> None:
    with remote(batch("in_progress")) as (_, adapter, _client):
        handles = [await adapter.start(OP, f"run-{number}") for number in range(5)]
        assert [await adapter.adopt(f"run-{number}") for number in range(5)] == handles
        assert await adapter.adopt("run-9") is None


async def test_only_pages_that_there_are_are_asked_for() -> None:
    """A list may hold whatever others wrote into the metadata, and says itself whether it goes on."""
    odd = [{"id": "batch_1", "metadata": "a text"}, {"id": "batch_2", "metadata": ["k"]}, "no batch", {"id": "batch_3"}]
    with serving(lambda asked: Answer(200, {"data": odd, "has_more": False})) as fake:
        assert await OpenAIBatch(KEY, base_url=fake.url).adopt("run-1") is None
        assert len(fake.asked) == 1
        fake.answer = lambda asked: Answer(200, {"data": 7, "has_more": True})
        assert await OpenAIBatch(KEY, base_url=fake.url).adopt("run-1") is None
        assert len(fake.asked) == 2


async def test_a_wrong_key_fails_and_is_not_shown() -> None:
    with remote(batch("in_progress")) as (fake, _, _client):
        wrong = OpenAIBatch("sk-wrong-12345678", base_url=f"{fake.url}/v1")
        verdict = await wrong.look("batch_1")
        assert isinstance(verdict, Fail)
        assert "sk-wrong" not in repr(verdict)
        with pytest.raises(HttpError) as error:
            await wrong.start(OP, "k")
        assert "sk-wrong" not in repr(error.value)


async def test_the_key_comes_from_the_environment_or_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with remote(batch("completed", 1, 1)) as (fake, adapter, _client):
        handle = await adapter.start(OP, "k")
        with pytest.raises(BadInput, match="OPENAI_API_KEY"):
            await OpenAIBatch(base_url=f"{fake.url}/v1").look(handle)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert isinstance(await OpenAIBatch(base_url=f"{fake.url}/v1").look(handle), Done)


async def test_an_answer_without_an_id_begins_nothing() -> None:
    with serving(lambda asked: Answer(200, {"object": "batch"})) as fake, pytest.raises(Refused, match="without an id"):
        await OpenAIBatch(KEY, base_url=fake.url).start(OP, "k")


async def test_what_cannot_begin_or_be_looked_at_is_said_so() -> None:
    with pytest.raises(BadInput, match="input_file_id"):
        await OpenAIBatch(KEY).start({}, "k")
    with pytest.raises(BadInput, match="not a handle"):
        await OpenAIBatch(KEY).look(7)
    with pytest.raises(Refused):
        await OpenAIBatch(KEY).cancel("..")
