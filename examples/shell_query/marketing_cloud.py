"""A simulated Marketing Cloud: SOAP in real XML, REST in JSON, and every habit that the design document complains of.

    POST /Service.asmx                                    Create, Perform, Retrieve, Delete
    GET  /automation/v1/queries/{ObjectID}/actions/isrunning/
    GET  /data/v1/customobjectdata/key/{key}/rowset?$page=1&$pagesize=1

Promises: one request is understood, recorded, met by the trouble that `faults` holds for it, and only then done, in one
go; what was done stays, over restarts too. `speed` makes its seconds shorter, so that half an hour passes in half a
minute. Never asks a clock but the one it was given, so that it lives in virtual time as well as in real time.

Behind sockets it is served by `http_server.py`; tests in virtual time call `serve` themselves.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree.ElementTree import Element

from everpoll.policy import Clock
from examples.shell_query.activity import Activity
from examples.shell_query.fates import Fate, Faults, Trouble
from examples.shell_query.records import Asked, Records
from examples.shell_query.soap import TYPE, NotSoap, envelope, fault, node, read, text

SOAP_PATH = "/Service.asmx"
XML = {"Content-Type": "text/xml; charset=utf-8"}
JSON = {"Content-Type": "application/json"}
ISRUNNING = re.compile(r"/automation/v1/queries/([^/]+)/actions/isrunning/?")
ROWSET = re.compile(r"/data/v1/customobjectdata/key/([^/]+)/rowset/?")
ASSETS = ("DataExtension", "QueryDefinition")
PAGE_LIMIT = 2500
TOKEN = "simulated"  # noqa: S105 - opens nothing but this simulation


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a client."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the cloud says."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was understood."""

    action: str
    key: str | None
    do: Callable[[], Reply]


@dataclass(frozen=True, slots=True)
class Asset:
    """A DataExtension or a QueryDefinition."""

    object_id: str
    created_at_s: float


