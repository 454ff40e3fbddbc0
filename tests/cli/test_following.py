"""`dibs tasks list --follow`: prints each new or changed task, until Ctrl-C."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import psycopg
import pytest

import dibs
from dibs.cli.follow import HistoryTail
from tests.cli.running import COMMAND, environment
from tests.helpers.terminal import Terminal


@contextmanager
def following(url: str, *filters: str) -> Iterator[IO[bytes]]:
    """The lines of a following process, as they come."""
    command = [*COMMAND, "tasks", "list", "--follow", "--json", *filters]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(url)) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


def next_task(lines: IO[bytes]) -> dict[str, Any]:
    task: dict[str, Any] = json.loads(lines.readline())
    return task


def test_follow_shows_existing_tasks_and_then_new_and_changed_ones(url: str, client: dibs.Dibs) -> None:
    old = [client.enqueue("resize", {"n": n}).id for n in range(3)]
    with following(url) as lines:
        assert [next_task(lines)["id"] for _ in range(3)] == old
        new = client.enqueue("resize")
        assert (next_task(lines)["id"], new.state) == (new.id, "pending")
        client.cancel(old[0])
        changed = next_task(lines)
        assert (changed["id"], changed["status"]) == (old[0], "cancelled")


def test_follow_applies_the_filters(url: str, client: dibs.Dibs) -> None:
    client.enqueue("resize", queue="slow")
    with following(url, "--queue", "slow", "--state", "pending") as lines:
        next_task(lines)
        client.enqueue("resize", queue="fast")
        wanted = client.enqueue("resize", queue="slow")
        assert next_task(lines)["id"] == wanted.id


def test_on_a_terminal_each_task_is_one_coloured_line_that_fits(url: str, client: dibs.Dibs) -> None:
    client.enqueue("resize", {"text": "x" * 300})
    with Terminal("tasks", "list", "--follow", "--url", url, columns=80) as terminal:
        terminal.shows("…$")
        task = client.enqueue("resize", {"second": True})
        terminal.shows(rf"{task.id} +pending")
        client.cancel(task.id)
        terminal.shows(rf"{task.id} +cancelled")
        assert [line.split()[1] for line in terminal.lines if line] == ["state", "pending", "pending", "cancelled"]
        assert terminal.colour_of("pending") != terminal.colour_of("cancelled")


def test_the_end_of_a_history_is_found_however_long_it_is(client: dibs.Dibs) -> None:
    for count in (0, 1, 1, 5, 57):
        client.enqueue_many([dibs.NewTask("resize") for _ in range(count)])
        assert list(HistoryTail(client).new_entries()) == []
        tail = HistoryTail(client)
        late = client.enqueue("late")
        assert [entry.task_id for entry in tail.new_entries()] == [late.id]
        assert list(tail.new_entries()) == []


@pytest.mark.parametrize("engine", ["postgres"])
def test_an_entry_that_becomes_visible_late_is_not_missed(url: str, client: dibs.Dibs) -> None:
    tail = HistoryTail(client)
    with psycopg.connect(url) as connection:
        late = client.on(connection).enqueue("resize").id  # numbered now, visible when the transaction ends
        first = client.enqueue("resize").id
        assert [entry.task_id for entry in tail.new_entries()] == [first]
    assert [entry.task_id for entry in tail.new_entries()] == [late]
    assert list(tail.new_entries()) == []
