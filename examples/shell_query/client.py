"""The client of the Marketing Cloud: one method a call, each one request. Knows SOAP and REST, decides nothing.

Promises: an HTTP status other than a success is a `CloudError` with status and headers, so that a watch sees by itself
what passes, what does not, and what Retry-After says; a refusal inside a 200 is a `CloudRefused` with the cloud's own
words; network trouble is an `OSError`, a silence that lasts too long a `TimeoutError`.

The way to the cloud is a seam: any `Fetch`. By default real sockets; in virtual time the simulated cloud itself.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree.ElementTree import Element

from everpoll.policy import Duration
from everpoll.watches.adapters import Fetch, HttpFetch, Response
from examples.shell_query.soap import NotSoap, envelope, node, read, text

ALREADY_EXISTS = "310007"
NOT_FOUND = "11"
IS_RUNNING_ALREADY = "12"
NOT_RUNNING = "13"
NO_IDS = {"", "0", "00000000-0000-0000-0000-000000000000"}
"""What the cloud writes where it has no id."""
CLOCKS_APART = timedelta(minutes=5)


class CloudError(Exception):
    """The cloud answered, but not with success."""

    def __init__(self, message: str, response: Response) -> None:
        super().__init__(message)
        self.status = response.status
        self.headers = response.headers


class CloudRefused(Exception):
    """The cloud understood, and does not want to; `code` is its own."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Activity(NamedTuple):
    """What SOAP says of a started query."""

    task_id: str = ""
    customer_key: str = ""
    status: str = ""
    completed_date: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Rowset:
    """One page of a result."""

    count: int
    """Of all pages."""
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Definition:
    """A QueryDefinition that exists."""

    object_id: str
    created_at: datetime


