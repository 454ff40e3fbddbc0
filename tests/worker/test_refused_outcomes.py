"""An outcome that the store refuses fails its own attempt and does not hold back the outcomes of other tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import dibs
from dibs import PollerConfig, State, TaskPoller
from dibs.worker import finisher
from tests.helpers import handlers
from tests.helpers.refusing import refuse, refuse_results
from tests.helpers.waiting import until


@pytest.fixture(params=["direct", "served"])
def app(url: str, request: pytest.FixtureRequest) -> Iterator[dibs.Dibs]:
    """An application without handlers, on the database itself and over HTTP."""
    with contextlib.ExitStack() as closing:
        place = url
        with dibs.Dibs(url) as direct:  # makes the tables, before the test adds a trigger
            direct.migrate()
        if request.param == "served":
            place = closing.enter_context(request.getfixturevalue("server_host").serving(url))
        yield closing.enter_context(dibs.Dibs(place))


def ended(app: dibs.Dibs, tasks: list[dibs.Task]) -> list[dibs.Task]:
    """The tasks, once all of them have ended."""
    return [app.wait(task.id, 30) for task in tasks]


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_a_result_that_the_store_refuses_fails_its_task_and_the_others_complete(
    app: dibs.Dibs, url: str, lane: str, caplog: pytest.LogCaptureFixture
) -> None:
    def give(n: int) -> str:
        return "poison" if n == 7 else "fine"

    async def give_async(n: int) -> str:
        return give(n)

    app.task(give if lane == "thread" else give_async, name="give", max_attempts=1)
    refuse_results(url)
    tasks = app.enqueue_many([dibs.NewTask("give", {"n": n}, max_attempts=1) for n in range(20)])
    with app.worker(concurrency=4):
        done = ended(app, tasks)
    assert [n for n, task in enumerate(done) if task.state is not State.COMPLETED] == [7]
    assert done[7].state is State.FAILED
    assert done[7].error.type == "StoreRefused"
    assert "could not be stored" in done[7].error.message
    assert "refused" in done[7].error.message
    assert any("could not be stored" in record.getMessage() for record in caplog.records)


def test_an_attempt_whose_result_the_store_refuses_is_tried_again(app: dibs.Dibs, url: str) -> None:
    @app.task(max_attempts=2, backoff=dibs.Backoff(0.01, 0.01))
    def give(ctx: dibs.Context) -> str:
        return "poison" if ctx.attempt == 1 else "fine"

    refuse_results(url)
    with app.worker():
        task = give.enqueue().wait(30)
    assert (task.state, task.attempts, task.result) == (State.COMPLETED, 2, "fine")


def test_an_error_that_the_store_refuses_is_replaced_by_an_error_about_the_refusal(app: dibs.Dibs, url: str) -> None:
    @app.task(max_attempts=5)
    def give() -> None:
        raise dibs.Permanent("poison")

    refuse(url, "dibs_tasks", "NEW.error LIKE '%poison%'", "UPDATE")
    with app.worker():
        task = give.enqueue().wait(30)
    assert (task.state, task.attempts, task.error.type) == (State.FAILED, 1, "StoreRefused")


def test_a_poller_continues_after_a_result_that_the_store_refuses(app: dibs.Dibs, url: str) -> None:
    refuse_results(url)
    tasks = app.enqueue_many([dibs.NewTask("give", {"n": n}, max_attempts=1) for n in range(3)])
    poller = TaskPoller(app, "poller-1", PollerConfig(poll_interval=0.05, max_backoff=0.1, order="fifo"))

    def callback(task: dibs.Task) -> str:
        if task.params["n"] == 2:
            poller.stop()
        return "poison" if task.params["n"] == 1 else "fine"

    assert poller.poll_loop(callback) == 3
    assert [app.get(task.id).state.value for task in tasks] == ["completed", "failed", "completed"]  # type: ignore[union-attr]


def test_a_task_whose_every_outcome_is_refused_is_abandoned_and_recovered_after_its_lease(
    app: dibs.Dibs, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=2)
    def doomed() -> None: ...

    @app.task
    def good(n: int) -> int:
        return n

    refuse(url, "dibs_history", "NEW.event IN ('completed', 'failed') AND NEW.task_id = 1")
    doomed_task = doomed.enqueue()
    tasks = app.enqueue_many([good.new(n) for n in range(5)])
    with app.worker(lease=1.0):
        assert {task.state for task in ended(app, tasks)} == {State.COMPLETED}
        until(lambda: any("is given up" in record.getMessage() for record in caplog.records), 30)
    assert doomed_task.id == 1
    assert app.get(1).state is not State.COMPLETED  # type: ignore[union-attr]


def test_large_results_are_written_in_batches_of_bounded_size(app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finisher, "BATCH_BYTES", 1_000_000)
    sizes: list[int] = []
    finish = app._store.queue.finish

    def weighed(reports: Any) -> Any:
        sizes.append(sum(len(outcome.result) for _, outcome in reports))
        return finish(reports)

    monkeypatch.setattr(app._store.queue, "finish", weighed)

    @app.task
    def large() -> str:
        return "x" * 400_000

    tasks = app.enqueue_many([large.new() for _ in range(12)])
    with app.worker(concurrency=8):
        assert {task.state for task in ended(app, tasks)} == {State.COMPLETED}
    assert max(sizes) <= 1_400_000


@pytest.mark.parametrize("lane", ["thread", "process"])
def test_text_that_no_database_can_encode_is_stored_with_replacements_in_every_lane(url: str, lane: str) -> None:
    with handlers.at(url) as app, app.worker(concurrency=2, children=1):
        task = app.enqueue(f"mumble_{lane}", max_attempts=1)
        ended_task = app.wait(task.id, 30)
    assert (ended_task.state, ended_task.error.message) == (State.FAILED, "no \ufffd and \u2400")
    assert (ended_task.progress, ended_task.progress_message) == (50, "half \ufffd way\u2400")


@pytest.mark.parametrize("lane", ["thread", "process"])
def test_a_result_that_no_database_can_encode_fails_its_task_and_the_others_complete(url: str, lane: str) -> None:
    with handlers.at(url) as app:
        tasks = [app.enqueue(f"echo_{lane}", {"code": code}, max_attempts=1) for code in (65, 0xD800, 0, 66)]
        with app.worker(concurrency=2, children=2):
            done = ended(app, tasks)
    assert [task.state.value for task in done] == ["completed", "failed", "failed", "completed"]
    assert [done[0].result, done[3].result] == ["A", "B"]
