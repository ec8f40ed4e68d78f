"""The app of a worker, as one would deploy it: `everpoll run examples.shell_query.worker:app`.

EVERPOLL_URL             where runs live; default: ./everpoll.db
MARKETING_CLOUD_URL      the address of the cloud, with MARKETING_CLOUD_TOKEN
SHELL_QUERY_RUNS         the file of the business table; default: ./shell_query_runs.db
SHELL_QUERY_SPEED        seconds of the cloud in one of yours, if it is a simulated one; default: 1
"""

import os

from everpoll import Everpoll
from examples.shell_query.app import ShellQueries
from examples.shell_query.client import CloudClient
from examples.shell_query.figures import Figures
from examples.shell_query.runs import Runs

SPEED = float(os.environ.get("SHELL_QUERY_SPEED", "1"))

figures = Figures.at_speed(SPEED)
app = Everpoll(lease=max(2.0, 30.0 / SPEED))
cloud = CloudClient(
    os.environ.get("MARKETING_CLOUD_URL", "http://127.0.0.1:8788"),
    os.environ.get("MARKETING_CLOUD_TOKEN", ""),
    timeout=figures.request_timeout_s,
)
runs = Runs(os.environ.get("SHELL_QUERY_RUNS", "shell_query_runs.db"))
queries = ShellQueries(app, cloud, runs, figures)
