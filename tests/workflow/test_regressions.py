"""Former errors that kept a workflow from its end, or ran a step too early."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import Failure, InvalidGraph, WrongState
from dibs.errors import WrongWorkflowState
from dibs.model.claim import Cancelled, Claim, ClaimRequest, Completed, Failed
from dibs.model.search import DeadFilter
from dibs.model.task import NewTask, State
from dibs.model.workflow import NewStep, NewWorkflow, Workflow, WorkflowState
from dibs.store.contract import Store
from dibs.store.open import open_store
from dibs.store.operation import limited
from dibs.store.sqlite.connection import SQL
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.retention import keep_in
from tests.helpers.workflow_consistency import Books, assert_books


class WorkflowDriver:
    """Runs workflows by single calls, and checks the counters after every call."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url, self.clock = url, clock
        self.store: Store = open_store(url, clock=clock)

    def do(self, operation: Any) -> Any:
        done = self.store.run(operation)
        assert_books(self.url)
        return done

    def start(self, *steps: NewStep, **options: Any) -> Workflow:
        workflow: Workflow = self.do(self.store.workflows.start_workflow(NewWorkflow(name="w", steps=steps, **options)))
        return workflow

    def now(self, workflow_id: int) -> Workflow:
        workflow: Workflow | None = self.store.run(self.store.workflows.get_workflow(workflow_id))
        assert workflow is not None
        return workflow

    def sub(self) -> Workflow:
        """The first sub-workflow of all."""
        return self.now(min(each["id"] for each in Books(self.url).workflows.values() if each["step_of"]))

    def task(self, name: str) -> int:
        """The task of the step with this name, which only one has."""
        [task_id] = [task_id for task_id, step in Books(self.url).steps.items() if step["name"] == name]
        return task_id

    def state(self, name: str) -> str:
        return str(Books(self.url).steps[self.task(name)]["state"])

    def claim(self, count: int = 100) -> dict[str, Claim]:
        claims = self.do(self.store.queue.claim(ClaimRequest(worker_id="w1", count=count, lease=10.0)))
        steps = Books(self.url).steps
        return {steps[each.task_id]["name"]: each for each in claims}

    def complete(self, claim: Claim, *steps: NewStep) -> Any:
        return self.do(self.store.queue.finish([(claim, Completed(None, steps))]))[0]

    def fail(self, claim: Claim) -> None:
        self.do(self.store.queue.finish([(claim, Failed(Failure("E", "as always"), permanent=True))]))

    def finalize(self) -> None:
        """Run all due finalizations, and those that become due by them."""
        while due := self.store.run(self.store.finalization.due_finalizations()):
            for workflow_id in due:
                claim = self.do(self.store.finalization.claim_finalization(workflow_id, "p", 30_000_000))
                self.do(self.store.finalization.finalize(workflow_id, "p", claim.token))

    def run(self) -> None:
        """Complete all that can run, until nothing can."""
        while claims := self.claim():
            for claim in claims.values():
                self.complete(claim)
            self.finalize()
        self.finalize()


@pytest.fixture
def driver(url: str, clock: Clock) -> Any:
    driver = WorkflowDriver(url, clock)
    yield driver
    driver.store.close()


def task(name: str, *after: str, queue: str = "default", on_failure: str | None = None, **options: Any) -> NewStep:
    return NewStep(name=name, task=NewTask("t", queue=queue, **options), after=after, on_failure=on_failure)


def part(name: str, *steps: NewStep, after: tuple[str, ...] = (), **options: Any) -> NewStep:
    on_failure = options.pop("policy", None)
    return NewStep(
        name=name, workflow=NewWorkflow(name=name, steps=steps, **options), after=after, on_failure=on_failure
    )


# Sub-workflows whose turn has not come


