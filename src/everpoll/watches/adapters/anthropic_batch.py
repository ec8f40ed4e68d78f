"""Message batches of Anthropic: many requests at once, ended within a day.

    in_progress, canceling   pending
    ended                    every request has ended; `request_counts` tells how many succeeded

An ended batch is done if at least one request succeeded (`all_must_succeed=True`: if all did). Otherwise it is canceled
if all other requests were canceled, else failed. The value names `results_url`, which is null until the batch has
ended. If an ended batch has no `results_url` yet, it is pending; if it is archived, it has failed, because its results
are gone. An unknown status is pending.
"""

import os
from collections.abc import Mapping
from typing import Any

from everpoll.errors import BadInput
from everpoll.watches.adapters.addresses import joined
from everpoll.watches.adapters.client import Client, Headers, Memory, OverHttp, Request, as_key, id_in
from everpoll.watches.adapters.fetch import Fetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.statuses import TEXT_LIMIT, floor_s, trouble
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"
_COUNTS = ("processing", "succeeded", "errored", "canceled", "expired")


class AnthropicBatch(OverHttp):
    """Batches of one account: `AnthropicBatch()` takes the key from `ANTHROPIC_API_KEY`, at each request."""

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = BASE_URL,
        headers: Headers | None = None,
        fetch: Fetch | None = None,
        all_must_succeed: bool = False,
    ) -> None:
        super().__init__(Client(fetch, headers or (lambda: _key(api_key))))
        self._base = base_url
        self._all_must_succeed = all_must_succeed

    def judge(self, response: Response, *, misses: int = 0) -> Verdict:
        """Judge an answer to `GET /v1/messages/batches/{id}`."""
        verdict = trouble(response, misses=misses, tolerated=self._not_found)
        return self.judge_batch(response.fields(), floor_s(response)) if verdict is None else verdict

    def judge_batch(self, batch: Mapping[str, Any], floor_s: float | None = None) -> Verdict:
        """Judge a batch in the form of its JSON."""
        status, shown = batch.get("processing_status"), _shown(batch)
        counts = shown["request_counts"]
        if status != "ended":
            word = str(status)[:TEXT_LIMIT] if status else None
            return Wait(floor_s, note=_note(counts, batch), status=word)
        total, succeeded = sum(counts.values()), counts["succeeded"]
        if total and (succeeded == 0 or (self._all_must_succeed and succeeded < total)):
            is_canceled = counts["canceled"] > 0 and counts["canceled"] + succeeded == total
            return Fail(f"of {total} requests {_listed(counts)}", evidence=shown, canceled=is_canceled, status="ended")
        if shown["results_url"] is not None:
            return Done(shown, status="ended")
        if batch.get("archived_at"):
            return Fail("the batch is archived: its results are gone", evidence=shown, status="ended")
        return Wait(floor_s, note="ended; its results are not there yet", status="ended")

    async def start(self, op: Any, key: str) -> str:
        """Begin a batch of requests (`{"requests": […]}`, or the list); the handle is its id.

        The service documents no idempotency: the key is sent, but a crash between the start and the storing of its
        answer may leave a batch behind.
        """
        body = op if isinstance(op, Mapping) else {"requests": op}
        if not isinstance(body.get("requests"), list | tuple) or not body["requests"]:
            raise BadInput('a batch begins with {"requests": [{"custom_id": "…", "params": {…}}, …]}')
        request = Request(self._url(), json=body, headers={"Idempotency-Key": as_key(key)})
        return id_in(await self._client.accepted(request))

    async def cancel(self, handle: str) -> None:
        """Ask the service to cancel: the batch is `canceling`, then `ended`; running requests may still succeed."""
        # 400: it has ended already.
        await self._client.accepted(Request(self._url(handle, "cancel")), tolerated=frozenset({400, 404, 409}))

    async def delete(self, handle: str) -> None:
        """Delete an ended batch with its results."""
        await self._client.accepted(Request(self._url(handle), "DELETE"), tolerated=frozenset({404}))

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        response = await self._read(self._url(handle))
        return self.judge(response, misses=self._misses(response, memory))

    def _url(self, *more: Any) -> str:
        if not all(isinstance(one, str) for one in more):
            raise BadInput(f"{type(more[0]).__name__} is not a handle of a batch: write its id, msgbatch_…")
        return joined(self._base, "v1", "messages", "batches", *more)


def _key(api_key: str | None) -> dict[str, str]:
    key = api_key or os.environ.get("ANTHROPIC_API_KEY")
    if not key:
        raise BadInput("no key for Anthropic: set ANTHROPIC_API_KEY, or pass AnthropicBatch(api_key)")
    return {"x-api-key": key, "anthropic-version": VERSION}


def _shown(batch: Mapping[str, Any]) -> dict[str, Any]:
    counts = batch.get("request_counts")
    counts = counts if isinstance(counts, dict) else {}
    return {
        "id": batch.get("id"),
        "processing_status": batch.get("processing_status"),
        "results_url": batch.get("results_url") or None,
        "request_counts": {name: _count(counts.get(name)) for name in _COUNTS},
        "expires_at": batch.get("expires_at"),
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in _COUNTS if counts[name]) or "none ended"


def _note(counts: Mapping[str, int], batch: Mapping[str, Any]) -> str | None:
    total = sum(counts.values())
    if total == 0:
        return None
    expires = f"; expires at {str(batch['expires_at'])[:40]}" if batch.get("expires_at") else ""
    return f"{total - counts['processing']} of {total} requests ended{expires}"
