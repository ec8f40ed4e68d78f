"""Metrics for Prometheus."""

from starlette.responses import Response

from everpoll.server.metrics import CONTENT_TYPE
from everpoll.server.route import ApiCall, Route


async def show_metrics(call: ApiCall) -> Response:
    """Answer `GET /metrics`."""
    return Response(await call.serving.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


METRICS_ROUTES = [
    Route(
        method="GET",
        path="/metrics",
        noun="metrics",
        summary="Show the metrics of this process and of the store, for Prometheus.",
        handler=show_metrics,
        media="text/plain",
        example="# HELP everpoll_store_up Whether the store answers.\n# TYPE everpoll_store_up gauge\n"
        "everpoll_store_up 1.0",
        limit_s=5.0,
    ),
]
