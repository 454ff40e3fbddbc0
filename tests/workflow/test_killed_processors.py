"""Promise 8: a processor killed between any two statements delays a finalization, and changes nothing else."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Event, ExecutionStatus, NewStep, NewTask, NewWorkflow, State, WorkflowState, procedures
from dibs.model.finalization import ClaimReason
from tests.helpers.clients import Clock, run
from tests.helpers.consistency import assert_balanced
from tests.helpers.dying import BREAKS, LEASE, NAME, end
from tests.helpers.processes import Member, ask_all, processes
from tests.helpers.waiting import until

UPKEEP = 1.0
"""Seconds between two rounds of upkeep."""

NEVER = 0
DYING = "tests.helpers.dying"
PROCESSORS, WORKFLOWS = 4, 30
LIFE = 40
"""Fault points that a processor passes at most; a workflow has 30 to 60 of them."""

TRIES = 1000
"""Attempts of every task: a worker that dies costs one, and here they die all the time."""

SESSIONS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
ENDING = {State.COMPLETED: Event.COMPLETED, State.FAILED: Event.FAILED, State.CANCELLED: Event.CANCELLED}
Graph = Callable[[], NewWorkflow]


def nested() -> NewWorkflow:
    """All there is on the way to a happy end: a last step, a finalizer, a workflow that is a step of another one."""
    inner = NewWorkflow(name="inner", steps=[a_step("last")], finalizer=task("report"))
    return NewWorkflow(name="outer", steps=[NewStep(name="inner", workflow=inner)])


def failing() -> NewWorkflow:
    """A failure in the middle: what waits is cancelled, and the workflow fails."""
    return NewWorkflow(
        name="failing",
        steps=[NewStep(name="first", task=task(BREAKS)), a_step("next", after=["first"])],
        finalizer=task("report"),
    )


def task(type_name: str) -> NewTask:
    return NewTask(type_name, max_attempts=TRIES)


def a_step(name: str, **options: Any) -> NewStep:
    return NewStep(name=name, task=task("work"), **options)


ENDS = {nested: (WorkflowState.COMPLETED, ExecutionStatus.ALL_COMPLETE)}
GRAPHS = {"outer": nested, "failing": failing}
ENDS[failing] = (WorkflowState.FAILED, ExecutionStatus.BLOCKED_BY_FAILURES)


@pytest.fixture
def dying(url: str) -> Iterator[Member]:
    """Where processors are forked that are to die."""
    with dibs.Dibs(url) as app:
        app.migrate()
    with processes(url, 1, DYING) as [member]:
        yield member


@pytest.mark.timeout(300)
@pytest.mark.parametrize("graph", [nested, failing])
def test_a_processor_killed_after_any_statement_leaves_one_finalization(
    url: str, dying: Member, clock: Clock, graph: Graph
) -> None:
    with dibs.Dibs(url, clock=clock) as app:
        points = fault_points(app, dying, clock, graph)
        workflows = [killed_at(url, app, dying, clock, graph, point) for point in range(1, points + 1)]
        assert_balanced(app, {State.COMPLETED, State.FAILED, State.CANCELLED})
        claims = Counter(len(app.finalization_attempts(workflow_id)) for workflow_id in workflows)
        print(f"{points} fault points; workflows by the number of claims: {dict(claims)}")
        assert set(claims) == {1, 2}  # some died while they held it


@pytest.mark.timeout(300)
def test_processors_that_are_killed_repeatedly_finalize_every_workflow_once(url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with dibs.Dibs(url) as app, processes(url, PROCESSORS, DYING) as members:
        workflows = [app.start_workflow(chance.choice([nested, failing])()) for _ in range(WORKFLOWS)]
        deaths = 0
        while app.list_workflows(state="running", limit=1) or app.list_workflows(state="finalizing", limit=1):
            now = time.time_ns() // 1000  # of a processor that lives for a fraction of a second
            lives = ask_all(members, [{"now": now, "at": chance.randint(1, LIFE)} for _ in members])
            deaths += sum(life["status"] == -signal.SIGKILL for life in lives)
            assert {life["status"] for life in lives} <= {0, -signal.SIGKILL}
            app.upkeep()
        print(f"{deaths} deaths; claims: {Counter(len(app.finalization_attempts(each.id)) for each in workflows)}")
        assert deaths > 10
        for workflow in workflows:
            assert_ended_once(app, workflow.id, *ENDS[GRAPHS[workflow.name]])
        assert_balanced(app, {State.COMPLETED, State.FAILED, State.CANCELLED})


def fault_points(app: dibs.Dibs, dying: Member, clock: Clock, graph: Graph) -> int:
    """How many there are on the way from the last step to the end, for a processor that does not die."""
    workflow_id = app.start_workflow(graph()).id
    answer = live(dying, clock, NEVER)
    assert answer["status"] == 0
    assert_ended_once(app, workflow_id, *ENDS[graph])
    return int(answer["passed"])


def killed_at(url: str, app: dibs.Dibs, dying: Member, clock: Clock, graph: Graph, point: int) -> int:
    """A workflow whose processor was killed there, and what it left done by others: in time, and once."""
    workflow_id = app.start_workflow(graph()).id
    assert live(dying, clock, point)["status"] == -signal.SIGKILL
    until(lambda: not is_remembered(url))
    clock.advance(LEASE + UPKEEP)
    survive(app)
    assert_ended_once(app, workflow_id, *ENDS[graph])
    return workflow_id


def is_remembered(url: str) -> bool:
    """True until PostgreSQL has noticed that the processor is dead: as long as that it keeps what it has locked."""
    if not url.startswith("postgresql:"):
        return False
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(SESSIONS, [NAME]).fetchone() is not None


def live(dying: Member, clock: Clock, at: int) -> dict[str, Any]:
    dying.send(now=clock.now, at=at)
    answer: dict[str, Any] = dying.hear()
    return answer


def survive(app: dibs.Dibs) -> None:
    """Act as another worker: run a round of upkeep, and all waiting tasks. The clock stands still meanwhile."""
    app.upkeep()
    while (claim := app.claim("survivor")) is not None:
        due = end(app, claim)
        if due is not None:
            app._follow(procedures.finalize_one(app._store, due, "survivor"))


def assert_ended_once(app: dibs.Dibs, workflow_id: int, state: WorkflowState, status: ExecutionStatus) -> None:
    """The workflow and its sub-workflows have ended, and each task ran and ended once."""
    workflow = app.get_workflow(workflow_id)
    assert workflow is not None
    assert workflow.state is state
    assert app.execution_context(workflow_id).execution_status is status
    assert run(app, app._store.finalization.due_finalizations()) == []
    assert_claimed_in_order(app, workflow_id)
    for step in app.steps(workflow_id):
        happened = Counter(entry.event for entry in app.history(step.task_id))
        assert happened[ENDING[step.state]] == 1, step
        assert happened[Event.PROMOTED] <= 1, step
        if step.workflow_id is not None:
            assert_ended_once(app, step.workflow_id, state, status)


def assert_claimed_in_order(app: dibs.Dibs, workflow_id: int) -> None:
    """Each claim had a token of its own, the next; all but the last were those of processors that died."""
    claimed = [
        attempt.token for attempt in app.finalization_attempts(workflow_id) if attempt.reason is ClaimReason.CLAIMED
    ]
    assert claimed
    assert claimed == list(range(1, len(claimed) + 1))
