"""The simulated cloud over real HTTP: what it calls a cut connection is one, and odd clients do it no harm."""

import asyncio
from urllib.parse import urlsplit

import pytest

from examples.shell_query.client import CloudClient, CloudError
from examples.shell_query.demo import SystemClock
from examples.shell_query.fates import ANSWER_LOST, LOST, SILENT, Fate, status
from examples.shell_query.http_server import served
from examples.shell_query.marketing_cloud import TOKEN, MarketingCloud

STATUS = "Retrieve AsyncActivityStatus"


async def until_asked(cloud: MarketingCloud) -> None:
    for _ in range(1000):
        if cloud.records.requests:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no request reached the cloud")


async def test_every_call_goes_over_the_wire() -> None:
    cloud = MarketingCloud(SystemClock())
    cloud.fates["k"] = Fate(runs_s=0, rows=2)
    async with served(cloud) as url:
        client = CloudClient(url, TOKEN)
        await client.create_data_extension("k")
        object_id, is_new = await client.create_query("k", "SELECT '<&>' AS row")
        assert is_new
        task_id = await client.start("k")
        activity = await client.activity(task_id)
        assert (activity.task_id, activity.customer_key, activity.status) == (task_id, "k", "Complete")
        assert await client.started_as("k") == (task_id, object_id)
        assert await client.is_running(object_id) is False
        rowset = await client.rowset("k", 1)
        assert rowset is not None
        assert (rowset.count, rowset.rows) == (2, [{"row": 1}])
        for kind, key in await client.assets("k"):
            await client.delete(kind, key)
    assert cloud.leaked == []


async def test_trouble_is_seen_as_what_it_is() -> None:
    cloud = MarketingCloud(SystemClock())
    cloud.faults.script(STATUS, LOST, ANSWER_LOST, status(429, 30), SILENT)
    async with served(cloud) as url:
        client = CloudClient(url, TOKEN, timeout="200ms")
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await client.activity("x")
        with pytest.raises(CloudError) as refused:
            await client.activity("x")
        assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "30")
        with pytest.raises(TimeoutError):
            await client.activity("x")


async def test_a_wrong_token_is_told() -> None:
    async with served(MarketingCloud(SystemClock())) as url:
        client = CloudClient(url, "stolen")
        with pytest.raises(CloudError, match="Token Expired or Invalid"):
            await client.activity("x")
        with pytest.raises(CloudError, match="HTTP 401"):
            await client.is_running("x")


async def test_a_restart_cuts_connections_that_wait() -> None:
    cloud = MarketingCloud(SystemClock())
    cloud.faults.script(STATUS, SILENT)
    async with served(cloud) as url:
        waiting = asyncio.ensure_future(CloudClient(url, TOKEN).activity("x"))
        await until_asked(cloud)
        cloud.restart(down_s=0.0)
        with pytest.raises(ConnectionError):
            await waiting


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /Service.asmx HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /Service.asmx HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"X" * 100_000,
    ],
)
async def test_what_is_no_request_is_answered_with_400(sent: bytes) -> None:
    async with served(MarketingCloud(SystemClock())) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(sent)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_who_is_still_waiting_does_not_keep_it_from_ending() -> None:
    cloud = MarketingCloud(SystemClock())
    cloud.faults.script(STATUS, SILENT)
    async with served(cloud) as url:
        waiting = asyncio.ensure_future(CloudClient(url, TOKEN).activity("x"))
        await until_asked(cloud)
    with pytest.raises(ConnectionError):
        await waiting
