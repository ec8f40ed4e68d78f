"""Batches of OpenAI: many requests in one file, answered within a day.

    validating, in_progress, finalizing, cancelling   pending; `request_counts` is the progress
    completed      done; failed if every request failed
    failed         failed: the input was refused, `errors` says why
    expired        failed: the window closed; the output file has what was done until then
    cancelled      canceled; may have partial output

An unknown status is pending. The value, and the evidence of a failure, name the files; an empty id counts as no file.
"""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from everpoll.errors import BadInput
from everpoll.watches.adapters.addresses import joined
from everpoll.watches.adapters.client import Client, Headers, Memory, OverHttp, Request, as_key, id_in
from everpoll.watches.adapters.fetch import Fetch
from everpoll.watches.adapters.response import Response
from everpoll.watches.adapters.statuses import TEXT_LIMIT, floor_s, trouble
from everpoll.watches.verdicts import Done, Fail, Verdict, Wait

BASE_URL = "https://api.openai.com/v1"
KEY_FIELD = "everpoll_key"
"""The field in a batch's metadata that holds the run's key, so that `adopt` finds the batch after a crash."""

_PAGES_AT_MOST = 20


class OpenAIBatch(OverHttp):
    """Batches of one account: `OpenAIBatch()` takes the key from `OPENAI_API_KEY`, at each request."""

    def __init__(
        self,
        api_key: str | None = None,
        *,
        base_url: str = BASE_URL,
        headers: Headers | None = None,
        fetch: Fetch | None = None,
    ) -> None:
        super().__init__(Client(fetch, headers or (lambda: _bearer(api_key))))
        self._base = base_url

    def judge(self, response: Response, *, misses: int = 0) -> Verdict:
        """Judge an answer to `GET /batches/{id}`."""
        verdict = trouble(response, misses=misses, tolerated=self._not_found)
        return self.judge_batch(response.fields(), floor_s(response)) if verdict is None else verdict

    def judge_batch(self, batch: Mapping[str, Any], floor_s: float | None = None) -> Verdict:
        """Judge a batch in the form of its JSON."""
        status, shown = batch.get("status"), _shown(batch)
        counts = shown["request_counts"]
        match status:
            case "completed" if counts["failed"] > 0 and counts["completed"] == 0:
                return Fail(f"all {counts['failed']} requests of the batch failed", evidence=shown, status=status)
            case "completed":
                return Done(shown, status=status)
            case "failed":
                return Fail(f"the batch was refused: {_errors(batch)}", evidence=shown, status=status)
            case "expired":
                return Fail(
                    f"the batch expired: {_progress(counts) or 'nothing was done'}", evidence=shown, status=status
                )
            case "cancelled":
                return Fail("the batch was canceled", evidence=shown, canceled=True, status=status)
        return Wait(floor_s, note=_progress(counts), status=str(status)[:TEXT_LIMIT] if status else None)

    async def start(self, op: Mapping[str, Any], key: str) -> str:
        """Start a batch from `input_file_id`, `endpoint` and the service's other fields; the handle is its id."""
        if not op.get("input_file_id") or not op.get("endpoint"):
            raise BadInput('a batch begins with {"input_file_id": "file-…", "endpoint": "/v1/chat/completions"}')
        metadata = {**(op.get("metadata") or {}), KEY_FIELD: key}
        body = {"completion_window": "24h", **op, "metadata": metadata}
        request = Request(joined(self._base, "batches"), json=body, headers={"Idempotency-Key": as_key(key)})
        return id_in(await self._client.accepted(request))

    async def adopt(self, key: str) -> str | None:
        """Return the id of the batch that was started with this key; None: it is not among the latest 2,000."""
        after = ""
        for _ in range(_PAGES_AT_MOST):
            url = f"{joined(self._base, 'batches')}?limit=100{after}"
            page = (await self._client.accepted(Request(url, "GET"))).fields()
            listed = page.get("data")
            batches = [one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict)]
            for batch in batches:
                metadata = batch.get("metadata")
                if isinstance(metadata, dict) and metadata.get(KEY_FIELD) == key:
                    return str(batch.get("id"))
            if not page.get("has_more") or not batches:
                return None
            after = f"&after={quote(str(batches[-1].get('id')), safe='')}"
        return None

    async def cancel(self, handle: str) -> None:
        """Ask the service to cancel: the batch is `cancelling` for up to ten minutes, then `cancelled`."""
        # 409: it has ended.
        await self._client.accepted(Request(self._url(handle, "cancel")), tolerated=frozenset({404, 409}))

    async def _look(self, handle: Any, memory: Memory) -> Verdict:
        response = await self._read(self._url(handle))
        return self.judge(response, misses=self._misses(response, memory))

    def _url(self, handle: Any, *more: str) -> str:
        if not isinstance(handle, str):
            raise BadInput(f"{type(handle).__name__} is not a handle of a batch: write its id, batch_…")
        return joined(self._base, "batches", handle, *more)


def _bearer(api_key: str | None) -> dict[str, str]:
    key = api_key or os.environ.get("OPENAI_API_KEY")
    if not key:
        raise BadInput("no key for OpenAI: set OPENAI_API_KEY, or pass OpenAIBatch(api_key)")
    return {"Authorization": f"Bearer {key}"}


def _shown(batch: Mapping[str, Any]) -> dict[str, Any]:
    counts = batch.get("request_counts")
    counts = counts if isinstance(counts, dict) else {}
    return {
        "id": batch.get("id"),
        "status": batch.get("status"),
        "output_file_id": batch.get("output_file_id") or None,
        "error_file_id": batch.get("error_file_id") or None,
        "request_counts": {name: _count(counts.get(name)) for name in ("total", "completed", "failed")},
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _progress(counts: Mapping[str, int]) -> str | None:
    if counts["total"] == 0:
        return None
    failed = f", {counts['failed']} failed" if counts["failed"] else ""
    return f"{counts['completed']} of {counts['total']} requests done{failed}"


def _errors(batch: Mapping[str, Any]) -> str:
    errors = batch.get("errors")
    listed = errors.get("data") if isinstance(errors, dict) else None
    said = []
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            line = f"line {one['line']}: " if one.get("line") is not None else ""
            said.append(f"{line}{one.get('message') or one.get('code') or 'no reason given'}")
    return "; ".join(said)[:TEXT_LIMIT] or "no reason given"
