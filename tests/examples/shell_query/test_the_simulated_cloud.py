"""The simulated cloud: its SOAP is real XML, its habits are those it is told to have, and it forgets nothing."""

import asyncio
import json
from xml.etree import ElementTree as ET

import pytest

from everpoll.testing import VirtualClock
from examples.shell_query.client import (
    ALREADY_EXISTS,
    IS_RUNNING_ALREADY,
    Activity,
    CloudClient,
    CloudError,
    CloudRefused,
)
from examples.shell_query.fates import ANSWER_LOST, LOST, NEVER, SILENT, Fate, Faults, late, status
from examples.shell_query.in_process import InProcess
from examples.shell_query.marketing_cloud import SOAP_PATH, TOKEN, MarketingCloud, Reply, Request
from examples.shell_query.soap import NotSoap, envelope, node, read

SOAP = "{http://schemas.xmlsoap.org/soap/envelope/}"
PARTNER = "{http://exacttarget.com/wsdl/partnerAPI}"
STATUS = "Retrieve AsyncActivityStatus"


class Scene:
    """A cloud at a virtual time of its own."""

    def __init__(self, **fates: Fate) -> None:
        self.clock = VirtualClock()
        self.cloud = MarketingCloud(self.clock)
        self.cloud.fates.update(fates)
        self.client = CloudClient("http://cloud", TOKEN, InProcess(self.cloud))

    async def started(self, key: str = "k") -> str:
        await self.client.create_data_extension(key)
        await self.client.create_query(key, "SELECT 1")
        return await self.client.start(key)


def posted(cloud: MarketingCloud, body: bytes) -> Reply:
    request = Request("POST", SOAP_PATH, {}, body)
    return VirtualClock().run(cloud.serve(request))


def test_an_answer_is_an_envelope_in_the_clouds_namespaces() -> None:
    cloud = Scene().cloud
    create = node("CreateRequest", node("Objects", node("CustomerKey", 'a<&>"b'), kind="DataExtension"))
    reply = posted(cloud, envelope(create, TOKEN))
    assert reply.headers["Content-Type"] == "text/xml; charset=utf-8"
    root = ET.fromstring(reply.body)  # noqa: S314 - written by ourselves
    assert root.tag == f"{SOAP}Envelope"
    results = root.find(f"{SOAP}Body/{PARTNER}CreateResponse/{PARTNER}Results")
    assert results is not None
    assert results.findtext(f"{PARTNER}StatusCode") == "OK"
    assert results.findtext(f"{PARTNER}NewID") == "0"
    assert len(results.findtext(f"{PARTNER}NewObjectID", "")) == 36
    assert cloud.leaked == [("DataExtension", 'a<&>"b')]


def test_a_request_is_understood_whatever_its_prefixes_are() -> None:
    body = f"""<?xml version="1.0"?>
      <e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:x="http://www.w3.org/2001/XMLSchema-instance">
        <e:Header><f:fueloauth xmlns:f="http://exacttarget.com">{TOKEN}</f:fueloauth></e:Header>
        <e:Body><p:CreateRequest xmlns:p="http://exacttarget.com/wsdl/partnerAPI">
          <p:Objects x:type="p:DataExtension"><p:CustomerKey> k </p:CustomerKey></p:Objects>
        </p:CreateRequest></e:Body>
      </e:Envelope>""".encode()
    cloud = Scene().cloud
    posted(cloud, body)
    assert cloud.leaked == [("DataExtension", "k")]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not XML"),
        (b"{}", "not XML"),
        (b"<a/>", "not a SOAP envelope"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "no document type"),
        (envelope(node("CreateRequest"), "stolen"), "Token Expired or Invalid"),
        (envelope(node("ConfigureRequest"), TOKEN), "is not a request"),
        (envelope(node("PerformRequestMsg", node("Action", "dance")), TOKEN), "cannot be performed"),
        (envelope(node("RetrieveRequestMsg"), TOKEN), "cannot be retrieved"),
    ],
)
def test_what_it_does_not_understand_is_a_fault(body: bytes, says: str) -> None:
    cloud = Scene().cloud
    reply = posted(cloud, body)
    assert reply.status == 500
    fault, _ = read(reply.body)
    assert fault.tag == "Fault"
    assert says in (fault.findtext("faultstring") or "")
    assert cloud.leaked == []


