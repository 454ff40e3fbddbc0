"""Workflows on real workers: results reach the next steps, steps add steps, checkpoints stay, finalizers run once.

Upkeep runs once a minute here, so that the tests are about the worker itself and not about the repair by upkeep.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dibs import (
    AsyncDibs,
    Context,
    Dibs,
    FinalizationClaimer,
    FinalizationLost,
    InvalidValue,
    PollerConfig,
    State,
    Task,
    TaskPoller,
    Workflow,
    WorkflowState,
)
from dibs.handlers.handler import Handler
from dibs.server.config import ServerConfig
from dibs.worker import claimer
from dibs.worker.claimer import Claimer
from tests.helpers import flows
from tests.helpers.databases import run_sql
from tests.helpers.flows import give, keep_and_wait, keep_and_wait_apart, read, refuse, report, split
from tests.helpers.handlers import heard, say
from tests.helpers.waiting import until
from tests.helpers.workers import WorkerProcesses

LANES = ("", "_async", "_apart")
COMPLETED = WorkflowState.COMPLETED
RARELY: dict[str, Any] = {"upkeep_every": 60.0}


@pytest.fixture
def app(url: str) -> Iterator[Dibs]:
    """The handlers of flows.py, on a new database."""
    with flows.at(url) as app:
        yield app


def in_lane(name: str, lane: str) -> Handler:
    return flows.app.handlers[f"{name}{lane}"]


def named(app: Dibs, workflow: Workflow) -> dict[str, Task]:
    """The tasks of a workflow by the names of their steps."""
    return {step.name: app.get(step.task_id) for step in app.steps(workflow.id)}  # type: ignore[misc]


def called(folder: Path, name: str = "") -> int:
    return len(list(folder.glob(f"{name}*.called")))


# Results


@pytest.mark.parametrize("lane", LANES)
def test_a_step_reads_the_results_of_its_parents(app: Dibs, lane: str) -> None:
    with app.workflow("diamond") as flow:
        first = flow.step(give, value={"n": 1})
        parts = [flow.step(give, after=first, value=n) for n in range(3)]
        failed = flow.options(name="failed", on_failure="ignore").step(refuse, after=first)
        flow.options(name="last").step(in_lane("read", lane), after=[*parts, failed])
    with app.worker(**RARELY):
        assert flow.stored.wait(30).state is COMPLETED
    assert named(app, flow.stored)["last"].result == {
        "all": [["give-2", 0], ["give-3", 1], ["give-4", 2], ["failed", None]],
        "given": [0, 1, 2],
        "errors": {"failed": "as always"},
        "in": flow.id,
    }


@pytest.mark.parametrize("lane", LANES)
def test_a_finalizer_reads_what_completed_and_what_failed(app: Dibs, lane: str) -> None:
    with app.workflow("fails") as flow:
        flow.step(read, after=[flow.step(give), flow.step(refuse)])
        flow.finalize(in_lane("clean_up", lane), when="always")
    with app.worker(**RARELY):
        done = flow.wait(30)
    assert (done.state.value, done.error.type) == ("failed", "StepFailed")
    assert app.get(done.finalizer_id).result == {
        "state": "failed",
        "completed": ["give"],
        "failed": {"refuse": "as always"},
        "skipped": ["read"],
    }


@pytest.mark.parametrize("lane", LANES)
def test_a_task_that_is_not_a_step_has_no_results_and_cannot_add_steps(app: Dibs, lane: str) -> None:
    reading = in_lane("read", lane).enqueue()
    splitting = in_lane("split", lane).options(max_attempts=1).enqueue(parts=1)
    with app.worker(**RARELY):
        assert reading.wait(30).result == {"all": [], "given": [], "errors": {}, "in": None}
        assert "not a step of a workflow" in splitting.wait(30).error.message


def test_a_failed_step_fails_its_workflow_and_a_retry_continues_from_it(app: Dibs) -> None:
    with app.workflow("fails") as flow:
        first = flow.step(give, value=1)
        flow.step(read, after=flow.step(refuse, after=first))
    with app.worker(**RARELY):
        workflow = flow.stored.wait(30)
        assert workflow.state is WorkflowState.FAILED
        tasks = named(app, workflow)
        assert [task.state for task in tasks.values()] == [State.COMPLETED, State.FAILED, State.CANCELLED]
        app.retry_workflow(workflow.id)
        assert app.wait_workflow(workflow.id, 30).state is WorkflowState.FAILED
    assert named(app, workflow)["give"] == tasks["give"]


# Steps added by steps


@pytest.mark.parametrize("on_failure", ["fail", "continue", "ignore"])
def test_the_log_places_a_failed_step_in_the_dead_letter_unless_its_workflow_ignores_the_failure(
    place: str, caplog: pytest.LogCaptureFixture, on_failure: str
) -> None:
    with flows.at(place) as app:
        with app.workflow(on_failure) as flow:
            flow.options(on_failure=on_failure).step(refuse)
        with app.worker(**RARELY):
            assert until(lambda: any("(refuse, " in record.message for record in caplog.records))
        dead = [task.type for task in app.list_dead()]
    assert dead == ([] if on_failure == "ignore" else ["refuse"])
    [entry] = [record for record in caplog.records if "(refuse, " in record.message]
    assert entry.__dict__["dead"] is (on_failure != "ignore")
    assert ("the task is in the dead letter" in entry.message) is (on_failure != "ignore")


@pytest.mark.parametrize("lane", LANES)
def test_a_step_fans_out_to_its_own_handler_to_any_depth(app: Dibs, lane: str) -> None:
    handler = in_lane("crawl", lane)
    with app.workflow("site") as flow:
        flow.options(name="last").step(read, after=flow.step(handler, depth=3))
    with app.worker(**RARELY):
        assert flow.stored.wait(60).state is COMPLETED
    tasks = named(app, flow.stored)
    depths = sorted(task.params["depth"] for task in tasks.values() if task.type == handler.name)
    assert depths == [0] * 8 + [1] * 4 + [2] * 2 + [3]
    seen = dict(tasks["last"].result["all"])
    assert sum(result == 0 for result in seen.values()) == 8  # the step after the first one reads all leaves


@pytest.mark.parametrize("lane", LANES)
def test_a_running_step_adds_steps_and_its_children_wait_for_them(app: Dibs, lane: str) -> None:
    with app.workflow("fan-out") as flow:
        splitting = flow.options(name="split").step(in_lane("split", lane), parts=3, fail=1)
        flow.options(name="last").step(read, after=splitting)
    with app.worker(**RARELY):
        assert flow.stored.wait(30).state is COMPLETED
    tasks = named(app, flow.stored)
    assert sorted(tasks) == ["last", "split", "split/give", "split/give-2", "split/give-3", "split/sum"]
    assert tasks["split"].attempts == 2  # and the first has added nothing
    assert tasks["split/sum"].result["given"] == [0, 1, 2]
    sums = tasks["split/sum"]
    assert dict(tasks["last"].result["all"]) == {
        "split": "split",
        "split/sum": sums.result,
    }  # the last of what was added
    assert tasks["last"].claimed_at >= sums.finished_at  # type: ignore[operator]


def test_a_step_that_adds_an_invalid_step_fails_and_adds_nothing(app: Dibs) -> None:
    with app.workflow("wrong") as flow:
        flow.step(flows.add_wrongly)
    with app.worker(**RARELY):
        assert flow.stored.wait(30).state is WorkflowState.FAILED
    [task] = named(app, flow.stored).values()
    assert task.error is not None
    assert "'nobody'" in task.error.message
    assert task.attempts == 1


def test_a_step_that_adds_a_step_in_a_forbidden_queue_fails_with_a_message(url: str, server_host: Any) -> None:
    config = ServerConfig(port=0, access_log=False, **RARELY)
    with Dibs(url) as direct, server_host.serving(url, config) as place:
        key = direct.create_key("limited", ["enqueue", "work", "read"], queues=["ours"], rate_limit="none").key
        with Dibs(place, api_key=key) as app:

            @app.task(queue="ours")
            def add(ctx: Context) -> None:
                ctx.options(name="far").step(give.options(queue="theirs"))

            with app.workflow("limited") as flow:
                flow.step(add)
            with app.worker(queues=["ours"], lease=600):
                assert flow.stored.wait(20).state is WorkflowState.FAILED
            [task] = named(app, flow.stored).values()
    assert task.error is not None
    assert "may not use queue 'theirs'" in task.error.message
    assert task.attempts == 1


# Sub-workflows


def test_the_outer_workflow_continues_at_once_when_a_sub_workflow_ends(app: Dibs, tmp_path: Path) -> None:
    with app.workflow("outer") as flow:
        with flow.workflow("inner", after=flow.step(give, value=1)) as inner:
            inner.step(split, parts=2)
            with inner.workflow("innermost") as innermost:
                innermost.step(give, value=5)
            inner.finalize(report, folder=str(tmp_path))
        flow.options(name="last").step(read, after=inner)
        with flow.workflow("end", after="last") as end:
            end.step(give, value=7)
    with app.worker(**RARELY):
        assert flow.stored.wait(20).state is COMPLETED
    last = named(app, flow.stored)["last"].result
    assert dict(dict(last["all"])["inner"])["innermost"] == {"give": 5}


# Checkpoints


@pytest.mark.parametrize("lane", [*LANES, "_apart_async"])
def test_a_checkpoint_is_computed_once_across_attempts(app: Dibs, lane: str, tmp_path: Path) -> None:
    task = in_lane("keep", lane).enqueue(folder=str(tmp_path))
    with app.worker(**RARELY):
        done = task.wait(30)
    assert (done.state, done.attempts, called(tmp_path)) == (State.COMPLETED, 2, 2)
    assert done.result == [{"count": 1, "pair": [1, 2]}] * 2
    assert app.checkpoints(task.id) == {"one": {"count": 1, "pair": [1, 2]}, "two": {"count": 1, "pair": [1, 2]}}


@pytest.mark.parametrize("handler", [keep_and_wait, keep_and_wait_apart], ids=["thread", "process"])
def test_a_checkpoint_survives_a_killed_worker(
    app: Dibs, workers: WorkerProcesses, tmp_path: Path, handler: Any
) -> None:
    task = handler.enqueue(folder=str(tmp_path))
    options: dict[str, Any] = {"program": "tests.helpers.work_flows", "lease": 1.5, "upkeep_every": 0.5}
    worker = workers.start(**options)
    until(lambda: heard(tmp_path, "kept.1.began"), 30)
    worker.kill()
    workers.start(**options)
    until(lambda: heard(tmp_path, "kept.2.began"), 30)
    say(tmp_path, "go")
    assert app.wait(task.id, 30).result == {"count": 1, "pair": [1, 2]}
    assert (called(tmp_path, "one"), called(tmp_path, "two")) == (1, 1)


@pytest.mark.parametrize("handler", [keep_and_wait, keep_and_wait_apart], ids=["thread", "process"])
def test_a_worker_that_lost_its_claim_stores_no_checkpoint(app: Dibs, url: str, tmp_path: Path, handler: Any) -> None:
    with app.worker(lease=600, **RARELY):
        task = handler.enqueue(folder=str(tmp_path))
        until(lambda: heard(tmp_path, "kept.1.began"), 30)
        run_sql(url, f"UPDATE dibs_tasks SET token = 2, worker_id = 'another' WHERE id = {task.id}")
        say(tmp_path, "go")
        if handler is keep_and_wait:  # a child process is killed as soon as its claim is known to be lost
            assert until(lambda: heard(tmp_path, "lost.1"), 30) == f"{task.id} 1 "
    assert app.checkpoints(task.id) == {"one": {"count": 1, "pair": [1, 2]}}
    assert app.get(task.id).state is State.CLAIMED  # type: ignore[union-attr]


def test_a_thread_left_behind_by_a_task_neither_reads_nor_writes_for_the_next_task(app: Dibs, tmp_path: Path) -> None:
    with app.workflow("first") as first:
        first.step(flows.leave_a_thread, folder=str(tmp_path))
    with app.workflow("second") as second:
        parent = second.options(name="secret").step(give, value="of the second")
        second.step(flows.stay_with_a_thread, after=parent, folder=str(tmp_path))
    with app.worker(children=1, **RARELY):
        assert first.stored.wait(30).state is COMPLETED
        assert until(lambda: named(app, second.stored)["stay_with_a_thread"].progress, 30) == 50
        say(tmp_path, "noted")
        assert second.stored.wait(30).state is COMPLETED
    left, stayed = (named(app, flow.stored) for flow in (first, second))
    task, next_task = left["leave_a_thread"], stayed["stay_with_a_thread"]
    assert next_task.result == [task.result, "of the second"]  # in the same process
    assert [heard(tmp_path, f"late.{n}") for n in range(2)] == [f"lost {task.id} 1 "] * 2
    assert app.checkpoints(task.id) == {}


@pytest.mark.parametrize("lane", LANES)
def test_a_checkpoint_requested_concurrently_is_computed_once(app: Dibs, lane: str, tmp_path: Path) -> None:
    with app.worker(**RARELY):
        done = in_lane("keep_at_once", lane).enqueue(folder=str(tmp_path)).wait(30)
    assert done.result == [{"count": 1, "pair": [1, 2]}] * 3
    assert called(tmp_path) == 1


def test_a_checkpoint_is_awaited_where_its_function_is_a_coroutine_function(app: Dibs) -> None:
    with app.worker(**RARELY):
        assert flows.keep_with_arguments.enqueue().wait(30).result == 1
        assert "it returned an awaitable" in flows.keep_what_is_to_be_awaited.enqueue().wait(30).error.message
        assert "calls the same checkpoint" in flows.keep_within_itself.enqueue().wait(30).error.message


def test_a_checkpoint_value_that_is_not_json_is_refused(app: Dibs) -> None:
    with app.worker(**RARELY):
        assert "'one' is not JSON" in flows.keep_what_is_not_json.enqueue().wait(30).error.message
        assert "name of a checkpoint" in flows.keep_what_is_not_json.enqueue(name="").wait(30).error.message


# The end


def test_every_finalizer_runs_once_with_several_workers(app: Dibs, tmp_path: Path) -> None:
    started = [a_flow(app, tmp_path) for _ in range(20)]
    with app.worker(**RARELY), app.worker(**RARELY), app.worker(**RARELY):
        assert {each.wait(60).state for each in started} == {COMPLETED}
    said = sorted(path.name for path in tmp_path.glob("*.reported"))
    assert said == sorted(f"report.{each.id}.1.reported" for each in started)
    reported = app.get(started[0].finalizer_id or 0)
    assert reported is not None
    assert reported.result == {"give": 1, "give-2": 2}


def test_a_burst_worker_does_not_end_before_the_finalizer_has_run(app: Dibs, tmp_path: Path) -> None:
    for _ in range(15):
        started = a_flow(app, tmp_path)
        assert app.worker(burst=True, **RARELY).run() == 0
        assert app.wait_workflow(started.id, 0).state is COMPLETED


def test_a_burst_worker_runs_sub_workflows_and_added_steps(app: Dibs, tmp_path: Path) -> None:
    for _ in range(5):
        with app.workflow("outer") as flow:
            with flow.workflow("inner", after=flow.step(split, parts=2)) as inner:
                inner.step(give)
                inner.finalize(report, folder=str(tmp_path))
            flow.step(read, after=inner)
            flow.finalize(report, folder=str(tmp_path))
        assert app.worker(burst=True, **RARELY).run() == 0
        assert app.wait_workflow(flow.id, 0).state is COMPLETED


def test_a_burst_worker_finalizes_workflows_that_other_workers_left(app: Dibs, tmp_path: Path) -> None:
    for _ in range(5):
        started = a_flow(app, tmp_path)
        for claim in app.claim_many("gone", 2):
            last = app.complete(claim)
        assert last.finalize == started.id
        assert app.worker(burst=True, **RARELY).run() == 0
        assert app.wait_workflow(started.id, 0).state is COMPLETED


def test_a_burst_worker_over_http_waits_for_the_server_to_begin_the_finalizer(
    url: str, server_host: Any, tmp_path: Path
) -> None:
    config = ServerConfig(port=0, keys=False, access_log=False, **RARELY)
    with server_host.serving(url, config) as place, flows.at(place) as app:
        for _ in range(3):
            started = a_flow(app, tmp_path)
            assert app.worker(burst=True).run() == 0
            assert app.wait_workflow(started.id, 0).state is COMPLETED


def test_a_worker_that_stops_finalizes_the_workflows_it_ended(app: Dibs) -> None:
    for _ in range(10):
        with app.workflow("short") as flow:
            flow.step(give)
        with app.worker(**RARELY):
            until(lambda: named(app, flow.stored)["give"].finished)
        assert app.wait_workflow(flow.id, 0).state is COMPLETED


def test_a_poller_reads_results_and_finalizes_the_workflow(app: Dibs, tmp_path: Path) -> None:
    started = a_flow(app, tmp_path)
    seen: list[Any] = []

    def call(task: Task, ctx: Context) -> int:
        seen.append((task.type, dict(ctx.results), ctx.checkpoint("n", lambda: len(seen))))
        if task.id == started.finalizer_id:
            poller.stop()
        return task.id

    poller = TaskPoller(app, "poller-1", PollerConfig(poll_interval=0.05, max_backoff=0.1))
    assert poller.poll_loop(call) == 3
    assert app.wait_workflow(started.id, 30).state is COMPLETED
    assert [each[0] for each in seen] == ["give", "give", "report"]
    assert sorted(seen[2][1]) == ["give", "give-2"]


def test_an_async_app_writes_and_awaits_its_workflows(url: str) -> None:
    async def main() -> None:
        async with AsyncDibs(url) as app:

            @app.task
            async def double(n: int) -> int:
                return 2 * n

            @app.task
            async def total(ctx: Context) -> int:
                return int(sum(ctx.results.of(double)))

            async with app.workflow("sum", key="once") as flow:
                parts = [flow.step(double, n) for n in range(4)]
                flow.finalize(total)
                assert len(parts) == 4
            async with app.workflow("sum", key="once") as again:
                _ = [again.step(double, n) for n in range(4)]
                again.finalize(total)
            assert (again.id, again.stored.deduplicated) == (flow.id, True)
            async with app.worker(**RARELY):
                done = await flow.stored.wait(20)
            assert done.state is COMPLETED
            finalizer = await app.get(done.finalizer_id)
            assert finalizer is not None
            assert finalizer.result == 12
            claimer = FinalizationClaimer(app, "p1")
            assert not (await claimer.claim(done.id)).claimed
            assert not await claimer.release(done.id, 1)
            with pytest.raises(FinalizationLost):
                await claimer.finalize(done.id, 1)

    asyncio.run(main())


def ready_to_finalize(app: Dibs) -> int:
    """A workflow whose only step is done."""
    with app.workflow("short") as flow:
        flow.step(give)
    [claim] = app.claim_many("w", 1)
    app.complete(claim)
    return flow.id


def test_a_claimer_claims_renews_releases_and_finalizes_for_one_processor(app: Dibs) -> None:
    order = ready_to_finalize(app)
    one, two = FinalizationClaimer(app, "one", timeout=60), FinalizationClaimer(app, "two")
    first = one.claim(order)
    assert (first.claimed, first.token) == (True, 1)
    assert (two.claim(order).claimed, two.renew(order, 1).claimed, two.release(order, 1)) == (False, False, False)
    assert (one.renew(order, 1).token, one.extend(order, 1).claimed) == (1, True)
    assert (one.release(order, 1), one.release(order, 1)) == (True, False)
    assert two.claim(order).token == 2
    with pytest.raises(FinalizationLost):
        one.finalize(order, 2)
    assert two.finalize(order, 2).state is COMPLETED


def test_two_claimers_with_one_name_do_not_share_a_claim(app: Dibs) -> None:
    order = ready_to_finalize(app)
    one, two = FinalizationClaimer(app, "billing"), FinalizationClaimer(app, "billing")
    assert one.processor_id != two.processor_id
    assert all(re.fullmatch("billing-[0-9a-f]{16}", each.processor_id) for each in (one, two))
    held = one.claim(order)
    assert (one.claim(order).reason, held.processor) == ("extended", one.processor_id)
    refused = two.claim(order)
    assert (refused.claimed, refused.already_claimed_by) == (False, one.processor_id)


def test_a_claimer_can_use_its_name_unchanged(app: Dibs) -> None:
    order = ready_to_finalize(app)
    one = FinalizationClaimer(app, "billing-1", unique=False)
    assert one.processor_id == "billing-1"
    assert one.claim(order).processor == "billing-1"


@pytest.mark.parametrize("name", ["", "two\nlines", None, "x" * 256])
def test_a_claimer_needs_a_valid_name(app: Dibs, name: Any) -> None:
    with pytest.raises(InvalidValue, match="processor"):
        FinalizationClaimer(app, name)


def test_a_claimer_with_a_name_of_any_length_gets_a_valid_unique_name(app: Dibs) -> None:
    order = ready_to_finalize(app)
    assert FinalizationClaimer(app, "x" * 255).claim(order).claimed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_claimer_has_another_name_in_a_forked_process(app: Dibs) -> None:
    claimer = FinalizationClaimer(app, "billing")
    ours = claimer.processor_id
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, claimer.processor_id.encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 1000).decode()
    assert theirs.startswith("billing-")
    assert (theirs != ours, claimer.processor_id) == (True, ours)
    for end in (reading, writing):
        os.close(end)


def test_workers_with_one_name_finalize_under_different_names(app: Dibs) -> None:
    names = set()
    for _ in range(2):
        with app.workflow("short") as flow:
            flow.step(give)
        with app.worker(worker_id="worker-1", **RARELY):
            flow.stored.wait(30)
        names |= {attempt.processor for attempt in app.finalization_attempts(flow.id)}
    assert len(names) == 2
    assert all(re.fullmatch("worker-1-[0-9a-f]{16}", name) for name in names)


def a_flow(app: Dibs, folder: Path) -> Workflow:
    """Two steps beside each other, and a finalizer."""
    with app.workflow("order") as flow:
        flow.step(give, value=1)
        flow.step(give, value=2)
        flow.finalize(report, folder=str(folder))
    return flow.stored


def test_a_burst_does_not_end_before_a_resting_lane_has_claimed_the_next_step(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane that found nothing rests while another lane is busy, here for longer than the test lasts. The claimer is
    so slow that every task ends before its next round."""
    claim_for_all = Claimer._claim_for_all

    def claim_slowly(self: Claimer) -> tuple[bool, bool]:
        claimed, found = claim_for_all(self)
        until(lambda: not found or self._idle())
        return claimed, found

    monkeypatch.setattr(Claimer, "_claim_for_all", claim_slowly)
    monkeypatch.setattr(Claimer, "_wait_for_work", lambda self, seen: self._ending.wait(0.5))
    monkeypatch.setattr(claimer, "EMPTY_LANE_PAUSE", 60.0)
    with Dibs(url) as app:

        @app.task
        def first() -> int:
            return 7

        @app.task
        async def second(ctx: Context) -> int:
            return int(ctx.results["first"]) + 1

        with app.workflow("order") as flow:
            flow.step(second, after=flow.step(first))
        assert app.worker(burst=True, **RARELY).run() == 0
        assert flow.result(timeout=0) == {"first": 7, "second": 8}