def test_an_empty_sub_workflow_is_not_finalized_before_its_turn(driver: WorkflowDriver) -> None:
    flow = driver.start(task("first"), part("empty", after=("first",)), task("last", "empty"))
    driver.finalize()
    assert driver.sub().state == WorkflowState.RUNNING
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


def test_a_sub_workflow_is_not_due_before_its_turn(driver: WorkflowDriver) -> None:
    driver.start(task("first"), part("pages", task("page"), after=("first",)))
    assert driver.do(driver.store.finalization.due_finalizations()) == []
    driver.do(driver.store.workflows.add_steps(driver.sub().id, [task("another")]))
    assert driver.do(driver.store.finalization.due_finalizations()) == []


def test_cancelling_a_sub_workflow_before_its_turn_cancels_its_step(driver: WorkflowDriver) -> None:
    steps = (task("first"), part("pages", task("page"), after=("first",), policy="ignore"), task("last", "pages"))
    flow = driver.start(*steps)
    driver.do(driver.store.workflows.cancel_workflow(driver.sub().id))
    assert driver.state("pages") == State.CANCELLED
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


@pytest.mark.parametrize("policy", ["ignore", "continue", "fail"])
def test_cancelling_the_step_of_a_sub_workflow_cancels_the_steps_inside(driver: WorkflowDriver, policy: str) -> None:
    inner = part("inner", task("deep"))
    flow = driver.start(task("first"), part("pages", task("page"), inner, after=("first",), policy=policy))
    driver.do(driver.store.tasks.cancel(driver.task("pages")))
    assert [driver.state(name) for name in ("page", "deep")] == [State.CANCELLED] * 2
    driver.run()
    assert driver.now(flow.id).finished


def test_a_step_of_a_sub_workflow_does_not_run_before_its_turn(driver: WorkflowDriver) -> None:
    pages = part("pages", task("page", on_failure="ignore"), task("print", "page"), after=("first",))
    flow = driver.start(task("first"), pages)
    driver.do(driver.store.tasks.cancel(driver.task("page")))
    driver.do(driver.store.workflows.add_steps(driver.sub().id, [task("bind", "page")]))
    assert [driver.state(name) for name in ("print", "bind")] == ["blocked"] * 2
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED
    assert [driver.state(name) for name in ("print", "bind")] == ["completed"] * 2


def test_a_step_cancelled_before_the_turn_of_its_sub_workflow_can_be_retried_in_it(driver: WorkflowDriver) -> None:
    pages = part("pages", task("page", on_failure="continue"), task("other"), after=("first",))
    flow = driver.start(task("first"), pages)
    driver.do(driver.store.tasks.cancel(driver.task("page")))
    driver.complete(driver.claim()["first"])
    driver.do(driver.store.tasks.retry(driver.task("page")))
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


def test_the_deadline_of_a_retried_sub_workflow_counts_from_its_turn(driver: WorkflowDriver) -> None:
    flow = driver.start(task("first"), part("pages", task("page"), after=("first",), deadline=60.0))
    driver.fail(driver.claim()["first"])
    driver.finalize()
    driver.do(driver.store.workflows.retry_workflow(flow.id))
    driver.clock.advance(100)
    assert driver.do(driver.store.upkeep.expire_workflows()) == 0
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


# Continuing


def test_retrying_a_step_of_an_ended_sub_workflow_retries_the_outer_workflow(driver: WorkflowDriver) -> None:
    flow = driver.start(part("pages", task("page")), task("last", "pages"))
    driver.fail(driver.claim()["page"])
    driver.finalize()
    assert driver.now(flow.id).state == WorkflowState.FAILED
    driver.do(driver.store.tasks.retry(driver.task("page")))
    assert driver.now(flow.id).state == WorkflowState.RUNNING
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


def test_a_step_of_a_sub_workflow_whose_failure_was_ignored_is_not_retried(driver: WorkflowDriver) -> None:
    driver.start(part("pages", task("page"), policy="ignore"), task("last", "pages"))
    driver.fail(driver.claim()["page"])
    driver.finalize()
    with pytest.raises(WrongState, match="ignored"):
        driver.do(driver.store.tasks.retry(driver.task("page")))


