"""Two releases of one app: `everpoll run jobs.releases:app` with RELEASE=old or new."""

import os

from everpoll import Everpoll

app = Everpoll(os.environ["EVERPOLL_URL"], lease="10s")


@app.job()
async def bill(order: int) -> str:
    return f"billed {order}"


if os.environ["RELEASE"] == "new":

    @app.job()
    async def greet(order: int) -> str:
        return f"greeted {order}"
