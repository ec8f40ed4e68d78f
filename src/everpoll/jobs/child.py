"""The program of a child process: imports the module of a job, runs its function, answers; until its worker is gone.

Promises: one call at a time. What the function prints goes where the worker's output goes. What it returns or raises is
answered as JSON. When the worker is gone, the process ends at once, in the middle of a call, too.
"""

import importlib
import os
import queue
import runpy
import signal
import socket
import sys
import threading
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
from everpoll.jobs.verdicts import ORDINARY, Verdict
from everpoll.policy import Cancel, Snooze

_encoder = msgspec.json.Encoder(decimal_format="string", enc_hook=to_builtin)
_request = msgspec.json.Decoder(Request).decode


class Found(Struct):
    """A function that was found, and how it is called."""

    function: Any
    shape: CallShape
    job: Any


@cache
def found(module: str, file: str | None, name: str) -> Found:
    """Import the module, and find the function of this name in it."""
    here: Any
    if file is None:
        here = importlib.import_module(module)
    else:
        # The program itself, as multiprocessing does it: its `if __name__ == "__main__":` is not run.
        here = type(sys)("__mp_main__")
        vars(here).update(runpy.run_path(file, run_name="__mp_main__"))
    for part in name.split("."):
        here = getattr(here, part)
    function = vars(here)["__wrapped__"] if isinstance(here, Job) else here
    return Found(function, CallShape(name, function, Task), here if isinstance(here, Job) else None)


def answered(request: Request) -> Answer:
    """Run the function."""
    job: Any = None
    try:
        one = found(request.module, request.file, request.name)
        job = one.job
        args, kwargs = one.shape.decode(request.args, None)
        value = one.function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the worker decides
        verdict: Verdict = ORDINARY if job is None else job.verdict(error)
        return Answer(error=described(error), verdict=verdict)
    if isinstance(value, Snooze):
        return Answer(snooze_s=value.delay_s)
    if isinstance(value, Cancel):
        return Answer(cancel=str(value.reason))
    try:
        return Answer(value=msgspec.Raw(_encoder.encode(value)))
    except (TypeError, ValueError, RecursionError) as error:
        return Answer(unkept=f"its result is not JSON and was not kept: {error}")


def main() -> None:
    """Answer requests until the worker is gone."""
    pipe = socket.socket(fileno=int(sys.argv[1]))
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    is_busy = threading.Event()
    threading.Thread(target=_receive, args=(pipe, requests, is_busy), daemon=True).start()
    while True:
        is_busy.clear()
        request = requests.get()
        is_busy.set()
        sys.path[:] = request.path
        answer = msgspec.json.encode(answered(request))
        sys.stdout.flush()
        pipe.sendall(len(answer).to_bytes(HEAD_BYTES, "big") + answer)


def _receive(pipe: socket.socket, requests: "queue.SimpleQueue[Request]", is_busy: threading.Event) -> None:
    """In a thread, so that the end of the worker is seen in the middle of a call."""
    try:
        while head := _exactly(pipe, HEAD_BYTES):
            requests.put(_request(_exactly(pipe, int.from_bytes(head, "big"))))
    except OSError:
        pass
    if is_busy.is_set():
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with what the function started
    os._exit(0)


def _exactly(pipe: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := pipe.recv(size - len(parts))):
        parts += part
    return parts if len(parts) == size else b""


if __name__ == "__main__":
    main()
