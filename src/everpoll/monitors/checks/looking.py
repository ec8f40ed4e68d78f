"""Looking: makes one look at a service: sends the request, reads the answer, and checks the service's conditions.

Promises: a look ends shortly after the service's timeout, whatever the remote does. Nothing that a remote does raises
an error: `NotReached` becomes a look with an error text. A body that is the same as at the last look, except for
latencies, is not parsed again. If the remote repeats credentials of the request, they are masked before the body is
parsed; conditions see the unmasked answer. What follows from a look is decided by `decision`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from everpoll.http import (
    Answer,
    Client,
    DnsResult,
    NotAsked,
    NotReached,
    Request,
    TcpResult,
    TlsResult,
    check_dns,
    check_tcp,
    check_tls,
    retry_after_s,
)
from everpoll.monitors.checks.fetching import Fetching, HostBusy
from everpoll.monitors.checks.sent_secrets import SentSecrets
from everpoll.monitors.conditions import Condition, Facts, failures, parse_condition
from everpoll.monitors.control import Control
from everpoll.monitors.definition import Definition, fetch_key
from everpoll.monitors.look import Look
from everpoll.monitors.mapping import CompiledMapping, compile_mapping
from everpoll.monitors.report import MAX_WARNINGS, Report, Status
from everpoll.monitors.rereading import LastRead, read_again, read_first
from everpoll.monitors.targets import Endpoint, endpoint_of
from everpoll.policy import human

Found = Answer | TcpResult | TlsResult | DnsResult
"""The result of one request or connection."""
CERTIFICATE_WARNING_S = 14 * 86_400.0
"""How long before its expiry a certificate is warned about."""
WITNESS_S = 5.0
WITNESSES_PER_HOST = 100
"""How many different witnesses at one host are asked at a time; each is asked once at a time."""
HTTP = frozenset({"http", "https"})
MAX_WARNING_CHARS = 300


class Reader(Struct):
    """A compiled definition that reads answers, and the last answer, so that an equal one is not read again."""

    definition: Definition
    endpoint: Endpoint
    mapping: CompiledMapping | None
    conditions: tuple[Condition, ...]
    key: Any
    request: Request | None
    reading: str
    """A hash of how bodies are read."""
    last: LastRead | None = None
    body: str | None = None
    """A checksum of the last answer, and of how it was read."""
    sent: SentSecrets | None = None
    """The credentials that go with the request; None without any."""
    aliases: Mapping[str, str] | None = None
    """The aliases that were in use when the dependencies of the last answer were compared."""


def reader_of(definition: Definition) -> Reader:
    """Compile a definition."""
    endpoint = endpoint_of(definition.target)
    is_http = endpoint.scheme in HTTP
    request = None
    if is_http:
        request = Request(
            definition.target, headers=definition.headers, timeout_s=definition.timeout_s, fresh=definition.fresh
        )
    return Reader(
        definition,
        endpoint,
        None if definition.mapping is None else compile_mapping(definition.mapping),
        tuple(parse_condition(text) for text in definition.conditions),
        # Not shared with a request that has less time or a reused connection: it may fail where this one succeeds.
        (fetch_key(definition), definition.timeout_s, definition.fresh),
        request,
        definition.reading,
        sent=SentSecrets.of(definition) if is_http else None,
    )


class Reading(Struct):
    """The status and the report in an answer, before conditions are checked."""

    status: Status
    latency_s: float
    report: Report | None
    body: str | None
    is_unchanged: bool
    warnings: tuple[str, ...]
    answer: Answer | None = None
    certificate_expires_at: float | None = None


class Looking:
    """Looks at services. `wall` is the store's clock as far as this process knows it."""

    def __init__(self, client: Client, fetching: Fetching) -> None:
        self._client = client
        self._fetching = fetching
        self._witnesses = Fetching(WITNESSES_PER_HOST)

    async def look(
        self, reader: Reader, control: Control, wall: Callable[[], float], *, is_forced: bool = False
    ) -> Look:
        """Look once; raise `HostBusy` if too many looks wait for this host."""
        started_at = wall()

        def ask() -> Awaitable[Found]:
            # A look starts when the host has a slot for it; waiting looks are ordered by this time.
            nonlocal started_at
            started_at = wall()
            return self._asked(reader.endpoint, reader.request, reader.definition.timeout_s)

        try:
            found = await self._fetching.shared(reader.key, reader.endpoint.host, control.looked_at, ask)
        except NotReached as error:
            witnessed = await self._is_witnessed(reader.definition.witness)
            return Look(
                started_at=started_at,
                ended_at=wall(),
                reached=False,
                status=Status.DOWN,
                error=_masked(reader, error.reason),
                is_forced=is_forced,
                is_witnessed=witnessed,
            )
        except NotAsked as error:
            return Look(started_at=started_at, ended_at=wall(), reached=None, error=str(error), is_forced=is_forced)
        look = self._judged(reader, found, started_at, wall(), is_forced)
        # "Unchanged" means unchanged since the last look in the row, which another worker may have made.
        return replace(look, is_unchanged=False) if look.is_unchanged and look.body != control.body else look

    def _asked(self, endpoint: Endpoint, request: Request | None, timeout_s: float) -> Awaitable[Found]:
        if request is not None:
            return self._client.send(request)
        match endpoint.scheme:
            case "tcp":
                return check_tcp(endpoint.host, endpoint.port or 0, timeout_s=timeout_s)
            case "tls":
                return check_tls(endpoint.host, endpoint.port or 0, timeout_s=timeout_s)
        assert endpoint.scheme == "dns", "every other target is HTTP"
        return check_dns(endpoint.host, timeout_s=timeout_s)

    async def _is_witnessed(self, witnesses: tuple[str, ...]) -> bool | None:
        """Ask all witnesses at once; return True as soon as one answers, None if the service has none."""
        if not witnesses:
            return None
        asking = [asyncio.ensure_future(self._answers(url)) for url in witnesses]
        try:
            for one in asyncio.as_completed(asking):
                if await one:
                    return True
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return False

    async def _answers(self, url: str) -> bool:
        endpoint = endpoint_of(url)
        request = Request(url, timeout_s=WITNESS_S) if endpoint.scheme in HTTP else None
        try:
            # Shared: if the network of this worker fails, all services ask their witnesses at once.
            await self._witnesses.shared(url, endpoint.host, None, lambda: self._asked(endpoint, request, WITNESS_S))
        except (NotReached, NotAsked, HostBusy):
            return False
        return True

    def _judged(
        self,
        reader: Reader,
        answer: Found,
        started_at: float,
        ended_at: float,
        is_forced: bool,
    ) -> Look:
        found = _read_answer(reader, answer) if isinstance(answer, Answer) else _connected(answer)
        warnings = found.warnings + _certificate(found.certificate_expires_at, ended_at)
        status, error = found.status, _error(found)
        if reader.conditions:
            failed = _failed(reader.conditions, found, ended_at)
            if failed:
                # The error of the answer itself is more helpful than a failed condition, so it comes first.
                status, error = Status.DOWN, _masked(reader, "; ".join((*([error] if error else []), *failed)))
        return Look(
            started_at=started_at,
            ended_at=ended_at,
            reached=True,
            status=status,
            error=error,
            http_status=None if found.answer is None else found.answer.status,
            latency_ms=round(found.latency_s * 1000, 3),
            retry_after_s=None if found.answer is None else _retry_after(found.answer, ended_at),
            report=found.report,
            body=found.body,
            is_unchanged=found.is_unchanged,
            is_forced=is_forced,
            warnings=tuple([one[:MAX_WARNING_CHARS] for one in warnings[:MAX_WARNINGS]]) if warnings else (),
            address=_address(answer),
            certificate_expires_at=found.certificate_expires_at,
        )