class MarketingCloud:
    """One tenant's cloud."""

    def __init__(self, clock: Clock, *, token: str = TOKEN, speed: float = 1.0, faults: Faults | None = None) -> None:
        self._clock = clock
        self._token = token
        self._speed = speed
        self._born_at = clock.now()
        self._born_wall = clock.wall()
        self._assets: dict[tuple[str, str], Asset] = {}
        self._activities: dict[str, Activity] = {}
        self._barred: dict[tuple[str, str | None], float] = {}
        """Until when clients must not repeat that call for that query."""
        self._down_until_s = 0.0
        self._cut = asyncio.Event()
        self.faults = Faults() if faults is None else faults
        self.fates: dict[str, Fate] = {}
        """By CustomerKey; a query without one runs as usual."""
        self.records = Records()

    @property
    def now_s(self) -> float:
        """Seconds of the cloud since it was switched on."""
        return (self._clock.now() - self._born_at) * self._speed

    def restart(self, down_s: float = 0.0) -> None:
        """Cut every connection and refuse new ones for a while; what it knows stays."""
        self._down_until_s = self.now_s + down_s
        self._cut.set()
        self._cut = asyncio.Event()

    def activity(self, customer_key: str) -> Activity | None:
        """What was last started under that key."""
        found = [one for one in self._activities.values() if one.customer_key == customer_key]
        return found[-1] if found else None

    @property
    def leaked(self) -> list[tuple[str, str]]:
        """Assets that were never deleted, by type and CustomerKey."""
        return sorted(self._assets)

    async def serve(self, request: Request) -> Reply:
        """Answer, or raise the `ConnectionError` that the asking side is to see."""
        if self.now_s < self._down_until_s:
            raise ConnectionRefusedError("the cloud is restarting")
        call = self._understood(request)
        asked = Asked(self.now_s, call.action, call.key)
        self.records.requests.append(asked)
        if self.now_s < self._barred.get((call.action, call.key), 0.0):
            self.records.too_early.append(asked)
        trouble = self.faults.next(call.action, call.key)
        asked.ending = "answered" if trouble is None else trouble.kind
        return call.do() if trouble is None else await self._troubled(call, trouble)

    async def _troubled(self, call: Call, trouble: Trouble) -> Reply:
        match trouble.kind:
            case "lost":
                raise ConnectionResetError("the connection was cut before the request was read")
            case "silent":
                await self._pass(None)
                raise ConnectionResetError("the connection was cut after a long silence")
            case "status":
                return self._refused(call, trouble)
        reply = call.do()
        if trouble.kind == "answer lost":
            raise ConnectionResetError("the connection was cut before the answer")
        await self._pass(trouble.delay_s)
        return reply

    def _refused(self, call: Call, trouble: Trouble) -> Reply:
        headers = dict(JSON)
        if trouble.retry_after_s is not None:
            if call.key is not None:
                self._barred[call.action, call.key] = self.now_s + trouble.retry_after_s
            headers["Retry-After"] = f"{trouble.retry_after_s / self._speed:g}"
        return Reply(trouble.status, headers, json.dumps({"message": "the cloud is not well"}).encode())

    async def _pass(self, delay_s: float | None) -> None:
        """Let time pass, until the connection is cut."""
        cut = self._cut
        try:
            async with asyncio.timeout(None if delay_s is None else delay_s / self._speed):
                await cut.wait()
        except TimeoutError:
            return
        raise ConnectionResetError("the cloud was restarted")

    # ── understanding ────────────────────────────────────────────────────────────────────────────────────────────

    def _understood(self, request: Request) -> Call:
        parts = urlsplit(request.path)
        if (request.method, parts.path) == ("POST", SOAP_PATH):
            return self._soap_call(request.body)
        if request.headers.get("authorization") != f"Bearer {self._token}":
            return _says(401, "no such token")
        if request.method == "GET" and (found := ISRUNNING.fullmatch(parts.path)):
            object_id = unquote(found[1])
            return Call("isrunning", self._key_of(object_id), lambda: self._is_running(object_id))
        if request.method == "GET" and (found := ROWSET.fullmatch(parts.path)):
            key = unquote(found[1])
            return Call("rowset", key, lambda: self._rowset(key, parse_qs(parts.query)))
        return _says(404, f"nothing is at {parts.path}")

    def _soap_call(self, body: bytes) -> Call:
        try:
            content, token = read(body)
        except NotSoap as error:
            return _faults("soap:Client", str(error))
        if token != self._token:
            return _faults("wsse:InvalidSecurity", "Token Expired or Invalid")
        match content.tag:
            case "CreateRequest":
                return self._create_call(content)
            case "DeleteRequest":
                return self._delete_call(content)
            case "PerformRequestMsg":
                return self._perform_call(content)
            case "RetrieveRequestMsg":
                return self._retrieve_call(content)
        return _faults("soap:Client", f"<{content.tag}> is not a request")

    def _create_call(self, content: Element) -> Call:
        kind, key, asset = _asset_of(content, "Objects")
        return Call(f"Create {kind}", key, lambda: self._create(kind, key, asset))

    def _delete_call(self, content: Element) -> Call:
        kind, key, _ = _asset_of(content, "Objects")
        return Call(f"Delete {kind}", key, lambda: self._delete(kind, key))

    def _perform_call(self, content: Element) -> Call:
        _, key, asset = _asset_of(content, "Definitions/Definition")
        word = text(content, "Action").capitalize()
        key = key or self._key_of(text(asset, "ObjectID")) or ""
        do = {"Start": self._start, "Stop": self._stop}.get(word)
        if do is None:
            return _faults("soap:Client", f"{word!r} cannot be performed")
        return Call(f"Perform {word}", key, lambda: do(key))

    def _retrieve_call(self, content: Element) -> Call:
        kind = text(content, "RetrieveRequest/ObjectType")
        by, value = text(content, ".//Filter/Property"), text(content, ".//Filter/Value")
        if kind in ASSETS and by == "CustomerKey" and text(content, ".//Filter/SimpleOperator") == "like":
            return Call(f"List {kind}", None, lambda: self._list_assets(kind, value.removesuffix("%")))
        if kind == "QueryDefinition" and by == "CustomerKey":
            return Call(f"Retrieve {kind}", value, lambda: self._retrieve_definition(value))
        if kind == "AsyncActivityStatus" and by == "TaskID":
            activity = self._activities.get(value)
            key = None if activity is None else activity.customer_key
            return Call(f"Retrieve {kind}", key, lambda: self._retrieve_activities([activity] if activity else []))
        since = text(content, ".//Filter/LeftOperand/DateValue")
        until = text(content, ".//Filter/RightOperand/DateValue")
        if kind == "AsyncActivityStatus" and since and until:
            return Call(f"List {kind}", None, lambda: self._list_activities(since, until))
        return _faults("soap:Client", f"{kind!r} cannot be retrieved by {by!r}")

    # ── doing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, kind: str, key: str, asset: Element) -> Reply:
        if kind not in ASSETS or not key:
            return _refusal("Create", 1, f"a {kind} needs a CustomerKey")
        if (kind, key) in self._assets:
            return _refusal("Create", 310007, f"a {kind} with the CustomerKey {key} already exists")
        if kind == "QueryDefinition" and not self._is_complete(asset):
            return _refusal("Create", 2, "a QueryDefinition needs a QueryText and a target DataExtension")
        made = self._assets[kind, key] = Asset(str(uuid.uuid4()), self.now_s)
        self.records.creates[kind, key] += 1
        is_missing = self.fates.get(key, Fate()).object_id_missing and kind == "QueryDefinition"
        # NewID is "0" for everything that has a GUID: it must not be used as an id.
        ids = (node("NewID", "0"), None if is_missing else node("NewObjectID", made.object_id))
        return _done("Create", f"{kind} created", node("OrdinalID", "0"), *ids)

    def _is_complete(self, asset: Element) -> bool:
        target = text(asset, "DataExtensionTarget/CustomerKey")
        return bool(text(asset, "QueryText")) and ("DataExtension", target) in self._assets

    def _delete(self, kind: str, key: str) -> Reply:
        if self._assets.pop((kind, key), None) is None:
            return _refusal("Delete", 11, f"there is no {kind} with the CustomerKey {key}")
        self.records.deletes[kind, key] += 1
        activity = self.activity(key)
        if kind == "QueryDefinition" and activity is not None and activity.is_running(self.now_s):
            activity.broken_at_s = self.now_s
            self.records.deleted_while_running.append(key)
        return _done("Delete", f"{kind} deleted")

    def _start(self, key: str) -> Reply:
        activity = self.activity(key)
        if ("QueryDefinition", key) not in self._assets:
            return _refusal("Perform", 11, f"there is no QueryDefinition with the CustomerKey {key}")
        if activity is not None and activity.is_running(self.now_s):
            return _refusal("Perform", 12, f"the QueryDefinition {key} is running already")
        started = Activity(str(uuid.uuid4()), key, self.fates.get(key, Fate()), self.now_s)
        self._activities[started.task_id] = started
        self.records.starts[key] += 1
        task = node("Task", node("StatusCode", "OK"), node("ID", started.task_id))
        return _done("Perform", "QueryDefinition started", task)

    def _stop(self, key: str) -> Reply:
        activity = self.activity(key)
        if activity is None or not activity.is_running(self.now_s):
            return _refusal("Perform", 13, f"the QueryDefinition {key} is not running")
        activity.stopped_at_s = self.now_s
        self.records.stops[key] += 1
        return _done("Perform", "QueryDefinition stopped")

    def _retrieve_definition(self, key: str) -> Reply:
        asset = self._assets.get(("QueryDefinition", key))
        if asset is None:
            return _retrieved()
        facts = (node("CustomerKey", key), node("ObjectID", asset.object_id))
        made = node("CreatedDate", self._date(asset.created_at_s))
        return _retrieved(node("Results", *facts, made, kind="QueryDefinition"))

    def _list_assets(self, kind: str, prefix: str) -> Reply:
        keys = [key for what, key in self._assets if what == kind and key.startswith(prefix)]
        return _retrieved(*(node("Results", node("CustomerKey", key), kind=kind) for key in keys))

    def _retrieve_activities(self, activities: list[Activity]) -> Reply:
        known = [one for one in activities if not one.is_forgotten(self.now_s)]
        return _retrieved(*(self._described(one) for one in known))

    def _list_activities(self, since: str, until: str) -> Reply:
        found = [one for one in self._activities.values() if since <= self._date(one.started_at_s) <= until]
        return _retrieved(*(self._described(one) for one in found))

    def _described(self, activity: Activity) -> Element:
        """This kind has no fields of its own, but a list of names and values."""
        now_s = self.now_s
        completed_at_s = activity.completed_at_s(now_s)
        facts = {
            "TaskID": activity.task_id,
            "CustomerKey": activity.customer_key,
            "Status": activity.status(now_s),
            "StartDate": self._date(activity.started_at_s),
            "CompletedDate": "" if completed_at_s is None else self._date(completed_at_s),
            "ErrorMsg": activity.error(now_s),
        }
        listed = (node("Property", node("Name", name), node("Value", value)) for name, value in facts.items())
        return node("Results", node("Properties", *listed), kind="ObjectExtension")

    def _is_running(self, object_id: str) -> Reply:
        key = self._key_of(object_id)
        if key is None:
            return _says(404, f"there is no query {object_id}").do()
        activity = self.activity(key)
        is_running = activity is not None and activity.says_it_runs(self.now_s)
        return Reply(200, JSON, json.dumps({"isRunning": is_running}).encode())

    def _rowset(self, key: str, query: dict[str, list[str]]) -> Reply:
        activity = self.activity(key)
        if ("DataExtension", key) not in self._assets or activity is None or not activity.has_rows(self.now_s):
            return _says(404, f"nothing is known of {key}").do()
        size = min(PAGE_LIMIT, max(1, int(query.get("$pagesize", ["50"])[0])))
        page = max(1, int(query.get("$page", ["1"])[0]))
        count = activity.fate.rows
        numbers = range((page - 1) * size + 1, min(count, page * size) + 1)
        items = [{"keys": {"_CustomObjectKey": number}, "values": {"row": number}} for number in numbers]
        body = {"count": count, "page": page, "pageSize": size, "items": items}
        return Reply(200, JSON, json.dumps(body).encode())

    def _key_of(self, object_id: str) -> str | None:
        found = (key for (_, key), asset in self._assets.items() if asset.object_id == object_id)
        return next(found, None)

    def _date(self, at_s: float) -> str:
        """The cloud's dates run as fast as its seconds."""
        return datetime.fromtimestamp(self._born_wall + at_s, UTC).isoformat(timespec="milliseconds")


