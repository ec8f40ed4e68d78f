"""A client leaves nothing behind: not with its event loop, not in other threads, not after any mix of cancellations."""

import asyncio
import contextlib
import gc
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everpoll.http import HttpClient, NotReached, Request, Tls
from http_room.certificates_for_tests import Authority
from http_room.loopback import LIMIT_S, Asked, Loopback, Talk, answer, say

PLAIN = answer(200, b"fine")

PROGRAM = """
import asyncio, gc, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from http_room.certificates_for_tests import Authority
from http_room.loopback import Loopback, answer, say
from everpoll.http import HttpClient, Request, Tls

authority = Authority(Path(sys.argv[2]))
kept = HttpClient(lean=sys.argv[3] == "lean")

async def main(client):
    async with Loopback(say(answer(200)), authority.serving("127.0.0.1", days=5)) as remote:
        tls = Tls(ca_file=authority.path)
        await asyncio.gather(*(client.send(Request(remote.url, tls=tls)) for _ in range(3)))
        await client.send(Request(remote.url, tls=tls, fresh=True))

asyncio.run(main(kept))
asyncio.run(main(kept))
asyncio.run(main(HttpClient(lean=sys.argv[3] == "lean")))
gc.collect()
"""


@pytest.mark.parametrize("kind", ["lean", "full"])
def test_a_client_that_is_never_closed_causes_no_warning(tmp_path: Path, kind: str) -> None:
    tests = Path(__file__).parent.parent
    said = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tests), str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (said.returncode, said.stderr) == (0, "")


async def test_a_client_that_is_dropped_closes_its_connections(client: HttpClient) -> None:
    dropped = HttpClient(lean=client._lean is not None)
    async with Loopback(say(PLAIN)) as remote:
        await dropped.send(Request(remote.url))
        del dropped
        gc.collect()
        async with asyncio.timeout(LIMIT_S):
            await remote.hung_up.wait()


def test_one_client_serves_several_threads_at_once(client: HttpClient) -> None:
    found: list[bytes] = []

    async def looks() -> None:
        async with Loopback(say(PLAIN)) as remote:
            found.extend([(await client.send(Request(remote.url))).body for _ in range(20)])

    threads = [threading.Thread(target=lambda: asyncio.run(looks())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert found == [b"fine"] * 80


def unreliable(rng: random.Random) -> Talk:
    async def talk(asked: Asked, writer: asyncio.StreamWriter) -> None:
        match rng.randrange(6):
            case 0:
                writer.close()
            case 1:
                await asyncio.Event().wait()
            case 2:
                writer.write(PLAIN[: rng.randrange(len(PLAIN))])
                await asyncio.sleep(0)
                writer.close()
            case _:
                for part in (PLAIN[:20], PLAIN[20:]):
                    writer.write(part)
                    await asyncio.sleep(0)

    return talk


@pytest.mark.parametrize("seed", range(5))
async def test_no_mix_of_answers_and_cancellations_leaves_a_connection_behind(client: HttpClient, seed: int) -> None:
    rng = random.Random(seed)

    async def look(remote: Loopback) -> None:
        request = Request(remote.url, timeout_s=rng.choice([0.02, 1.0]), fresh=rng.random() < 0.2)
        sending = asyncio.ensure_future(client.send(request))
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        if rng.random() < 0.4:
            sending.cancel()
        with contextlib.suppress(NotReached, asyncio.CancelledError):
            assert (await sending).body == b"fine"

    async with Loopback(unreliable(rng)) as remote:
        await asyncio.gather(*(look(remote) for _ in range(60)))
        await client.close()
        async with asyncio.timeout(LIMIT_S):
            while remote.open:
                remote.hung_up.clear()
                await remote.hung_up.wait()


async def test_a_deadline_that_is_over_before_it_begins_still_ends(client: HttpClient) -> None:
    async with Loopback(say(PLAIN)) as remote:
        with pytest.raises(NotReached, match="within"):
            await client.send(Request(remote.url, timeout_s=1e-9))


async def test_tls_connections_are_closed_at_once(client: HttpClient, authority: Authority) -> None:
    async with Loopback(say(PLAIN), authority.serving("127.0.0.1", days=5)) as remote:
        await client.send(Request(remote.url, tls=Tls(ca_file=authority.path)))
        await client.close()
        async with asyncio.timeout(LIMIT_S):
            await remote.hung_up.wait()
