"""Promise 2, exactly-once claim: each claim issues the task's next token to one worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import dibs
from dibs import NewTask


def test_a_claim_takes_the_task_and_issues_its_first_token(app: Any) -> None:
    task = app.enqueue("resize", {"image": 7})
    claim = app.claim("worker-1")
    assert (claim.task_id, claim.token, claim.worker_id, claim.attempt) == (task.id, 1, "worker-1", 1)
    assert claim.task.params == {"image": 7}
    assert claim.task.state is dibs.State.CLAIMED
    assert claim.task.attempts == 0


def test_an_empty_queue_gives_no_claim(app: Any) -> None:
    assert app.claim("worker-1") is None
    assert app.claim_many("worker-1", 10) == []


def test_a_claimed_task_is_not_claimed_again(app: Any) -> None:
    app.enqueue("resize")
    assert app.claim("worker-1") is not None
    assert app.claim("worker-2") is None


def test_each_claim_of_a_task_gets_the_next_token(app: Any) -> None:
    app.enqueue("resize")
    tokens = []
    for _ in range(3):
        claim = app.claim("worker-1")
        tokens.append(claim.token)
        app.release(claim)
    assert tokens == [1, 2, 3]


def test_a_batch_has_as_many_tasks_as_requested_or_all_there_are(app: Any) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(25)])
    assert [len(app.claim_many("worker-1", 10)) for _ in range(4)] == [10, 10, 5, 0]


@pytest.mark.parametrize("tasks", [10, 5])
def test_ten_workers_get_ten_different_tasks_and_no_more_than_there_are(app: Any, tasks: int) -> None:
    ids = {
        task.id for task in app.enqueue_many([NewTask(f"type-{n % 3}", queue=f"queue-{n % 2}") for n in range(tasks)])
    }
    with ThreadPoolExecutor(10) as pool:
        claims = list(pool.map(lambda n: app.claim(f"worker-{n}"), range(10)))
    won = [claim.task_id for claim in claims if claim is not None]
    assert sorted(won) == sorted(ids)
    assert claims.count(None) == 10 - tasks
