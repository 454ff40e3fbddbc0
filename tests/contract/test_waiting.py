"""Waiting for a claimable task and for the end of a task: by a wake-up where possible, and by polling in any case."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from dibs import State, TaskNotFound, WaitTimeout, procedures
from tests.helpers.retention import keep
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

LONG = 30.0
"""Seconds a waiter is ready to wait. None of these tests waits that long unless it fails."""


@pytest.fixture
def here(url: str, open_app: Callable[..., Any]) -> Any:
    """The client that waits, on the real clock."""
    return open_app(url)


@pytest.fixture
def elsewhere(url: str, open_app: Callable[..., Any]) -> Any:
    """Another client of the same database: other connections, as in another process."""
    return open_app(url)


@pytest.fixture
def without_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling so rare that only a wake-up can end a wait in time."""
    monkeypatch.setattr(procedures, "POLL_INTERVAL", 10 * LONG)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def again_until_done(future: Future[Any], act: Callable[[], Any]) -> Any:
    """Act once a call waits, and repeat it while the call waits: a wake-up may come before the call listens."""
    until(somebody_waits)
    deadline = time.monotonic() + LONG / 2
    while not future.done():
        assert time.monotonic() < deadline, "no wake-up arrived"
        act()
        until_or_later(future, 1.0)
    return future.result()


def somebody_waits() -> bool:
    """True from the first wait on: then a thread looks for changes by others."""
    return any(thread.name == "dibs-wakeups" for thread in threading.enumerate())


