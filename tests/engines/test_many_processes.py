"""Promises 1 to 4 with many processes on one store: no double claim, no lost task, acknowledged means stored."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import Event, NewTask, State, Task, Verdict
from dibs.observe.verify import Acknowledged, dump, verify
from tests import matrix
from tests.helpers.processes import ask_all, processes

PROCESSES = 10
CHURNED = 2000 if matrix.is_stress() else 800
"""Tasks of the long run; the run has every kind of event more than ten times with either number."""


@pytest.mark.parametrize("tasks", [10, 5])
def test_ten_processes_claim_different_tasks_and_all_there_are(url: str, tasks: int) -> None:
    with dibs.Dibs(url) as app, processes(url, PROCESSES) as members:
        for number in range(10):
            queue = f"round-{number}"
            ids = [task.id for task in app.enqueue_many([NewTask("t", queue=queue) for _ in range(tasks)])]
            answers = ask_all(members, [{"do": "claim", "queue": queue}] * PROCESSES)
            won = [claim for claims in answers for claim in claims]
            assert sorted(won) == [[task_id, 1, Event.CLAIMED] for task_id in ids]
            assert [len(claims) for claims in answers].count(0) == PROCESSES - tasks


def test_every_task_ends_once_under_concurrent_operations_of_ten_processes(url: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}, history in {tmp_path}")
    with dibs.Dibs(url) as app, processes(url, PROCESSES) as members:
        enqueued = app.enqueue_many(a_mixture(CHURNED))
        workers = [f"worker-{n % 3}" for n in range(PROCESSES)]
        commands = [{"do": "churn", "seed": seed + n, "worker": worker} for n, worker in enumerate(workers)]
        answers = ask_all(members, commands)
        told = [Acknowledged(task.id, 0, Event.ENQUEUED) for task in enqueued]
        told += [
            Acknowledged(task_id, token, Event(event), worker)
            for worker, answer in zip(workers, answers, strict=True)
            for task_id, token, event in answer
        ]
        entries, tasks = app.all_history(), all_tasks(app)
        dump(entries, tmp_path / "history.jsonl")
        report = verify(entries, tasks=tasks, acknowledged=told)
        print(report, Counter(entry.event for entry in entries))
        assert report.ok, report
        assert [task.id for task in tasks] == [task.id for task in enqueued]
        assert {task.state for task in tasks} == {State.COMPLETED, State.FAILED}
        assert_everything_happened(entries, told)
        assert_written_under_its_own_token(tasks, entries)
        assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []


def test_an_acknowledged_task_is_stored_although_its_process_is_killed(url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged: dict[str, list[int]] = {}
    for _ in range(3):
        with processes(url, 3) as members:
            for member in members:
                member.send(do="enqueue_until_killed", threads=3)
            for member in chance.sample(members, len(members)):
                heard = [member.hear() for _ in range(chance.randint(1, 60))]
                member.kill()
                acknowledged.update(batch for batch in heard + member.hear_the_rest())
                # The next round's processes have the same names: they meet their own keys again.
    with dibs.Dibs(url) as app:
        stored: dict[str, list[int]] = {}
        for task in all_tasks(app):
            stored.setdefault(task.params["batch"], []).append(task.id)
        assert {batch: sorted(stored.get(batch, [])) for batch in acknowledged} == acknowledged
        assert {batch: len(ids) for batch, ids in stored.items()} == {batch: size_of(batch) for batch in stored}
        assert verify(app.all_history(), tasks=all_tasks(app)).ok
        assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []


def a_mixture(count: int) -> list[NewTask]:
    return [
        NewTask(f"type-{n % 4}", queue=f"queue-{n % 3}", priority=n % 7 - 2, max_attempts=2 + n % 4)
        for n in range(count)
    ]


def all_tasks(app: dibs.Dibs) -> list[Task]:
    """Oldest first."""
    tasks: list[Task] = []
    while page := app.list_tasks(limit=1000, cursor=tasks[-1].id if tasks else None):
        tasks += page
    return tasks[::-1]


def assert_everything_happened(entries: list[Any], told: list[Acknowledged]) -> None:
    """Each claim in the history was acknowledged to one process, and the run had every kind of event."""
    claims = Counter((entry.task_id, entry.token) for entry in entries if entry.event is Event.CLAIMED)
    assert claims == Counter((each.task_id, each.token) for each in told if each.event is Event.CLAIMED)
    happened = Counter(entry.event for entry in entries)
    for event in (Event.COMPLETED, Event.FAILED, Event.RELEASED, Event.RECOVERED, Event.PROMOTED):
        assert happened[event] > 10, happened


def assert_written_under_its_own_token(tasks: list[Task], entries: list[Any]) -> None:
    """What a worker left behind names the token it had: a stale one must not have left anything."""
    results = {task.id: task.result["token"] for task in tasks if task.state is State.COMPLETED}
    assert results == {task.id: task.token for task in tasks if task.state is State.COMPLETED}
    failures = [entry for entry in entries if entry.event is Event.FAILED]
    assert [entry.detail["message"] for entry in failures] == [f"token {entry.token}" for entry in failures]


def size_of(batch: str) -> int:
    return 1 + int(batch.rsplit("-", 1)[1]) % 5