def test_text_that_xml_cannot_carry_does_not_break_a_message() -> None:
    content, _ = read(envelope(node("A", "x\x00y\ud800z")))
    assert content.text == "x\ufffdy\ufffdz"
    with pytest.raises(NotSoap):
        read(b"\xff\xfe\x00")


def test_rest_wants_the_token_and_knows_its_own() -> None:
    cloud = Scene().cloud
    for headers, path, code in [
        ({}, "/automation/v1/queries/x/actions/isrunning/", 401),
        ({"authorization": f"Bearer {TOKEN}"}, "/automation/v1/queries/x/actions/isrunning/", 404),
        ({"authorization": f"Bearer {TOKEN}"}, "/data/v1/customobjectdata/key/x/rowset", 404),
        ({"authorization": f"Bearer {TOKEN}"}, "/elsewhere", 404),
    ]:
        reply = VirtualClock().run(cloud.serve(Request("GET", path, headers)))
        assert reply.status == code
        assert json.loads(reply.body)["message"]


def test_what_exists_already_is_refused_and_the_client_finds_it() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.client.create_data_extension("k")
        await scene.client.create_data_extension("k")
        first, is_new = await scene.client.create_query("k", "SELECT 1")
        assert is_new
        assert await scene.client.create_query("k", "SELECT 1") == (first, False)
        reply = await scene.cloud.serve(
            Request("POST", SOAP_PATH, {}, envelope(node("CreateRequest", _definition("k")), TOKEN))
        )
        content, _ = read(reply.body)
        assert content.findtext("Results/StatusCode") == "Error"
        assert content.findtext("Results/ErrorCode") == ALREADY_EXISTS
        assert "already exists" in content.findtext("Results/StatusMessage", "")

    scene.clock.run(main())


def test_a_query_goes_from_queued_to_processing_to_complete() -> None:
    scene = Scene(k=Fate(queued_s=3, runs_s=20, rows=3, rows_after_s=5))

    async def main() -> None:
        task_id = await scene.started()
        seen = []
        for _ in range(6):
            activity = await scene.client.activity(task_id)
            rowset = await scene.client.rowset("k", 2)
            seen.append((activity.status, bool(activity.completed_date), rowset is not None and rowset.count))
            await scene.clock.advance(5)
        assert seen == [
            ("Queued", False, False),
            ("Processing", False, False),
            ("Processing", False, False),
            ("Processing", False, False),
            ("Complete", True, False),
            ("Complete", True, 3),
        ]
        page = await scene.client.rowset("k", 2)
        assert page is not None
        assert page.rows == [{"row": 1}, {"row": 2}]

    scene.clock.run(main())


def test_the_habits_that_the_document_complains_of() -> None:
    fates = {
        "dated": Fate(runs_s=100, completed_date_after_s=1, reported_after_s=NEVER),
        "flapping": Fate(runs_s=100, not_running=((10, 20),)),
        "forgotten": Fate(runs_s=100, forgotten=(10, 20)),
        "unnamed": Fate(object_id_missing=True),
    }
    scene = Scene(**fates)

    async def main() -> None:
        tasks = {key: await scene.started(key) for key in fates}
        await scene.clock.advance(15)
        dated = await scene.client.activity(tasks["dated"])
        assert (dated.status, bool(dated.completed_date)) == ("Queued", True)
        for key, is_running in (("flapping", False), ("dated", True)):
            definition = await scene.client.definition(key)
            assert definition is not None
            assert await scene.client.is_running(definition.object_id) is is_running
        assert await scene.client.activity(tasks["forgotten"]) == Activity()
        assert (await scene.client.started_as("forgotten") or ("", ""))[0] == tasks["forgotten"]
        await scene.clock.advance(200)
        assert (await scene.client.activity(tasks["dated"])).status == "Queued"
        assert (await scene.client.activity(tasks["forgotten"])).status == "Complete"

    scene.clock.run(main())


