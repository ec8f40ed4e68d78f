"""Virtual time stands still for threads, for `hold` and for real I/O that is ready."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from everpoll.engine.threads import DaemonThreads
from everpoll.errors import NothingLeftToWait
from everpoll.testing import VirtualClock


def wait_for_loop(loop: asyncio.AbstractEventLoop, rounds: int = 20) -> None:
    """Blocks a thread until the loop has gone round some times: time had every chance to move."""
    for _ in range(rounds):
        passed = threading.Event()
        loop.call_soon_threadsafe(passed.set)
        passed.wait()


def test_time_stands_still_while_a_plain_function_runs_in_a_thread() -> None:
    clock = VirtualClock()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0.001):
            await asyncio.to_thread(wait_for_loop, loop)
            await loop.run_in_executor(None, wait_for_loop, loop)
        assert clock.now() == 0.0

    clock.run(main())


@pytest.mark.parametrize("make_threads", [ThreadPoolExecutor, DaemonThreads])
def test_advance_waits_for_the_threads_it_started(
    make_threads: type[ThreadPoolExecutor | DaemonThreads],
) -> None:
    clock = VirtualClock()
    calls: list[float] = []

    async def poll(threads: ThreadPoolExecutor | DaemonThreads) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1)
            await loop.run_in_executor(threads, wait_for_loop, loop)
            calls.append(clock.now())

    async def main() -> None:
        with make_threads() as threads:
            task = asyncio.create_task(poll(threads))
            await clock.settle()
            await clock.advance(50)
            assert calls == [float(second) for second in range(1, 51)]
            task.cancel()

    clock.run(main())


def test_time_waits_for_a_thread_whose_caller_was_cancelled() -> None:
    clock = VirtualClock()
    finished: list[float] = []

    def work(loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        started.set()
        wait_for_loop(loop)
        finished.append(clock.now())

    async def main() -> None:
        started = threading.Event()
        task = asyncio.create_task(asyncio.to_thread(work, asyncio.get_running_loop(), started))
        await asyncio.to_thread(started.wait)
        task.cancel()
        await asyncio.sleep(10)
        assert finished == [0.0]

    clock.run(main())


def test_a_jump_moves_time_although_a_plain_function_hangs() -> None:
    clock = VirtualClock()
    release = threading.Event()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(clock.jump, 31)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(release.wait), 30)
        assert clock.now() == 31.0
        release.set()

    clock.run(main())


def test_an_error_in_a_thread_comes_out_of_run() -> None:
    def fail() -> None:
        raise LookupError("in the thread")

    with pytest.raises(LookupError, match="in the thread"):
        VirtualClock().run(asyncio.to_thread(fail))


def test_hold_keeps_time_still_until_a_foreign_thread_lets_go() -> None:
    clock = VirtualClock()

    def foreign(loop: asyncio.AbstractEventLoop, held: threading.Event, done: asyncio.Event) -> None:
        with clock.hold():
            held.set()
            wait_for_loop(loop)
            loop.call_soon_threadsafe(done.set)

    async def main() -> None:
        held, done = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=foreign, args=(asyncio.get_running_loop(), held, done))
        thread.start()
        held.wait()
        async with asyncio.timeout(0.001):
            await done.wait()
        assert clock.now() == 0.0
        await asyncio.sleep(1)
        assert clock.now() == 1.0
        thread.join()

    clock.run(main())


def test_sockets_that_are_ready_are_read_before_time_moves() -> None:
    clock = VirtualClock()

    async def echo(sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(sock, 100):
            await loop.sock_sendall(sock, data)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            task = asyncio.create_task(echo(theirs))
            for _ in range(100):
                async with asyncio.timeout(0.001):
                    await loop.sock_sendall(ours, b"ping")
                    assert await loop.sock_recv(ours, 100) == b"ping"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert clock.now() == 0.0

    clock.run(main())


def test_a_server_on_loopback_answers_slowly_in_no_time() -> None:
    clock = VirtualClock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.readline()
        await asyncio.sleep(30)
        writer.write(b"answer to " + question)
        await writer.drain()
        writer.close()

    async def main() -> bytes:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"question\n")
            line = await reader.readline()
            writer.close()
            await writer.wait_closed()
        return line

    assert clock.run(main()) == b"answer to question\n"
    assert clock.now() == 30.0


def test_closing_waits_for_threads_that_still_work() -> None:
    clock = VirtualClock(patience=0.01)
    finished: list[bool] = []

    def work(loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        started.set()
        wait_for_loop(loop)
        finished.append(True)

    async def main() -> None:
        started = threading.Event()
        asyncio.get_running_loop().run_in_executor(None, work, asyncio.get_running_loop(), started)
        started.wait()

    clock.run(main())
    assert finished == [True]
    assert clock.now() == 0.0


def test_a_result_that_a_thread_can_never_deliver_is_reported() -> None:
    clock = VirtualClock(patience=0.01)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        # asyncio before 3.12 loses a StopIteration on its way from a thread, and reports that to this handler.
        loop.set_exception_handler(lambda *_: None)
        await loop.run_in_executor(None, partial(next, iter(())))

    with pytest.raises((NothingLeftToWait, RuntimeError)):
        clock.run(main())