def test_redrive_continues_past_steps_whose_failure_was_ignored(driver: WorkflowDriver) -> None:
    driver.start(task("ignored", on_failure="ignore"), task("failed", on_failure="continue"))
    for claim in driver.claim().values():
        driver.fail(claim)
    driver.clock.advance(1)
    assert driver.do(driver.store.tasks.redrive_some(DeadFilter(), 1)) == 1
    assert driver.state("failed") == "pending"


def test_a_workflow_that_is_partly_pruned_is_not_retried(driver: WorkflowDriver) -> None:
    flow = driver.start(*(task(f"s{n}") for n in range(4)))
    claims = driver.claim(1)
    driver.fail(claims["s0"])
    driver.finalize()
    driver.clock.advance(100)
    keep_in(driver.store, failed=10)
    driver.do(driver.store.upkeep.prune(limit=2))
    with pytest.raises(WrongWorkflowState, match="cannot be retried"):
        driver.do(driver.store.workflows.retry_workflow(flow.id))
    while driver.do(driver.store.upkeep.prune(limit=2)).count:
        pass
    assert driver.do(driver.store.workflows.get_workflow(flow.id)) is None


# Growing


def test_an_added_step_cannot_depend_on_a_step_that_waits_for_it(driver: WorkflowDriver) -> None:
    flow = driver.start(task("split"), task("merge", "split"), task("print", "merge"))
    claim = driver.claim()["split"]
    assert isinstance(driver.complete(claim, task("part", "print")), InvalidGraph)
    driver.complete(claim, task("part", "split"))
    driver.run()
    assert driver.now(flow.id).state == WorkflowState.COMPLETED


def test_two_steps_that_add_steps_concurrently_both_add_their_queues(driver: WorkflowDriver) -> None:
    flow = driver.start(part("pages", task("a"), task("b")))
    claims = driver.claim()
    reports = [(claims[name], Completed(None, [task("more", queue=f"queue-{name}")])) for name in ("a", "b")]
    driver.do(driver.store.queue.finish(reports))
    assert driver.now(flow.id).queues == driver.sub().queues == ["default", "queue-a", "queue-b"]


def test_a_sub_workflow_added_to_a_stopping_workflow_does_not_begin(driver: WorkflowDriver) -> None:
    flow = driver.start(task("done"), task("split"))
    claims = driver.claim()
    driver.complete(claims["done"])
    driver.do(driver.store.workflows.cancel_workflow(flow.id))
    driver.complete(claims["split"], part("pages", task("page"), after=("done",)))
    assert driver.state("page") == "cancelled"
    driver.finalize()
    assert driver.now(flow.id).state == WorkflowState.CANCELLED


# Stopping


def test_cancelling_a_failing_workflow_sends_a_cancel_request_to_running_steps(driver: WorkflowDriver) -> None:
    flow = driver.start(task("bad"), task("long"), part("pages", task("page")))
    claims = driver.claim()
    driver.fail(claims["bad"])
    driver.do(driver.store.workflows.cancel_workflow(flow.id))
    renewed = driver.do(driver.store.queue.renew([claims["long"], claims["page"]], 10_000_000))
    assert [each.cancel_requested for each in renewed] == [True, True]


def test_a_failing_workflow_is_stopped_at_its_deadline(driver: WorkflowDriver) -> None:
    flow = driver.start(task("bad"), task("long"), deadline=5.0)
    claims = driver.claim()
    driver.fail(claims["bad"])
    driver.clock.advance(6)
    assert driver.do(driver.store.upkeep.expire_workflows()) == 1
    assert driver.do(driver.store.upkeep.expire_workflows()) == 0
    assert driver.now(flow.id).stopping == "deadline"


