"""Watches in virtual time, on a store in memory, against a remote with scripted answers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from everpoll import Backoff, Budget, Everpoll
from everpoll.testing import ScriptedRemote, Timeline, VirtualClock
from everpoll.watches import Done, Fail, Wait, Watch, WatchRun
from everpoll.watches.runtime import Runtime

DOCUMENT = Backoff("2s", factor=2, cap="30s", jitter=0)
BUDGET = Budget("29m", looks=120)


class WatchStage:
    """One app and its clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.app = Everpoll("memory://", clock=self.clock)
        self.remote = ScriptedRemote(start=["id-1"], status=["running"], cancel=[None], clean=[None], adopt=[None])

    def script(self, **answers: Any) -> ScriptedRemote:
        given: dict[str, Any] = {"start": ["id-1"], "status": ["running"], "cancel": [None], "clean": [None]}
        self.remote = ScriptedRemote(**(given | answers))
        return self.remote

    def watch(self, look: Callable[..., Any] | None = None, **options: Any) -> Watch[Any]:
        """A watch whose look asks the remote for its status: complete is done, error has failed."""
        chosen: dict[str, Any] = {"every": DOCUMENT, "budget": BUDGET, "name": "query"} | options
        return self.app.watch(**chosen)(look or self.plain_look)

    async def plain_look(self, _op: Any, w: Any) -> Done | Fail | Wait:
        status = w.status(await self.remote.status(w.handle))
        if status == "complete":
            return Done(w.handle)
        return Fail("the remote says so") if status == "error" else Wait()

    def with_start(self, watch: Watch[Any]) -> Watch[Any]:
        @watch.start
        async def start(_op: Any, key: str) -> Any:
            return await self.remote.start(key)

        return watch

    def with_cancel(self, watch: Watch[Any]) -> Watch[Any]:
        @watch.cancel
        async def cancel(_op: Any, handle: Any, key: str) -> None:
            await self.remote.cancel(handle, key)

        return watch

    def with_cleanup(self, watch: Watch[Any]) -> Watch[Any]:
        @watch.cleanup
        async def cleanup(_op: Any, handle: Any, key: str, outcome: str) -> None:
            await self.remote.clean(handle, key, outcome)

        return watch

    def whole(self, **options: Any) -> Watch[Any]:
        """With everything."""
        return self.with_cleanup(self.with_cancel(self.with_start(self.watch(**options))))

    def runtime(self, watch: Watch[Any]) -> Runtime:
        return self.app.watches.runtime(watch.name)

    def timeline(self, watch: Watch[Any]) -> Timeline:
        return Timeline(watch)

    def play(self, scene: Callable[[], Awaitable[None]], *, working: bool = True) -> None:
        """Run a scene, with a worker."""

        async def main() -> None:
            if not working:
                await scene()
                return
            async with self.app:
                await scene()

        self.clock.run(main())

    def working(self) -> AbstractAsyncContextManager[None]:
        return self.app.working()

    async def outcome(self, run: WatchRun) -> str | None:
        return (await run.info()).outcome

    async def ended(self, run: WatchRun, within_s: float = 7200.0) -> None:
        """Let time pass until the run has ended, cleanup and all."""
        until = self.clock.now() + within_s
        while (await run.info()).phase != "ended":
            assert self.clock.now() < until, await run.info()
            await asyncio.sleep(1)
