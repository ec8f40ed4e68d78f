"""`jobs show` tells how far a group is."""

import asyncio
from pathlib import Path

from cli.shell import Shell
from everpoll import Everpoll
from everpoll.testing import drain


def test_a_group_shows_how_many_members_have_ended(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"

    async def fill() -> int:
        app = Everpoll(url)

        @app.job()
        async def fetch(number: int) -> int:
            return number

        later = fetch.options(delay="1h").call(3)
        group = await app.group([fetch.call(1), fetch.call(2), later]).enqueue()
        await drain(app)
        await app.close()
        return group.id

    group_id = str(asyncio.run(fill()))
    assert "2 of 3 ended: 1 queued, 2 done" in shell("jobs", "show", group_id, "--url", url).words
    members = shell.json("jobs", "show", group_id, "--url", url)["members"]
    assert (members["total"], members["ended"], members["done"]) == (3, 2, 2)
    queue = shell.json("queues", "list", "--url", url)[0]
    assert (queue["waiting"], queue["blocked"]) == (1, 1)
    assert "blocked" in shell("queues", "list", "--url", url).out
