"""A program that the warm server forks is a process like one from a shell: streams, signals, exit code, environment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import warm_processes
from servers.postgres import _is_gone
from warm_processes import PIPE, TESTS, WarmProcess

SAYS_ALL = """
import os, sys
print(sys.argv, os.getcwd(), os.environ.get("WORD"), __name__, sys.path[0])
print("trouble", file=sys.stderr)
sys.exit(7)
"""


def test_streams_arguments_folder_environment_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "says.py").write_text(SAYS_ALL)
    env = {**os.environ, "WORD": "ä"}
    for arguments in (["says.py"], ["-m", "says"], ["-c", SAYS_ALL]):
        ended = warm_processes.run([*arguments, "a", "b"], cwd=tmp_path, env=env)
        cold = subprocess.run(
            [sys.executable, *arguments, "a", "b"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (7, cold.stdout, cold.stderr)
        assert f"{tmp_path} ä __main__" in ended.stdout


LEAVES_OBJECTS = """
import atexit, sys, threading, time
from everpoll.http import tls
import left_here
class Left:
    def __init__(self, place):
        self.place = place
    def __del__(self):
        print("destroyed:", self.place)
def last():
    time.sleep(0.01)
    print("the thread ends")
in_program = Left("in the program")
left_here.one = Left("in a module of the program")
tls._contexts["left"] = Left("in a module of everpoll")
atexit.register(print, "at exit")
threading.Thread(target=last).start()
sys.exit(3)
"""


def test_its_end_is_that_of_an_interpreter(tmp_path: Path) -> None:
    """Threads end, exit functions run, and whatever the program has left is destroyed and says so."""
    (tmp_path / "left_here.py").touch()
    (tmp_path / "leaves.py").write_text(LEAVES_OBJECTS)
    warm = warm_processes.run(["leaves.py"], cwd=tmp_path)
    cold = subprocess.run([sys.executable, "leaves.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (warm.returncode, warm.stderr) == (cold.returncode, cold.stderr) == (3, "")
    assert sorted(warm.stdout.splitlines()) == sorted(cold.stdout.splitlines())
    assert len(warm.stdout.splitlines()) == 5


def test_the_environment_and_the_modules_of_one_program_are_not_those_of_the_next(tmp_path: Path) -> None:
    first = "import os, sys; os.environ['WORD'] = 'x'; sys.modules['json'] = None"
    warm_processes.run(["-c", first], cwd=tmp_path, check=True)
    ended = warm_processes.run(["-c", "import json, os; print(os.environ.get('WORD'))"], cwd=tmp_path, check=True)
    assert ended.stdout == "None\n"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it_as_it_ends_any_process(sent: signal.Signals) -> None:
    process = WarmProcess(["-c", "import time; print('up', flush=True); time.sleep(600)"], stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert process.poll() is None
    process.send_signal(sent)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -sent
    assert ("KeyboardInterrupt" in said) == (sent == signal.SIGINT)
    assert _is_gone(process.pid)


def test_an_exception_is_a_traceback_and_1() -> None:
    ended = warm_processes.run(["-c", "1 / 0"])
    assert ended.returncode == 1
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(subprocess.CalledProcessError):
        warm_processes.run(["-c", "1 / 0"], check=True)


def test_what_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm_processes.run(["-c", "import time; time.sleep(600)"], timeout=0.1)


LEAVES_ONE_BEHIND = """
import warm_processes
process = warm_processes.WarmProcess(["-c", "import time; time.sleep(600)"])
print(process.pid, flush=True)
import os, signal
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_test_process_leaves_nothing() -> None:
    parent = subprocess.run(
        [sys.executable, "-c", LEAVES_ONE_BEHIND], cwd=TESTS, stdout=subprocess.PIPE, text=True, check=False
    )
    pid = int(parent.stdout)
    for _ in range(3_000):
        if _is_gone(pid):
            return
        signal.sigtimedwait([], 0.02)
    pytest.fail("the program outlives the process that started it")