def test_a_running_query_is_not_started_again_and_can_be_stopped() -> None:
    scene = Scene(k=Fate(runs_s=100))

    async def main() -> None:
        task_id = await scene.started()
        with pytest.raises(CloudRefused, match="running already") as refused:
            await scene.client.start("k")
        assert refused.value.code == IS_RUNNING_ALREADY
        await scene.client.stop("k")
        await scene.client.stop("k")
        assert (await scene.client.activity(task_id)).status == "Canceled"
        assert scene.cloud.records.starts["k"] == scene.cloud.records.stops["k"] == 1

    scene.clock.run(main())


def test_a_definition_that_is_deleted_under_its_query_breaks_it_and_is_remembered() -> None:
    scene = Scene(k=Fate(runs_s=100))

    async def main() -> None:
        task_id = await scene.started()
        assert await scene.client.assets("k") == [("QueryDefinition", "k"), ("DataExtension", "k")]
        await scene.client.delete("QueryDefinition", "k")
        await scene.client.delete("QueryDefinition", "k")
        activity = await scene.client.activity(task_id)
        assert (activity.status, activity.error) == ("Error", "the QueryDefinition was deleted while it ran")
        assert scene.cloud.records.deleted_while_running == ["k"]
        assert scene.cloud.records.deletes["QueryDefinition", "k"] == 1
        assert scene.cloud.leaked == [("DataExtension", "k")]

    scene.clock.run(main())


def test_troubles_come_in_the_order_of_their_script_and_only_where_they_are_meant() -> None:
    scene = Scene()
    faults = scene.cloud.faults
    faults.script("Perform Start", LOST, ANSWER_LOST, key="k")
    faults.script(STATUS, status(500), status(429, 30), late(4), SILENT, None)

    async def main() -> None:
        with pytest.raises(ConnectionResetError):
            await scene.started()
        assert not scene.cloud.records.starts
        with pytest.raises(ConnectionResetError):
            await scene.client.start("k")
        assert scene.cloud.records.starts["k"] == 1
        task_id = (await scene.client.started_as("k") or ("", ""))[0]
        with pytest.raises(CloudError) as failed:
            await scene.client.activity(task_id)
        assert failed.value.status == 500
        with pytest.raises(CloudError) as failed:
            await scene.client.activity(task_id)
        assert (failed.value.status, failed.value.headers["retry-after"]) == (429, "30")
        asked_at = scene.clock.now()
        await scene.client.activity(task_id)
        assert scene.clock.now() - asked_at == pytest.approx(4)
        with pytest.raises(TimeoutError, match="did not answer within 10s"):
            await scene.client.activity(task_id)
        assert (await scene.client.activity(task_id)).task_id == task_id
        assert [one.ending for one in scene.cloud.records.of(STATUS, "k")] == [
            "status",
            "status",
            "late",
            "silent",
            "answered",
        ]
        assert [one.at_s for one in scene.cloud.records.too_early] == [0.0, 4.0, 14.0]

    scene.clock.run(main())


def test_chance_can_be_repeated() -> None:
    def met(seed: int) -> list[object]:
        faults = Faults(seed, lost=0.3, error=0.2)
        return [faults.next("isrunning", None) for _ in range(50)]

    assert met(7) == met(7) != met(8)
    with pytest.raises(ValueError, match="no trouble is called 'rain'"):
        Faults(rain=0.5)


def test_a_restart_cuts_what_is_open_refuses_for_a_while_and_forgets_nothing() -> None:
    scene = Scene(k=Fate(runs_s=100))
    scene.cloud.faults.script(STATUS, SILENT)

    async def main() -> None:
        task_id = await scene.started()
        asyncio.get_running_loop().call_later(3, scene.cloud.restart, 5.0)
        with pytest.raises(ConnectionResetError):
            await scene.client.activity(task_id)
        assert scene.clock.now() == pytest.approx(3)
        with pytest.raises(ConnectionRefusedError):
            await scene.client.activity(task_id)
        await scene.clock.advance(5)
        assert (await scene.client.activity(task_id)).status == "Processing"

    scene.clock.run(main())


def _definition(key: str) -> ET.Element:
    target = node("DataExtensionTarget", node("CustomerKey", key))
    return node("Objects", node("CustomerKey", key), node("QueryText", "SELECT 1"), target, kind="QueryDefinition")
