"""A fleet of processes that drains a filled database together: what the arms of `bench limits` share.

The coordinator fills the database and starts the members, which are set up and wait; the clock runs from when it tells
them to go until nothing is left. Standard library only: it runs in every environment.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.arms import gate

LOOK_S = 0.01


async def led(module: str, order: gate.Order, is_left: Callable[[], Awaitable[bool]]) -> dict[str, float]:
    """Have the members of that arm drain it; the rate, and what their Python took for each job."""
    members = [await _member(module, order) for _ in range(order["processes"])]
    gate.ready()
    began = time.perf_counter()
    for member in members:
        member.stdin.write(b"go\n")
    while await is_left():  # noqa: ASYNC110 - the database has no event for it
        await asyncio.sleep(LOOK_S)
    took_s = time.perf_counter() - began
    for member in members:
        member.stdin.write(b"tell\n")
    answers = [json.loads(await member.stdout.readline()) for member in members]
    order["members"] = members
    cpu_s = sum(one["cpu_s"] for one in answers)
    return {"rate": order["jobs"] / took_s, "python_us": cpu_s / order["jobs"] * 1e6}


async def dismissed(order: gate.Order) -> None:
    """End the members."""
    for member in order["members"]:
        member.stdin.write(b"end\n")
    for member in order["members"]:
        try:
            await asyncio.wait_for(member.communicate(), 10.0)
        except TimeoutError:
            member.kill()


async def followed(work: Callable[[], Any]) -> None:
    """Be a member: enter this block on the first order, report the CPU time on request, leave on the last order."""
    gate.ready()
    cpu_s = time.process_time()
    async with work():
        await asyncio.to_thread(sys.stdin.readline)
        await gate.report(cpu_s=time.process_time() - cpu_s)


async def _member(module: str, order: gate.Order) -> Any:
    member_order = json.dumps({**order, "bench": "member"})
    pipe = asyncio.subprocess.PIPE
    member = await asyncio.create_subprocess_exec(sys.executable, "-m", module, member_order, stdin=pipe, stdout=pipe)
    assert member.stdout is not None, "it was asked for"
    await member.stdout.readline()
    return member
