"""`dibs tasks logs`: the lines of a task, attempt by attempt; with --follow until the task has ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import dibs
from dibs import LogLevel, LogLine
from tests.cli.running import Run
from tests.helpers.terminal import Terminal

AT = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)


def add(client: dibs.Dibs, claim: dibs.Claim, number: int, message: str, level: str = "info") -> None:
    line = LogLine(claim.task_id, claim.token, claim.attempt, number, AT, LogLevel(level), "videos", message)
    client._store.run(client._store.logs.add_log_lines([line]))


@pytest.fixture
def task(client: dibs.Dibs) -> int:
    """A failed task with lines of two attempts, of which the first was released before."""
    task_id = client.enqueue("download").id
    first = client.claim_by_id(task_id, "worker-1")
    add(client, first, 1, "begins\nin two lines \x1b[31m")
    client.fail(first, "no", retry_in=0)
    client.release(client.claim_by_id(task_id, "worker-1"))
    second = client.claim_by_id(task_id, "worker-1")
    add(client, second, 1, "fails", "error")
    client.fail(second, "no", permanent=True)
    return task_id


def test_lines_are_shown_under_their_attempts_with_aligned_times(run: Run, task: int) -> None:
    expected = [
        "Attempt 1, 2025-11-12 UTC",
        "10:30:00.123  info      begins",
        "                        in two lines \\x1b[31m",
        "Attempt 2 (token 3), 2025-11-12 UTC",
        "10:30:00.123  error     fails",
    ]
    assert run("tasks", "logs", str(task)).out.splitlines() == expected
    assert run("tasks", "logs", str(task), "--follow").out.splitlines() == expected
    assert run("tasks", "logs", str(task), "--attempt", "2").out.splitlines() == expected[3:]
    assert run("tasks", "logs", str(task), "--level", "warning").out.splitlines() == expected[3:]


def test_json_has_every_line_with_its_fields(run: Run, task: int) -> None:
    found: dict[str, Any] = run("tasks", "logs", str(task), "--json").json
    assert found["ended"] is True
    assert [line["id"] for line in found["logs"]] == ["1-1", "3-1"]
    assert found["logs"][1] == {
        "id": "3-1", "task_id": task, "token": 3, "attempt": 2, "number": 1, "at": "2025-11-12T10:30:00.123456Z",
        "level": "error", "logger": "videos", "message": "fails",
    }  # fmt: skip
    followed = run("tasks", "logs", str(task), "--json", "--follow").out.splitlines()
    assert [json.loads(line) for line in followed] == found["logs"]


def test_refusals_say_what_is_wrong(run: Run, client: dibs.Dibs) -> None:
    assert "There is no task 404" in run("tasks", "logs", "404").err
    task_id = str(client.enqueue("download").id)
    assert run("tasks", "logs", task_id).err == "No log lines.\n"
    assert "'loud' is not a level of log lines" in run("tasks", "logs", task_id, "--level", "loud").err


def test_on_a_terminal_following_is_coloured_and_ends_with_the_task(url: str, client: dibs.Dibs) -> None:
    claim = client.claim_by_id(client.enqueue("download").id, "worker-1")
    add(client, claim, 1, "an info")
    with Terminal("tasks", "logs", str(claim.task_id), "--follow", "--url", url, columns=80) as terminal:
        terminal.shows("an info")
        add(client, claim, 2, "an error", "error")
        terminal.shows("an error")
        assert terminal.colour_of("an error") != terminal.colour_of("an info")
        client.complete(claim)
        assert terminal.ends() == 0


def test_a_task_with_lines_names_the_command_that_shows_them(run: Run, client: dibs.Dibs, task: int) -> None:
    assert f"logs:        2 lines: dibs tasks logs {task}\n" in run("tasks", "show", str(task)).out
    other = client.enqueue("download")
    client.fail(client.claim_by_id(other.id, "worker-1"), "no")
    assert "logs" not in run("tasks", "show", str(other.id)).out