def test_a_finalizer_that_no_worker_runs_ends_with_the_deadline(driver: WorkflowDriver) -> None:
    flow = driver.start(task("only"), finalizer=NewTask("report"), deadline=5.0)
    driver.complete(driver.claim()["only"])
    driver.finalize()
    assert driver.now(flow.id).state == WorkflowState.FINALIZING
    driver.clock.advance(6)
    driver.do(driver.store.upkeep.expire_workflows())
    ended = driver.now(flow.id)
    assert ended.state == WorkflowState.FAILED
    assert ended.error is not None
    assert ended.error.type == "DeadlineExceeded"


def test_the_error_of_a_workflow_states_that_its_finalizer_was_cancelled(driver: WorkflowDriver) -> None:
    flow = driver.start(task("only"), finalizer=NewTask("report"))
    driver.complete(driver.claim()["only"])
    driver.finalize()
    driver.do(driver.store.tasks.cancel(driver.task("(finalizer)")))
    error = driver.now(flow.id).error
    assert error is not None
    assert error.type == "FinalizerCancelled"


# Programs that do not know workflows


def test_pruning_continues_past_tasks_that_another_process_has_pruned(driver: WorkflowDriver) -> None:
    flow = driver.start(*(task(f"s{n}") for n in range(6)))
    driver.run()
    gone = ", ".join(str(driver.task(f"s{n}")) for n in range(3))
    run_sql(driver.url, f"DELETE FROM dibs_tasks WHERE id IN ({gone})")
    driver.clock.advance(100)
    keep_in(driver.store, completed=10)
    while driver.store.run(driver.store.upkeep.prune(limit=2)).count:
        pass
    assert driver.do(driver.store.workflows.get_workflow(flow.id)) is None
    for table in ("dibs_tasks", "dibs_steps", "dibs_edges"):
        assert run_sql(driver.url, f"SELECT count(*) FROM {table}") == [(0,)]


def test_a_task_whose_workflow_is_partly_pruned_is_not_retried(driver: WorkflowDriver) -> None:
    driver.start(part("pages", task("page")))
    driver.fail(driver.claim()["page"])
    driver.finalize()
    page, pages = driver.task("page"), driver.task("pages")
    run_sql(driver.url, f"DELETE FROM dibs_tasks WHERE id = {pages}", f"DELETE FROM dibs_steps WHERE task_id = {pages}")
    with pytest.raises(WrongState, match="deleted"):
        driver.store.run(driver.store.tasks.retry(page))


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_repair_of_workflows_reads_only_unfinished_steps(url: str, clock: Clock) -> None:
    store = open_store(url, clock=clock)
    assert store.run(store.upkeep.mend_workflows()) == 0
    plan = run_sql(url, "EXPLAIN QUERY PLAN " + SQL.text("missed_steps", limited(100)))
    store.close()
    assert "dibs_steps_open" in plan[0][3]


# Locks


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_renewals_progress_and_a_cancel_of_a_workflow_do_not_deadlock(url: str) -> None:
    before = run_sql(url, DEADLOCKS)
    store = open_store(url)
    for _ in range(8):
        steps = [task(f"s{n}") for n in range(300)]
        flow = store.run(store.workflows.start_workflow(NewWorkflow(name="w", steps=steps)))
        claims = store.run(store.queue.claim(ClaimRequest(worker_id="w", count=300, lease=60.0)))
        at_once = [
            store.queue.renew(claims, 60_000_000),
            store.queue.renew(claims[::-1], 60_000_000),
            store.queue.progress([(claim, 1, None) for claim in claims[::-1]]),
            store.workflows.cancel_workflow(flow.id),
        ]
        with ThreadPoolExecutor(len(at_once)) as pool:
            list(pool.map(store.run, at_once))
        store.run(store.queue.finish([(claim, Cancelled()) for claim in claims[::-1]]))
    store.close()
    assert run_sql(url, DEADLOCKS) == before


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
