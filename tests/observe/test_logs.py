"""The log: one entry a line, JSON for programs, text for people, and no forged content."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.cli.logs import HumanFormatter, JsonFormatter
from tests.cli.running import COMMAND, environment, run_dibs
from tests.helpers.release_warning import without_caution
from tests.helpers.terminal import Terminal

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"])

PROGRAM = """
import dibs

app = dibs.Dibs()

@app.task
def greet():
    pass

@app.task(max_attempts=2, backoff=dibs.Backoff(base=0.01))
def fail():
    raise ValueError("boom\\nforged")

import logging

def step(number):
    logging.getLogger("jobs").warning("step %d", number, extra={"queue": "of the program"} if number == 2 else None)

@app.task
def in_thread():
    step(1)
    step(2)

@app.task
async def in_loop():
    step(1)

@app.task(lane="process")
def in_process():
    step(1)

@app.task(lane="process")
def speak(ctx: dibs.Context):
    try:
        raise KeyError("why")
    except KeyError:
        ctx.log.exception("oh", extra={"place": 7, "kind": {1}})
"""


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.fixture
def client(url: str, tmp_path: Path) -> dibs.Dibs:
    (tmp_path / "jobs.py").write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    return dibs.Dibs(url)


def formatted(formatter: logging.Formatter, message: str, *args: Any, **extra: Any) -> str:
    """The entry that the formatter makes of this."""
    record = logging.getLogger("dibs.test").makeRecord(
        "dibs.test", logging.WARNING, "f.py", 1, message, args, None, extra=extra
    )
    return formatter.format(record)


def entries(log: str) -> list[dict[str, Any]]:
    """The entries of a JSON log."""
    return [json.loads(line) for line in log.splitlines()]


def test_a_worker_logs_in_json(client: dibs.Dibs, url: str, tmp_path: Path) -> None:
    done, failing = client.enqueue("greet"), client.enqueue("fail", max_attempts=1)
    log = run_dibs("worker", "jobs", "--burst", "--log-level", "debug", "--worker-id", "w", url=url, cwd=tmp_path).err
    told = {(entry.get("event"), entry.get("task_id")): entry for entry in entries(log)}
    assert {
        ("worker.started", None),
        ("task.claimed", done.id),
        ("task.completed", done.id),
        ("task.failed", failing.id),
        ("worker.stopped", None),
    } <= set(told)
    about = {"task_type": "greet", "queue": "default", "worker_id": "w", "token": 1, "attempt": 1, "level": "debug"}
    assert about.items() <= told["task.completed", done.id].items()
    assert 0 <= told["task.completed", done.id]["seconds"] < 10
    failed = told["task.failed", failing.id]
    assert (failed["level"], failed["error_type"], failed["error"]) == ("warning", "ValueError", "boom")
    assert (failed["state"], failed["next_at"]) == ("failed", None)


@on_sqlite
def test_the_log_entry_of_a_failed_attempt_has_the_time_of_the_next(
    client: dibs.Dibs, url: str, tmp_path: Path
) -> None:
    task = client.enqueue("fail", max_attempts=2)
    log = run_dibs("worker", "jobs", "--burst", url=url, cwd=tmp_path).err
    [failed] = [entry for entry in entries(log) if entry.get("event") == "task.failed" and entry["attempt"] == 1]
    assert failed["state"] == "scheduled"
    [at] = [each for each in client.history(task.id) if each.event == "failed"][:1]
    assert failed["next_at"] > f"{at.at:%Y-%m-%dT%H:%M:%S}"


@on_sqlite
def test_tasks_that_did_not_fail_are_logged_only_on_request(client: dibs.Dibs, url: str, tmp_path: Path) -> None:
    client.enqueue("greet")
    log = run_dibs("worker", "jobs", "--burst", url=url, cwd=tmp_path).err
    told = [entry["event"] for entry in entries(without_caution(log))]
    assert told == ["worker.started", "worker.drained", "worker.stopped", "worker.summary"]


@on_sqlite
def test_log_entries_of_a_child_process_keep_their_fields_and_traceback(
    client: dibs.Dibs, url: str, tmp_path: Path
) -> None:
    task = client.enqueue("speak")
    log = run_dibs("worker", "jobs", "--burst", url=url, cwd=tmp_path).err
    [entry] = [entry for entry in entries(log) if entry["logger"] == "dibs.task"]
    assert (entry["level"], entry["task_id"], entry["place"], entry["kind"]) == ("error", task.id, 7, "{1}")
    assert entry["message"] == f"task {task.id} (speak, attempt 1): oh"
    assert entry["traceback"].endswith("KeyError: 'why'")


@on_sqlite
@pytest.mark.parametrize("handler", ["in_thread", "in_loop", "in_process"])
def test_what_a_handler_logs_has_the_fields_of_its_task(
    client: dibs.Dibs, url: str, tmp_path: Path, handler: str
) -> None:
    task = client.enqueue(handler)
    found = run_dibs("worker", "jobs", "--burst", "--worker-id", "w", url=url, cwd=tmp_path).err
    log = entries(without_caution(found))
    [first, *second] = [entry for entry in log if entry["logger"] == "jobs"]
    assert not any("task_id" in entry for entry in log if entry["logger"] != "jobs")  # outside of the attempt
    about = {"task_id": task.id, "task_type": handler, "queue": "default", "attempt": 1, "token": 1, "worker_id": "w"}
    assert {**about, "message": "step 1"}.items() <= first.items()
    assert [entry["queue"] for entry in second] == (["of the program"] if handler == "in_thread" else [])


@on_sqlite
def test_text_for_people_names_the_task_that_logs(client: dibs.Dibs, url: str, tmp_path: Path) -> None:
    task = client.enqueue("in_thread")
    log = run_dibs("worker", "jobs", "--burst", "--log-format", "human", url=url, cwd=tmp_path).err
    assert f"Z WARNING jobs: task {task.id} (in_thread, attempt 1): step 1\n" in log
    assert "dibs.worker: task" not in log


@on_sqlite
@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_on_a_terminal_the_log_is_text(
    client: dibs.Dibs, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.enqueue("fail", max_attempts=1)
    monkeypatch.chdir(tmp_path)
    with Terminal("worker", "jobs", "--burst", "--url", url, columns=140) as terminal:
        terminal.shows(
            r"\d\d:\d\d:\d\d +failed · task \d+ \(fail\), attempt 1 of 1: ValueError: boom\n +the task is in the dead",
            30,
        )
        assert terminal.ends() == 0
        assert "{" not in terminal.raw
        assert terminal.colour_of("failed") == "red"


@on_sqlite
@pytest.mark.parametrize(("way", "is_json"), [("human", False), ("json", True), ("auto", True)])
def test_the_format_is_chosen_by_option_or_environment(
    client: dibs.Dibs, url: str, tmp_path: Path, way: str, is_json: bool
) -> None:
    by_option = run_dibs("worker", "jobs", "--burst", "--log-format", way, url=url, cwd=tmp_path).err
    by_environment = run_dibs("worker", "jobs", "--burst", url=url, cwd=tmp_path, DIBS_LOG_FORMAT=way).err
    for log in (by_option, by_environment):
        assert all(line.startswith("{") is is_json for line in log.splitlines())
        assert "starts" in log


def test_an_unknown_log_format_is_refused(tmp_path: Path) -> None:
    done = run_dibs("worker", "jobs", "--log-format", "xml", cwd=tmp_path)
    assert (done.code, done.err) == (2, "error: 'xml' is not a log format.\nhint: Use one of: auto, human, json.\n")


@on_sqlite
def test_all_worker_processes_log_in_the_same_format(client: dibs.Dibs, url: str, tmp_path: Path) -> None:
    options = ["--burst", "--processes", "2", "--log-format", "human"]
    log = run_dibs("worker", "jobs", *options, url=url, cwd=tmp_path).err
    assert log.count("has stopped") == 2
    assert [line for line in log.splitlines() if not re.match(r"\S+Z [A-Z]+ +dibs\.\w+: ", line)] == []


@pytest.mark.parametrize(
    "formatter",
    [HumanFormatter(), HumanFormatter(on_terminal=True), JsonFormatter()],
    ids=["human", "terminal", "json"],
)
@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[31mb", "a\x9b2Jb", "a\u2028b", "a\x85b", "\u202eb", "\x7f"])
def test_no_text_forges_a_log_entry_or_controls_the_terminal(formatter: logging.Formatter, text: str) -> None:
    entry = formatted(formatter, "%s", text, more=text)
    assert len(entry.splitlines()) == 1
    assert entry.isprintable()


def test_json_keeps_the_message_and_the_extra_fields() -> None:
    entry = json.loads(
        formatted(JsonFormatter(), "hello %s", "wörld 💚\n", event="it.happened", n=1, some=[1, {"a": None}])
    )
    assert (entry["message"], entry["event"], entry["n"]) == ("hello wörld 💚\n", "it.happened", 1)
    assert (entry["some"], entry["level"], entry["logger"]) == ([1, {"a": None}], "warning", "dibs.test")


@pytest.mark.parametrize(
    "odd", [object, Unspeakable(), {object(): 1}, "\ud800", 2**100, float("nan"), b"\xff", {1: {2}}]
)
def test_json_entries_can_contain_any_object(odd: Any) -> None:
    entry = json.loads(formatted(JsonFormatter(), "hello", odd=odd))
    assert entry["message"] == "hello"
    assert "odd" in entry


def test_no_extra_field_replaces_a_standard_field() -> None:
    entry = json.loads(formatted(JsonFormatter(), "hello", level="forged", time="forged", logger="forged"))
    assert "forged" not in (entry["level"], entry["time"], entry["logger"])


@pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()], ids=["human", "json"])
def test_no_entry_shows_a_key(formatter: logging.Formatter) -> None:
    key = "dibs_mfqxk4tcmezd_" + "A" * 43
    try:
        raise ValueError(key)
    except ValueError as error:
        record = logging.LogRecord("dibs", logging.ERROR, "f.py", 1, "with %s", (key,), (ValueError, error, None))
    entry = formatter.format(record)
    assert entry.count("dibs_mfqxk4tcmezd_***") == 2
    assert "AAAA" not in entry


def test_the_recovery_of_a_task_is_logged(client: dibs.Dibs, url: str, tmp_path: Path) -> None:
    task = client.enqueue("greet")
    client.claim("dead", lease=0.001)
    process = subprocess.Popen(
        [*COMMAND, "worker", "jobs", "--worker-id", "w"],
        cwd=tmp_path,
        env=environment(url),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        told = next(entry for line in process.stderr if (entry := json.loads(line)).get("event") == "task.recovered")
        process.kill()
    about = {"task_id": task.id, "task_type": "greet", "queue": "default", "worker_id": "dead", "token": 1}
    assert about.items() <= told.items()
    assert (told["state"], told["level"]) == ("pending", "warning")