def until_or_later(future: Future[Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not future.done() and time.monotonic() < deadline:
        time.sleep(0.005)


# Nothing comes


def test_a_waiting_claim_returns_nothing_after_its_time(here: Any) -> None:
    began = time.monotonic()
    assert here.claim("worker-1", wait=0.3) is None
    assert here.claim_many("worker-1", 5, wait=0.3) == []
    assert 0.6 <= time.monotonic() - began < LONG


def test_a_claim_that_does_not_wait_returns_at_once(here: Any) -> None:
    here.queues()
    began = time.monotonic()
    assert here.claim("worker-1") is None
    assert time.monotonic() - began < LONG / 10


def test_a_pending_task_is_claimed_without_waiting(here: Any, without_polling: None) -> None:
    task = here.enqueue("resize")
    assert here.claim("worker-1", wait=LONG).task_id == task.id


def test_a_task_that_does_not_match_the_filters_does_not_end_the_wait(here: Any) -> None:
    here.enqueue("crop", queue="other")
    assert here.claim("worker-1", wait=0.3, types=["resize"]) is None
    assert here.claim("worker-1", wait=0.3, queues=["default"]) is None


# Woken by an enqueue


def test_a_waiting_claim_is_woken_by_an_enqueue_of_another_thread(
    here: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    waiter = pool.submit(here.claim, "worker-1", wait=LONG)
    until(somebody_waits)
    task = here.enqueue("resize")
    assert waiter.result(LONG / 2).task_id == task.id


def test_a_waiting_claim_is_woken_by_an_enqueue_of_another_client(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    waiter = pool.submit(here.claim, "worker-1", wait=LONG)
    assert again_until_done(waiter, lambda: elsewhere.enqueue("resize")).worker_id == "worker-1"


PROGRAM = """
import sys, dibs
with dibs.Dibs(sys.argv[1]) as app:
    for line in sys.stdin:
        print(app.enqueue(line.strip()).id, flush=True)
"""


@pytest.fixture
def process(url: str) -> Iterator[Callable[[], int]]:
    """Another process that enqueues a task on command."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdin is not None
    assert program.stdout is not None

    def enqueue() -> int:
        program.stdin.write("resize\n")
        program.stdin.flush()
        return int(program.stdout.readline())

    yield enqueue
    program.stdin.close()
    program.stdout.close()
    assert program.wait(LONG) == 0


def test_a_waiting_claim_is_woken_by_another_process(
    here: Any, pool: ThreadPoolExecutor, process: Callable[[], int], without_polling: None
) -> None:
    waiter = pool.submit(here.claim, "worker-1", wait=LONG)
    assert again_until_done(waiter, process).worker_id == "worker-1"


def test_a_task_of_another_process_is_found_even_if_the_wake_up_is_lost(
    here: Any, pool: ThreadPoolExecutor, process: Callable[[], int]
) -> None:
    waiter = pool.submit(here.claim, "worker-1", wait=LONG)
    task_id = process()
    assert waiter.result(LONG / 2).task_id == task_id


def test_several_waiting_claims_get_different_tasks(here: Any, elsewhere: Any, pool: ThreadPoolExecutor) -> None:
    waiters = [pool.submit((here, elsewhere)[n % 2].claim, f"worker-{n}", wait=LONG) for n in range(6)]
    tasks = [elsewhere.enqueue("resize").id for _ in range(6)]
    assert sorted(waiter.result(LONG).task_id for waiter in waiters) == tasks


def test_one_task_ends_the_wait_of_one_of_several_claims(here: Any, pool: ThreadPoolExecutor) -> None:
    waiters = [pool.submit(here.claim, f"worker-{n}", wait=2) for n in range(4)]
    task = here.enqueue("resize")
    claims = [waiter.result(LONG) for waiter in waiters]
    assert [claim.task_id for claim in claims if claim is not None] == [task.id]


def test_a_waiting_batch_claim_takes_the_tasks_there_are_and_does_not_wait_for_more(
    here: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    waiter = pool.submit(here.claim_many, "worker-1", 10, wait=LONG)
    assert 1 <= len(again_until_done(waiter, lambda: here.enqueue("resize"))) <= 10


# Something else makes a task claimable


def test_a_waiting_claim_is_woken_by_a_release(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    task = here.enqueue("resize")
    held = elsewhere.claim("worker-1")
    waiter = pool.submit(here.claim, "worker-2", wait=LONG)

    def release_again() -> None:
        nonlocal held
        if held is None:
            held = elsewhere.claim("worker-1")
        if held is not None:
            elsewhere.release(held)
        held = None

    claim = again_until_done(waiter, release_again)
    assert (claim.task_id, claim.worker_id) == (task.id, "worker-2")


def test_a_waiting_claim_is_woken_by_a_retry(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    waiter = pool.submit(here.claim, "worker-2", wait=LONG)

    def retry_one() -> None:
        elsewhere.retry(elsewhere.enqueue("resize", delay=3600).id)

    assert again_until_done(waiter, retry_one).worker_id == "worker-2"


@pytest.mark.parametrize("change", [{"delay": 0}, {"queue": "default"}, {"delay": 0, "params": {"a": 1}}])
def test_a_waiting_claim_is_woken_when_a_change_makes_a_task_claimable(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor, without_polling: None, change: dict[str, Any]
) -> None:
    waiter = pool.submit(here.claim, "worker-2", queues=["default"], wait=LONG)
    delay, queue = (3600, "default") if "delay" in change else (0, "slow")

    def change_one() -> None:
        elsewhere.change(elsewhere.enqueue("resize", delay=delay, queue=queue).id, **change)

    assert again_until_done(waiter, change_one).worker_id == "worker-2"


def test_a_waiting_claim_is_woken_when_its_queue_is_resumed(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor, without_polling: None
) -> None:
    elsewhere.pause("slow")
    task = here.enqueue("resize", queue="slow")
    waiter = pool.submit(here.claim, "worker-2", wait=LONG)
    assert again_until_done(waiter, lambda: elsewhere.resume("slow")).task_id == task.id


def test_upkeep_that_changes_nothing_sends_no_wake_up(here: Any) -> None:
    wakeups = here._store.wakeups
    seen = wakeups.generation
    here.promote()
    here.recover()
    here.redrive()
    assert wakeups.generation == seen
    here.enqueue("resize")
    assert wakeups.generation > seen


def test_a_scheduled_task_is_claimed_by_a_waiting_claim_when_it_is_due(here: Any) -> None:
    task = here.enqueue("resize", delay=0.3)
    claim = here.claim("worker-1", wait=LONG)
    assert claim.task_id == task.id
    assert claim.task.claimed_at >= task.run_at


def test_a_task_whose_lease_runs_out_is_claimed_by_a_waiting_claim(here: Any) -> None:
    here.enqueue("resize")
    lost = here.claim("worker-1", lease=0.3)
    claim = here.claim("worker-2", wait=LONG)
    assert (claim.task_id, claim.token) == (lost.task_id, 2)
    assert claim.task.claimed_at >= lost.lease_until


# Wait for a task to finish


def finish(app: Any, how: str) -> None:
    claim = app.claim("worker-1")
    if how == "completed":
        app.complete(claim, {"size": 3})
    elif how == "failed":
        app.fail(claim, "broken", permanent=True)


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_wait_returns_the_finished_task(here: Any, elsewhere: Any, pool: ThreadPoolExecutor, how: str) -> None:
    task = here.enqueue("resize")
    waiter = pool.submit(here.wait, task.id, LONG)
    if how == "cancelled":
        elsewhere.cancel(task.id)
    else:
        finish(elsewhere, how)
    done = waiter.result(LONG)
    assert (done.id, done.state, done.finished) == (task.id, how, True)
    assert done == here.get(task.id)


def test_wait_is_woken_when_the_task_is_finished(here: Any, pool: ThreadPoolExecutor, without_polling: None) -> None:
    task = here.enqueue("resize")
    waiter = pool.submit(here.wait, task.id, LONG)
    until(somebody_waits)
    finish(here, "completed")
    assert waiter.result(LONG / 2).result == {"size": 3}


def test_wait_for_a_finished_task_returns_it_at_once(here: Any, without_polling: None) -> None:
    task = here.enqueue("resize")
    finish(here, "completed")
    assert here.wait(task.id).state is State.COMPLETED
    assert here.wait(task.id, 0).result == {"size": 3}


def test_wait_continues_across_a_retry(here: Any, pool: ThreadPoolExecutor) -> None:
    task = here.enqueue("resize")
    waiter = pool.submit(here.wait, task.id, LONG)
    here.fail(here.claim("worker-1"), "first try", retry_in=0)
    finish(here, "completed")
    assert waiter.result(LONG).attempts == 2


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_wait_gives_up_after_its_timeout_and_the_task_continues(here: Any, timeout: float) -> None:
    task = here.enqueue("resize")
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=f"Task {task.id} is still pending"):
        here.wait(task.id, timeout)
    assert timeout <= time.monotonic() - began < LONG
    assert here.get(task.id).state is State.PENDING


def test_a_wait_that_gives_up_raises_a_timeout_error(here: Any) -> None:
    with pytest.raises(TimeoutError):
        here.wait(here.enqueue("resize").id, 0)


def test_waiting_for_a_task_that_does_not_exist_is_not_found(here: Any) -> None:
    with pytest.raises(TaskNotFound):
        here.wait(404, LONG)


def test_waiting_for_a_task_that_is_pruned_meanwhile_is_not_found(here: Any, pool: ThreadPoolExecutor) -> None:
    task = here.enqueue("resize")
    here.cancel(task.id)
    keep(here, cancelled=0)
    here.prune()
    with pytest.raises(TaskNotFound):
        here.wait(task.id, LONG)


def test_many_waiters_for_many_tasks_each_get_their_own_task(
    here: Any, elsewhere: Any, pool: ThreadPoolExecutor
) -> None:
    tasks = [here.enqueue("resize", {"n": n}) for n in range(6)]
    waiters = [pool.submit(here.wait, task.id, LONG) for task in tasks]
    while claim := elsewhere.claim("worker-1"):
        elsewhere.complete(claim, claim.task.params["n"])
    assert [waiter.result(LONG).result for waiter in waiters] == list(range(6))


def test_a_waiting_call_survives_the_closing_of_its_client(here: Any, elsewhere: Any, pool: ThreadPoolExecutor) -> None:
    waiter = pool.submit(here.claim, "worker-1", wait=LONG)
    until(somebody_waits)
    here.close()
    task = elsewhere.enqueue("resize")
    assert waiter.result(LONG).task_id == task.id


# A rate


@pytest.mark.usefixtures("without_polling")
def test_a_claim_that_waits_for_a_rate_is_made_when_the_rate_opens(here: Any) -> None:
    here.set_limit("mail-api", rate="2/second")
    for _ in range(3):
        here.enqueue("send", {}, limits=["mail-api"])
    assert here.claim("worker-1") is not None
    for _ in range(2):  # nothing happens in the store that could wake it
        assert here.claim("worker-1", wait=LONG) is not None