class CloudClient:
    """`CloudClient("https://….soap.marketingcloudapis.com", token)`."""

    def __init__(self, url: str, token: str, fetch: Fetch | None = None, *, timeout: Duration = "10s") -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._fetch: Fetch = HttpFetch(timeout=timeout) if fetch is None else fetch

    async def create_data_extension(self, key: str) -> None:
        """A temporary DataExtension for the rows; one that is there already will do."""
        field = node("Field", node("Name", "row"), node("FieldType", "Number"))
        extension = node("Objects", node("CustomerKey", key), node("Name", key), node("Fields", field), kind=_DE)
        try:
            await self._asked("Create", node("CreateRequest", node("Options"), extension))
        except CloudRefused as error:
            if error.code != ALREADY_EXISTS:
                raise

    async def create_query(self, key: str, sql: str) -> tuple[str, bool]:
        """A QueryDefinition that writes into that DataExtension: its ObjectID, and whether it is new."""
        target = node("DataExtensionTarget", node("CustomerKey", key), node("Name", key))
        facts = (node("CustomerKey", key), node("Name", key), node("QueryText", sql), node("TargetType", "DE"), target)
        is_new, object_id = True, ""
        try:
            results = await self._asked(
                "Create", node("CreateRequest", node("Options"), node("Objects", *facts, kind=_QD))
            )
            # NewID is "0" more often than not: the GUID is the id.
            object_id = text(results, "NewObjectID")
        except CloudRefused as error:
            if error.code != ALREADY_EXISTS:
                raise
            is_new = False
        if object_id not in NO_IDS:
            return object_id, is_new
        definition = await self.definition(key)
        if definition is None:
            raise CloudRefused(f"the QueryDefinition {key} was created, and cannot be found", NOT_FOUND)
        return definition.object_id, is_new

    async def definition(self, key: str) -> Definition | None:
        """The QueryDefinition of that CustomerKey."""
        by_key = _simple("CustomerKey", key)
        found = await self._retrieved("QueryDefinition", ("ObjectID", "CustomerKey", "CreatedDate"), by_key)
        if not found or text(found[0], "ObjectID") in NO_IDS:
            return None
        return Definition(text(found[0], "ObjectID"), datetime.fromisoformat(text(found[0], "CreatedDate")))

    async def start(self, key: str) -> str:
        """Start it: the TaskID."""
        return text(await self._perform("Start", key), "Task/ID")

    async def stop(self, key: str) -> None:
        """Stop it; one that does not run is stopped."""
        try:
            await self._perform("Stop", key)
        except CloudRefused as error:
            if error.code not in {NOT_FOUND, NOT_RUNNING}:
                raise

    async def activity(self, task_id: str) -> Activity:
        """How it goes; an empty `Activity` where the cloud knows nothing of it (yet)."""
        found = await self._retrieved("AsyncActivityStatus", Activity._fields, _simple("TaskID", task_id))
        return _activity(found[0]) if found else Activity()

    async def started_as(self, key: str) -> tuple[str, str] | None:
        """What was started under that CustomerKey: its TaskID and ObjectID.

        The cloud lists activities by time only, so from the creation of the query on.
        """
        definition = await self.definition(key)
        if definition is None:
            return None
        since, until = definition.created_at - CLOCKS_APART, definition.created_at + timedelta(days=2)
        between = node(
            "Filter",
            _dated("LeftOperand", "StartTime", "greaterThan", since),
            node("LogicalOperator", "AND"),
            _dated("RightOperand", "EndTime", "lessThan", until),
            kind="ComplexFilterPart",
        )
        listed = map(_activity, await self._retrieved("AsyncActivityStatus", Activity._fields, between))
        task_id = next((one.task_id for one in listed if one.customer_key == key and one.task_id not in NO_IDS), None)
        return None if task_id is None else (task_id, definition.object_id)

    async def is_running(self, object_id: str) -> bool:
        """What REST says; it does not prove anything."""
        body = await self._get(f"/automation/v1/queries/{quote(object_id, safe='')}/actions/isrunning/")
        if body is None or not isinstance(body.get("isRunning"), bool):
            raise CloudRefused(f"the cloud does not say whether {object_id} is running", "")
        return bool(body["isRunning"])

    async def rowset(self, key: str, page_size: int) -> Rowset | None:
        """The first page of the result; None while nothing is known of it."""
        path = f"/data/v1/customobjectdata/key/{quote(key, safe='')}/rowset?$page=1&$pagesize={page_size}"
        body = await self._get(path)
        if body is None:
            return None
        return Rowset(int(body.get("count", 0)), [dict(item.get("values", {})) for item in body.get("items", ())])

    async def assets(self, prefix: str) -> list[tuple[str, str]]:
        """Types and CustomerKeys of everything whose CustomerKey begins like that."""
        found = []
        for kind in (_QD, _DE):
            like = _simple("CustomerKey", f"{prefix}%", "like")
            results = await self._retrieved(kind, ("CustomerKey",), like)
            found += [(kind, text(one, "CustomerKey")) for one in results]
        return found

    async def delete(self, kind: str, key: str) -> None:
        """Delete a QueryDefinition or a DataExtension; what is not there is deleted."""
        asset = node("Objects", node("CustomerKey", key), kind=kind)
        try:
            await self._asked("Delete", node("DeleteRequest", node("Options"), asset))
        except CloudRefused as error:
            if error.code != NOT_FOUND:
                raise

    # ── SOAP and REST ────────────────────────────────────────────────────────────────────────────────────────────

    async def _perform(self, action: str, key: str) -> Element:
        definition = node("Definition", node("CustomerKey", key), kind=_QD)
        request = node("PerformRequestMsg", node("Action", action), node("Definitions", definition))
        return await self._asked("Perform", request)

    async def _retrieved(self, kind: str, properties: tuple[str, ...], by: Element) -> list[Element]:
        wanted = [node("Properties", _PROPERTIES.get(one, one)) for one in properties]
        request = node("RetrieveRequestMsg", node("RetrieveRequest", node("ObjectType", kind), *wanted, by))
        return (await self._spoken("Retrieve", request)).findall("Results")

    async def _asked(self, action: str, request: Element) -> Element:
        """The one result of a request about one thing."""
        answer = await self._spoken(action, request)
        results = answer.find("Results/Result")
        results = answer.find("Results") if results is None else results
        if results is None:
            raise CloudRefused(f"{action}: the answer has no results", "")
        if text(results, "StatusCode") != "OK":
            raise CloudRefused(text(results, "StatusMessage") or f"{action} was refused", text(results, "ErrorCode"))
        return results

    async def _spoken(self, action: str, request: Element) -> Element:
        headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": action}
        body = envelope(request, self._token)
        response = await self._fetch("POST", f"{self._url}/Service.asmx", headers=headers, body=body)
        try:
            content, _ = read(response.body)
        except NotSoap as error:
            # What stands before the cloud, and is tired, speaks no SOAP.
            _require_success(action, response)
            raise CloudError(f"{action}: HTTP {response.status}, {error}", response) from None
        if content.tag == "Fault":
            raise CloudError(f"{action}: {text(content, 'faultcode')}: {text(content, 'faultstring')}", response)
        _require_success(action, response)
        return content

    async def _get(self, path: str) -> dict[str, Any] | None:
        """The body as JSON; None where nothing is."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        response = await self._fetch("GET", self._url + path, headers=headers)
        if response.status == 404:
            return None
        _require_success(path, response)
        return response.fields()


_DE = "DataExtension"
_QD = "QueryDefinition"
_PROPERTIES = {
    "task_id": "TaskID",
    "customer_key": "CustomerKey",
    "status": "Status",
    "completed_date": "CompletedDate",
    "error": "ErrorMsg",
}
"""The cloud's names of what an `Activity` has."""


def _simple(name: str, value: str, operator: str = "equals") -> Element:
    facts = (node("Property", name), node("SimpleOperator", operator), node("Value", value))
    return node("Filter", *facts, kind="SimpleFilterPart")


def _dated(side: str, name: str, operator: str, at: datetime) -> Element:
    date = at.astimezone(UTC).isoformat(timespec="milliseconds")
    facts = (node("Property", name), node("SimpleOperator", operator), node("DateValue", date))
    return node(side, *facts, kind="SimpleFilterPart")


def _activity(result: Element) -> Activity:
    said = {text(one, "Name"): text(one, "Value") for one in result.iterfind("Properties/Property")}
    return Activity(*(said.get(name, "") for name in _PROPERTIES.values()))


def _require_success(what: str, response: Response) -> None:
    if not 200 <= response.status < 300:
        said = response.fields().get("message") or response.body[:200].decode("utf-8", "replace")
        raise CloudError(f"{what}: HTTP {response.status}: {said}", response)