def _masked(reader: Reader, text: str) -> str:
    return text if reader.sent is None else str(reader.sent.now().masked(text))


def _read_answer(reader: Reader, answer: Answer) -> Reading:
    """Read the body, unless it is the same as at the last look."""
    last, content_type = reader.last, answer.headers.at("content-type")
    body = answer.body if reader.sent is None else reader.sent.now().masked_body(answer.body)
    report = None if last is None else read_again(last, body, content_type, answer.status)
    is_unchanged = report is not None
    if report is None:
        last = read_first(body, content_type, answer.status, reader.definition.format, reader.mapping)
        reader.last, reader.body, report = last, f"{last.checksum}:{reader.reading}", last.report
    return Reading(
        report.status,
        answer.latency_s,
        report,
        reader.body,
        is_unchanged,
        report.warnings,
        answer,
        answer.certificate_expires_at,
    )


def _connected(answer: TcpResult | TlsResult | DnsResult) -> Reading:
    expires_at = answer.certificate_expires_at if isinstance(answer, TlsResult) else None
    return Reading(Status.UP, answer.latency_s, None, None, False, (), None, expires_at)


def _address(answer: Found) -> str:
    return answer.address if not isinstance(answer, DnsResult) else next(iter(answer.addresses), "")


def _error(found: Reading) -> str | None:
    """Return why the service is down; None if it is not down."""
    if found.status.healthy is not False:
        return None
    parts = []
    if found.answer is not None and found.answer.status >= 400:
        parts.append(f"HTTP {found.answer.status}")
    if found.report is not None:
        down = [one for one in found.report.dependencies if one.status is Status.DOWN]
        parts += [one.name if one.error_message is None else f"{one.name}: {one.error_message}" for one in down[:3]]
        if len(down) > 3:
            parts.append(f"and {len(down) - 3} more")
    return ", ".join(parts) or "it reports that it is down"


def _certificate(expires_at: float | None, now: float) -> tuple[str, ...]:
    if expires_at is None or expires_at - now > CERTIFICATE_WARNING_S:
        return ()
    return (f"its certificate expires in {human(max(0, round(expires_at - now)))}",)


def _retry_after(answer: Answer, now: float) -> float | None:
    text = answer.headers.at("retry-after")
    return None if text is None else retry_after_s(text, now=now)


def _failed(conditions: tuple[Condition, ...], found: Reading, now: float) -> tuple[str, ...]:
    answer = found.answer
    facts = Facts(
        status=None if answer is None else answer.status,
        latency_ms=found.latency_s * 1000,
        headers={} if answer is None else answer.headers,
        body=b"" if answer is None else answer.body,
        certificate_s=None if found.certificate_expires_at is None else found.certificate_expires_at - now,
        ip=None if answer is None else answer.address,
    )
    return failures(conditions, facts)
