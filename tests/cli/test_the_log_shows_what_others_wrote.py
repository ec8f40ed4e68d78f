"""`everpoll run` logs text of others as text: no escape sequence, no forged line, whatever an error says."""

import json
import logging
import os
import signal
from pathlib import Path

import pytest

import warm_processes
from everpoll.logs import JsonLines, PlainLines
from warm_processes import PIPE, WarmProcess

EVERPOLL = ("-m", "everpoll")
FORGED = "[12:00:00] INFO     worker till-1 signed off"
EVIL = f"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\r\n{FORGED}\u202e\ud800\u2028x"
SHOP = f"""
import asyncio, logging
from everpoll import Everpoll, Retry

app = Everpoll("sqlite:///shop.db")
EVIL = {EVIL!r}


@app.job(retry=Retry(1))
async def broken() -> None:
    logging.getLogger("shop").error("the remote says %s", EVIL)
    try:
        raise OSError(EVIL)
    except OSError:
        logging.getLogger("shop").exception("oh")
    raise ValueError(EVIL)


async def main() -> None:
    await broken.enqueue()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
"""
CONTROL = set(range(32)) - {9, 10} | set(range(0x7F, 0xA0)) | {0x202E, 0x2028}


@pytest.mark.parametrize("kind", ["pretty", "json"])
def test_whatever_an_error_says_the_log_stays_a_log(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    env = {**os.environ, "EVERPOLL_LOG": kind, "COLUMNS": "400"}
    warm_processes.run(["shop.py"], cwd=tmp_path, env=env, check=True)
    command = [*EVERPOLL, "run", "shop:app", "--grace", "0s"]
    lines: list[str] = []
    with WarmProcess(command, cwd=tmp_path, env=env, stderr=PIPE) as worker:
        assert worker.stderr is not None
        try:
            for line in worker.stderr:
                lines.append(line)
                if "ValueError" in line:
                    break
        finally:
            worker.send_signal(signal.SIGTERM)
        lines += worker.stderr
    text = "".join(lines)
    assert [hex(ord(one)) for one in text if ord(one) in CONTROL] == []
    assert "Logging error" not in text
    assert "\\x1b" in text or "\\u001b" in text, "what was written is shown"
    if kind == "json":
        entries = [json.loads(line) for line in lines]
        failed = next(one for one in entries if "ValueError" in one["message"])
        assert (failed["task_id"], failed["name"], failed["attempt"]) == (1, "broken", 1)
        assert failed["level"] == "error"
        assert EVIL[:20] in failed["message"], "machines read it as it was"
    else:
        assert not any(line.startswith(FORGED) for line in lines)
        assert any(FORGED in line for line in lines)


def _record(message: str) -> logging.LogRecord:
    return logging.LogRecord("everpoll", logging.INFO, "", 1, "it says: %s", (message,), None)


def test_further_lines_are_indented() -> None:
    said = PlainLines().format(_record(f"one\n{FORGED}\n\ttwo"))
    assert said.partition("everpoll: ")[2] == f"it says: one\n    {FORGED}\n    \ttwo"


def test_a_json_line_is_one_line_in_any_encoding() -> None:
    said = JsonLines().format(_record(EVIL))
    assert len(said.splitlines()) == 1
    assert said.encode()
    assert json.loads(said)["message"] == f"it says: {EVIL}"


def test_an_error_of_a_command_is_shown_not_obeyed(tmp_path: Path) -> None:
    command = [*EVERPOLL, "run", "no\x1b[2Jwhere:app"]
    ended = warm_processes.run(command, cwd=tmp_path)
    assert ended.returncode == 2
    assert "\x1b" not in ended.stderr
