"""A Python process with everpoll already imported, which forks one child for each program that a test starts.

`warm_processes` starts it as `python warm_server.py SOCKET` and sends requests: what to run, in which folder, with
which environment and which standard streams. The child is a process of its own, with its own signals, streams and exit
code; it only skips the imports, which take more than half a second of CPU for each `everpoll` command. This process
never starts a thread: a fork would lose it.

The child ends as any interpreter does, with one exception: at a regular end it destroys what the program has left in
modules of its own and in those of everpoll, and keeps the imported code. To destroy that, too, the kernel would copy
every page of it: 55 ms of the 65 ms of CPU time that a program which does nothing took.

    request (one JSON message, descriptors) ──▶ fork ──▶ the program ──▶ its wait status, on its own pipe
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import itertools
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import time
import weakref
from typing import Any, NoReturn

import everpoll

REQUEST_BYTES = 1 << 20
RENDERS = ("pydantic.fields", "rich.columns", "rich.markdown", "rich.panel", "rich.traceback", "typer._adapters")
"""What typer imports when a command has options, shows help or complains: 0.1 s of CPU time."""
EXTRA = ("asyncpg", "uvicorn", "httpx", *RENDERS)
HOLDERS = (dict, list, set, functools._lru_cache_wrapper, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
"""Kinds of globals in which everpoll may keep what a program has made; instances of its own classes are others."""


def warm_up() -> None:
    """Import all that a command may import."""
    for found in pkgutil.walk_packages(everpoll.__path__, "everpoll."):
        # What is made for a frame, such as Django, wants its settings first.
        if not found.name.endswith("__main__") and not found.name.startswith("everpoll.contrib."):
            importlib.import_module(found.name)
    for name in EXTRA:
        importlib.import_module(name)
    gc.collect()


def serve(requests: socket.socket) -> list[str] | None:
    """Fork until the other end closes. Only a child returns: the arguments of its program."""
    wakeup, written = os.pipe()
    os.set_blocking(written, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([requests.fileno(), wakeup], [], [])
        if wakeup in readable:
            os.read(wakeup, 4096)
            reap(running)
        if requests.fileno() not in readable:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 8)
        if not message:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return None
        request = json.loads(message)
        report, *streams = descriptors
        pid = os.fork()
        if pid == 0:
            for descriptor in (wakeup, written, report, requests.detach(), *running.values()):
                os.close(descriptor)
            return become(request, streams)
        for descriptor in streams:
            os.close(descriptor)
        os.write(report, f"{pid}\n".encode())
        running[pid] = report


def reap(running: dict[int, int]) -> None:
    """Report the wait status of each child that has ended."""
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            report = running.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(report, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(report)


def become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """Take over streams, folder and environment, as a process that was just started has them."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.path[1:1] = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one not in sys.path]
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = io.TextIOWrapper(io.FileIO(0, "r", closefd=False), encoding="utf-8")
    for name, descriptor, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        binary = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
        is_line = descriptor == 2 or os.isatty(descriptor)
        text = io.TextIOWrapper(binary, "utf-8", errors, line_buffering=is_line, write_through=is_unbuffered)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    arguments: list[str] = request["arguments"]
    return arguments


def run(arguments: list[str]) -> None:
    """Run what `python ARGUMENTS` runs."""
    first, *rest = arguments
    if first == "-m":
        sys.path[0] = os.getcwd()  # noqa: PTH109 - what Python itself puts there
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - that is `python -c`
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))  # noqa: PTH100, PTH120 - what Python itself puts there
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


def holders() -> list[tuple[dict[str, Any], str]]:
    """Return the globals of everpoll in which something that a program made may be left, each with its name."""
    return [
        (vars(module), name)
        for module in list(sys.modules.values())
        if module.__name__.startswith("everpoll")
        for name, one in vars(module).items()
        if not name.startswith("__") and (isinstance(one, HOLDERS) or type(one).__module__.startswith("everpoll"))
    ]


def end(code: int, imported: set[str], holding: list[tuple[dict[str, Any], str]]) -> NoReturn:
    """End as the interpreter does, in its order, and skip the destruction of what was imported before the fork."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads that are not daemons
    atexit._run_exitfuncs()
    gc.collect()
    # The newest come last. To look at all others would be to copy them.
    for name in list(itertools.takewhile(lambda name: name not in imported, reversed(sys.modules))):
        vars(sys.modules.pop(name)).clear()
    for module, name in holding:
        module[name] = None
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except OSError:
        code = 120  # as the interpreter has it when no process reads its output
    os._exit(code)


def main() -> NoReturn:
    """Serve; in a child, run its program and end with its exit code."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    imported, holding = set(sys.modules), holders()
    gc.freeze()
    arguments = serve(requests)
    if arguments is None:
        sys.exit()
    try:
        run(arguments)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    else:
        code = 0
    end(code & 0xFF, imported, holding)


if __name__ == "__main__":
    main()
