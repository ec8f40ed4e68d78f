"""Traces, where the program has set up OpenTelemetry: a span for each enqueue, each run of a job and each look.

    enqueue ──▶ span "enqueue send", its context goes with the task ┄┄link┄┄▶ span "run send", in any process, later

Promises: a program without a tracer provider pays for one access to a dictionary. The span of a run is the current one
while its function runs, so that the function's own spans are its children. Tracing never changes an outcome: its errors
are logged, and the task goes on. Never imports OpenTelemetry: if the program has not imported it, there is no provider.
"""

import logging
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from everpoll.engine.work import Run
from everpoll.stores.contract import Again, Ended, Settlement

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger("everpoll.engine")

TRACE_CHARS = 1_000
"""The longest trace context that a task carries; a longer one is left out."""
_ERROR_CHARS = 500


class _Envelope(Struct):
    trace: dict[str, str] = {}


class _Note(Struct):
    what: str = ""
    error: str = ""
    type: str = ""


_envelope = msgspec.json.Decoder(_Envelope).decode
_note = msgspec.json.Decoder(_Note).decode


def tracer() -> "Tracer | None":
    """Return the tracer of everpoll, or None if the program has set up no tracing."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "ProxyTracerProvider"):
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    found: Tracer = provider.get_tracer("everpoll")
    return found


def carried() -> dict[str, str] | None:
    """Return the trace context for a new task, which links its run to the current span; None if there is no span."""
    if tracer() is None:
        return None
    from opentelemetry import propagate  # noqa: PLC0415 - it is there, since its provider is

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    known: dict[str, str] = {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}
    return known if known and sum(map(len, known.values())) <= TRACE_CHARS else None


def enqueueing(found: "Tracer", name: str, queue: str, tasks: int = 1) -> "AbstractContextManager[Span]":
    """Trace an enqueue in a span."""
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - it is there, since its provider is

    attributes: dict[str, str | int] = {
        "messaging.system": "everpoll",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue,
        "everpoll.name": name,
        "everpoll.tasks": tasks,
    }
    return found.start_as_current_span(f"enqueue {name}", kind=SpanKind.PRODUCER, attributes=attributes)


async def traced(found: "Tracer", run: Run) -> Settlement:
    """Run a task inside its span, linked to the span of its enqueue."""
    assert run.work is not None, "only registered work is run"
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - it is there, since its provider is

    lease, work = run.lease, run.work
    is_look = work.kind in {"watch", "check"}
    attributes: dict[str, str | int] = {
        "messaging.system": "everpoll",
        "messaging.operation.type": "process",
        "messaging.destination.name": lease.queue,
        "everpoll.kind": work.kind,
        "everpoll.name": lease.name,
        "everpoll.task_id": lease.id,
        "everpoll.attempt": lease.attempt,
    }
    with found.start_as_current_span(
        f"{'look' if is_look else 'run'} {lease.name}",
        kind=SpanKind.INTERNAL if is_look else SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(lease.args) if work.kind == "job" else (),
    ) as span:
        settlement = await work.run(run)
        try:
            _complete(span, settlement)
        except Exception:
            logger.exception("%s: its span could not be completed", lease.label)
        return settlement


def _links(args: str) -> list[Any]:
    """Return the span in which the task was enqueued, if it carries one."""
    from opentelemetry import propagate, trace  # noqa: PLC0415 - it is there, since its provider is

    try:
        carried = _envelope(args).trace
        context = trace.get_current_span(propagate.extract(carried)).get_span_context() if carried else None
    except Exception:  # noqa: BLE001 - arguments that were written by hand, or a propagator that fails
        return []
    return [] if context is None or not context.is_valid else [trace.Link(context)]


def _complete(span: "Span", settlement: Settlement) -> None:
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - it is there, since its provider is

    outcome = settlement.state if isinstance(settlement, Ended) else "again"
    note = _Note() if settlement.note is None else _note(settlement.note)
    span.set_attribute("everpoll.outcome", note.what or outcome)
    if outcome == "failed" or (isinstance(settlement, Again) and note.type):
        span.set_attribute("error.type", note.type or "failed")
        span.set_status(Status(StatusCode.ERROR, note.error[:_ERROR_CHARS] or None))
