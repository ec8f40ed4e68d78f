"""The simulated cloud without a socket: bytes in, bytes out, for tests in virtual time."""

import asyncio
from collections.abc import Mapping

from everpoll.policy import Duration, human, seconds
from everpoll.watches.adapters import Response
from examples.shell_query.marketing_cloud import MarketingCloud, Request


class InProcess:
    """A `Fetch` that hands requests to a simulated cloud directly: nothing but its clock decides when it answers."""

    def __init__(self, cloud: MarketingCloud, timeout: Duration = "10s") -> None:
        self._cloud = cloud
        self._timeout_s = seconds(timeout, name="timeout", positive=True)

    async def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> Response:
        """The answer, whatever its status."""
        lowered = {name.lower(): value for name, value in headers.items()}
        request = Request(method, "/" + url.split("/", 3)[3], lowered, body or b"")
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._cloud.serve(request)
        except TimeoutError:
            raise TimeoutError(f"the cloud did not answer within {human(self._timeout_s)}") from None
        return Response(reply.status, reply.headers, reply.body, url=url)
