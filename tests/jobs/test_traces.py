"""Where a program has set up OpenTelemetry, an enqueue, the run that follows it and each look have their spans."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import opentelemetry.trace as api
import pytest
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util._once import Once

from everpoll import Backoff, Budget, Everpoll, Retry, Snooze
from everpoll.engine import tracing
from everpoll.testing import VirtualClock, drain
from everpoll.watches import Done


class RecordedSpan(NonRecordingSpan):
    """A span that remembers what it was told."""

    def __init__(self, number: int, name: str, parent: Span, **about: Any) -> None:
        outer = parent.get_span_context()
        trace_id = outer.trace_id if outer.is_valid else 1_000 + number
        super().__init__(SpanContext(trace_id, number, False, TraceFlags(TraceFlags.SAMPLED)))
        self.name = name
        self.parent_id = outer.span_id if outer.is_valid else None
        self.kind: SpanKind = about["kind"]
        self.links: list[Link] = list(about["links"] or ())
        self.attributes: dict[str, Any] = dict(about["attributes"] or {})
        self.status: Status | None = None

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        assert isinstance(status, Status)
        self.status = status


class Recorder(api.TracerProvider, api.Tracer):
    """A provider and its one tracer: the smallest that the API asks for."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def get_tracer(self, *_args: Any, **_kwargs: Any) -> "Recorder":
        return self

    def start_span(self, name: str, context: Context | None = None, **about: Any) -> RecordedSpan:  # type: ignore[override]
        known = {"kind": SpanKind.INTERNAL, "links": (), "attributes": {}, **about}
        span = RecordedSpan(len(self.spans) + 1, name, api.get_current_span(context), **known)
        self.spans.append(span)
        return span

    @contextmanager
    def start_as_current_span(self, name: str, *_args: Any, **about: Any) -> Iterator[RecordedSpan]:  # type: ignore[override]
        span = self.start_span(name, **about)
        with api.use_span(span):
            yield span

    def named(self, name: str) -> RecordedSpan:
        [span] = [one for one in self.spans if one.name == name]
        return span


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A provider for the length of a test; a program sets one for its whole life."""
    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(api, "_TRACER_PROVIDER_SET_ONCE", Once())
    recorder = Recorder()
    api.set_tracer_provider(recorder)
    return recorder


async def test_a_run_is_linked_to_its_enqueue_and_is_current_for_its_function(recorder: Recorder) -> None:
    app = Everpoll("memory://")
    seen: list[SpanContext] = []

    @app.job(queue="mail")
    async def send(address: str) -> None:
        seen.append(api.get_current_span().get_span_context())

    task = await send.enqueue("ada")
    await drain(app)
    enqueue, run = recorder.named("enqueue send"), recorder.named("run send")
    assert (enqueue.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert [link.context.span_id for link in run.links] == [enqueue.get_span_context().span_id]
    assert [link.context.trace_id for link in run.links] == [enqueue.get_span_context().trace_id]
    assert seen == [run.get_span_context()]
    assert run.parent_id is None, "linked, not a child: it may run days later"
    for span in (enqueue, run):
        assert span.attributes["everpoll.task_id"] == task.id
        assert span.attributes["messaging.destination.name"] == "mail"
    assert run.attributes["everpoll.outcome"] == "done"
    assert run.status is None
    await app.close()


async def test_the_context_travels_in_the_row_and_the_arguments_are_what_they_were(recorder: Recorder) -> None:
    app = Everpoll("memory://")

    @app.job()
    async def work(number: int, word: str = "x") -> list[Any]:
        return [number, word]

    task, *_ = await work.enqueue_many([(1,), (2,)])
    info = await task.info()
    span_id = recorder.named("enqueue work").get_span_context().span_id
    assert f"{span_id:016x}" in info.args["trace"]["traceparent"]
    assert (info.args["args"], info.args["kwargs"]) == ([1], {})
    await drain(app)
    assert await task.result() == [1, "x"]
    assert [len(one.links) for one in recorder.spans if one.name == "run work"] == [1, 1]
    await app.close()


async def test_failed_and_repeated_attempts_have_their_own_spans(recorder: Recorder) -> None:
    clock = VirtualClock()
    app = Everpoll("memory://", clock=clock)

    @app.job(retry=Retry(2))
    async def fail() -> None:
        raise ValueError("no")

    @app.job()
    async def rest() -> Snooze | None:
        return Snooze("1h")

    async with clock:
        await fail.enqueue()
        await drain(app)
        await clock.advance(5)
        await drain(app)
        runs = [one for one in recorder.spans if one.name == "run fail"]
        assert [one.attributes["everpoll.outcome"] for one in runs] == ["retry", "failed"]
        assert [one.attributes["everpoll.attempt"] for one in runs] == [1, 2]
        for run in runs:
            assert run.attributes["error.type"] == "ValueError"
            assert run.status is not None
            assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "no")
        await rest.enqueue()
        await drain(app)
        snoozed = next(one for one in recorder.spans if one.name == "run rest")
        assert (snoozed.attributes["everpoll.outcome"], snoozed.status) == ("snooze", None)
        await app.close()


async def test_a_look_has_a_span(recorder: Recorder) -> None:
    app = Everpoll("memory://")

    @app.watch(every=Backoff("1s"), budget=Budget("1m"))
    async def build(op: str, w: object) -> Done:
        return Done(op)

    async with app:
        await (await build.begin("x", id="1")).result()
    looks = [one for one in recorder.spans if one.name == "look build"]
    assert looks
    assert all(one.kind is SpanKind.INTERNAL and one.attributes["everpoll.kind"] == "watch" for one in looks)


async def test_arguments_that_carry_nonsense_are_run_all_the_same(recorder: Recorder) -> None:
    app = Everpoll("memory://")

    @app.job()
    async def work() -> int:
        return 1

    store = await app.store()
    for trace in ('{"traceparent":"nonsense"}', "7", "null"):
        task = work.new_task((), {})
        [enqueued] = await store.enqueue(
            [type(task)(name=task.name, args=f'{{"args":[],"kwargs":{{}},"trace":{trace}}}', queue=task.queue)]
        )
        await drain(app)
        assert await app.task(enqueued.id).result() == 1
    assert not any(one.links for one in recorder.spans)
    await app.close()


async def test_without_a_provider_nothing_is_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    app = Everpoll("memory://")

    @app.job()
    async def work() -> None:
        """Do nothing."""

    assert tracing.tracer() is None
    task = await work.enqueue()
    assert (await task.info()).args == {"args": [], "kwargs": {}}
    await app.close()


def test_a_program_that_does_not_use_traces_does_not_import_them() -> None:
    program = """import sys, everpoll
from everpoll.engine import tracing
tracing.tracer()
sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
