"""The program of a child process: imports the module of a job, runs its function and answers, until its worker ends.

Promises: one call at a time. An empty message means that the function begins. The function's output goes to the
worker's output. Its value or its error is sent as JSON, by this process and not by a fork of it. When the worker has
ended, this process ends at once, also in the middle of a call.
"""

import contextlib
import importlib
import os
import queue
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from everpoll.engine.calls import described
from everpoll.engine.child_processes import HEAD_BYTES
from everpoll.jobs.argument_types import to_builtin
from everpoll.jobs.call import CallShape
from everpoll.jobs.job import Job
from everpoll.jobs.process_calls import Answer, Request
from everpoll.jobs.task import Task
from everpoll.jobs.verdicts import ErrorRules
from everpoll.policy import Cancel, Snooze

_encoder = msgspec.json.Encoder(decimal_format="string", enc_hook=to_builtin)
_request = msgspec.json.Decoder(Request).decode


class FoundFunction(Struct):
    """A function that was imported, and how it is called."""

    function: Any
    shape: CallShape
    job: Any


@cache
def found(module: str, file: str | None, name: str) -> FoundFunction:
    """Import the module, and return its function of this name."""
    here: Any
    if file is None:
        here = importlib.import_module(module)
    else:
        # The program itself, loaded as multiprocessing does: its `if __name__ == "__main__":` is not run.
        here = type(sys)("__mp_main__")
        vars(here).update(runpy.run_path(file, run_name="__mp_main__"))
    for part in name.split("."):
        here = getattr(here, part)
    function = vars(here)["__wrapped__"] if isinstance(here, Job) else here
    return FoundFunction(function, CallShape(name, function, Task), here if isinstance(here, Job) else None)


def job_of(one: FoundFunction, name: str) -> Any:
    """Return the job of this name that has the function: the decorated one, or another one of its module."""
    if one.job is not None:
        return one.job
    members = getattr(one.function, "__globals__", {}).values()
    jobs = (job for job in members if isinstance(job, Job) and vars(job)["__wrapped__"] is one.function)
    return next((job for job in jobs if job.name == name), None)


def answered(request: Request, begin: Callable[[], None]) -> Answer:
    """Run the function of a request and return the answer."""
    rules = ErrorRules("", (), None).judge
    try:
        one = found(request.module, request.file, request.name)
        if (job := job_of(one, request.job)) is not None:
            rules = job.verdict
        args, kwargs = one.shape.decode(request.args, None)
        begin()
        value = one.function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker decides
        return Answer(error=described(error), verdict=rules(error))
    if isinstance(value, Snooze):
        return Answer(snooze_s=value.delay_s)
    if isinstance(value, Cancel):
        return Answer(cancel=str(value.reason))
    try:
        return Answer(value=msgspec.Raw(_encoder.encode(value)))
    except (TypeError, ValueError, RecursionError) as error:
        return Answer(not_stored=f"its result is not JSON and was not kept: {error}")


def main() -> None:
    """Answer requests until the worker has ended."""
    pipe = socket.socket(fileno=int(sys.argv[1]))
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    is_busy, own_pid = threading.Event(), os.getpid()
    threading.Thread(target=_receive, args=(pipe, requests, is_busy), daemon=True).start()
    while True:
        is_busy.clear()
        request = requests.get()
        is_busy.set()
        sys.path[:] = request.path
        answer = msgspec.json.encode(answered(request, lambda: pipe.sendall(bytes(HEAD_BYTES))))
        with contextlib.suppress(Exception):  # closed by the function, or by its reader
            sys.stdout.flush()
        if os.getpid() != own_pid:  # this is a fork that the function made: the parent answers
            os._exit(0)
        pipe.sendall(len(answer).to_bytes(HEAD_BYTES, "big") + answer)


def _receive(pipe: socket.socket, requests: "queue.SimpleQueue[Request]", is_busy: threading.Event) -> None:
    """Receive requests in a thread, so that the process notices the end of the worker during a call."""
    try:
        while head := _exactly(pipe, HEAD_BYTES):
            requests.put(_request(_exactly(pipe, int.from_bytes(head, "big"))))
    except OSError:
        pass
    if is_busy.is_set():
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with all processes that the function started
    os._exit(0)


def _exactly(pipe: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := pipe.recv(size - len(parts))):
        parts += part
    return parts if len(parts) == size else b""


if __name__ == "__main__":
    main()