def _asset_of(content: Element, path: str) -> tuple[str, str, Element]:
    asset = content.find(path)
    if asset is None:
        asset = Element("Objects")
    return asset.get(TYPE, "").rpartition(":")[2], text(asset, "CustomerKey"), asset


def _done(verb: str, message: str, *facts: Element | None) -> Reply:
    return _results(verb, "OK", node("StatusMessage", message), *facts)


def _refusal(verb: str, code: int, message: str) -> Reply:
    """The cloud's errors come with status 200."""
    return _results(verb, "Error", node("StatusMessage", message), node("ErrorCode", str(code)))


def _results(verb: str, status: str, *facts: Element | None) -> Reply:
    said = (node("StatusCode", status), *facts)
    # Perform wraps its results once more than its sisters do.
    name, results = (f"{verb}Response", node("Results", *said))
    if verb == "Perform":
        name, results = ("PerformResponseMsg", node("Results", node("Result", *said)))
    return Reply(200, XML, envelope(node(name, results, node("OverallStatus", status))))


def _retrieved(*results: Element) -> Reply:
    return Reply(200, XML, envelope(node("RetrieveResponseMsg", node("OverallStatus", "OK"), *results)))


def _says(status: int, message: str) -> Call:
    return Call(str(status), None, lambda: Reply(status, JSON, json.dumps({"message": message}).encode()))


def _faults(code: str, message: str) -> Call:
    return Call("Fault", None, lambda: Reply(500, XML, fault(code, message)))
