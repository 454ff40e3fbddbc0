"""After any sequence of operations the counters of a workflow are right, it ends, and a retry completes it.

Random graphs, with sub-workflows, policies and finalizers; random claims, outcomes, growth, lost leases, cancels,
retries, deadlines and finalizations. After every operation the rows of the workflow are compared with its steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import dibs
from dibs import Cancelled, Completed, Failed, Failure, NewStep, NewTask, NewWorkflow, Outcome, Released, Step, Workflow
from dibs.observe.verify import verify
from tests.helpers.clients import Clock
from tests.helpers.workflows import WORKER, due, sub

pytestmark = [
    pytest.mark.database("the moves are the same over HTTP"),
    pytest.mark.parametrize("mode", ["sync"]),
]

MOVES = 60
BROKEN = Failure("Error", "broken")


class Course:
    """One workflow, and what may happen to it."""

    def __init__(self, app: Any, clock: Clock, seed: int) -> None:
        self.app, self.clock, self.rng = app, clock, random.Random(seed)
        self.held: list[Any] = []
        self.names = (f"step-{number}" for number in range(10**6))
        policy = self.rng.choice(["fail", "fail", "continue", "ignore"])
        deadline = self.rng.choice([None, None, 200])
        new = NewWorkflow(
            name="any", steps=self.graph(2), finalizer=self.finalizer(), on_failure=policy, deadline=deadline
        )
        self.root = app.start_workflow(new).id

    # What it is made of

    def graph(self, depth: int) -> list[NewStep]:
        steps: list[NewStep] = []
        for _ in range(self.rng.randint(0, 6)):
            steps.append(self.step(depth, [each.name for each in steps]))
        return steps

    def step(self, depth: int, before: list[str]) -> NewStep:
        after = self.rng.sample(before, self.rng.randint(0, min(3, len(before))))
        policy = self.rng.choice([None, None, "fail", "continue", "ignore"])
        name = next(self.names)
        if depth and self.rng.random() < 0.25:
            return sub(name, *self.graph(depth - 1), after=after, policy=policy, finalizer=self.finalizer())
        return NewStep(name=name, task=self.task(), after=after, on_failure=policy)

    def task(self) -> NewTask:
        return NewTask("t", max_attempts=self.rng.randint(1, 2), delay=self.rng.choice([None, None, 5]))

    def finalizer(self) -> NewTask | None:
        return self.task() if self.rng.random() < 0.3 else None

    # What there is

    def workflows(self) -> list[tuple[Workflow, list[Step]]]:
        """The whole tree."""
        found, ids = [], [self.root]
        while ids:
            workflow_id = ids.pop()
            steps = self.app.steps(workflow_id)
            found.append((self.app.get_workflow(workflow_id), steps))
            ids += [each.workflow_id for each in steps if each.workflow_id is not None]
        return found

    def any_workflow(self) -> Workflow:
        return self.rng.choice(self.workflows())[0]

    def any_step(self) -> Step | None:
        steps = [each for _, some in self.workflows() for each in some]
        return self.rng.choice(steps) if steps else None

    # What may happen

    def claim(self) -> None:
        self.held += self.app.claim_many(WORKER, self.rng.randint(1, 4))

    def finish(self) -> None:
        self.rng.shuffle(self.held)
        count = self.rng.randint(0, len(self.held))
        told, self.held = self.held[:count], self.held[count:]
        self.app.finish([(claim, self.outcome()) for claim in told])

    def outcome(self) -> Outcome:
        kinds: list[Callable[[], Outcome]] = [
            Completed,
            Completed,
            Completed,
            Completed,
            lambda: Completed(steps=[self.step(1, []) for _ in range(self.rng.randint(1, 3))]),
            lambda: Failed(BROKEN, permanent=True),
            lambda: Failed(BROKEN, retry_in=self.rng.choice([0, 5])),
            Released,
            Cancelled,
        ]
        return self.rng.choice(kinds)()

    def forget(self) -> None:
        """The worker dies."""
        self.held.clear()

    def wait(self) -> None:
        self.clock.advance(self.rng.choice([1, 10, 61]))

    def upkeep(self) -> None:
        self.app.upkeep()

    def recover(self) -> None:
        self.app.recover()

    def finalize(self) -> None:
        for workflow_id in due(self.app):
            answer = self.app.claim_finalization(workflow_id, "processor-1")
            if self.rng.random() < 0.8:
                self.app.finalize(workflow_id, "processor-1", answer.token)

    def finalize_any(self) -> None:
        workflow_id = self.any_workflow().id
        answer = self.app.claim_finalization(workflow_id, "processor-2")
        if answer.claimed:
            self.app.finalize(workflow_id, "processor-2", answer.token)

    def cancel_step(self) -> None:
        if (step := self.any_step()) is not None:
            self.app.cancel(step.task_id)

    def retry_step(self) -> None:
        if (step := self.any_step()) is not None:
            self.app.retry(step.task_id)

    def add(self) -> None:
        workflow = self.any_workflow()
        known = [each.name for each in self.app.steps(workflow.id) if each.kind != "finalizer"]
        self.app.add_steps(workflow.id, [self.step(1, known)])

    def cancel_workflow(self) -> None:
        self.app.cancel_workflow(self.any_workflow().id)

    def retry_workflow(self) -> None:
        self.app.retry_workflow(self.root)

    def redrive(self) -> None:
        self.app.redrive()

    def move(self) -> None:
        """One of them; it may not fit."""
        often = [self.claim, self.finish] * 6 + [self.finalize, self.wait] * 3
        rarely = [self.forget, self.upkeep, self.recover, self.finalize_any, self.cancel_step, self.retry_step]
        rarest = [self.add, self.cancel_workflow, self.retry_workflow, self.redrive]
        with suppress(dibs.WrongState, dibs.WrongWorkflowState):
            self.rng.choice(often + rarely + rarest)()

    def run_out(self) -> None:
        """Everything that can run is completed, until nothing can."""
        self.held.clear()
        while self.app.get_workflow(self.root).state in ("running", "finalizing"):
            self.clock.advance(61)
            done = self.app.upkeep()
            claims = self.app.claim_many(WORKER, 1000)
            self.app.finish([(claim, Completed("done")) for claim in claims])
            assert claims or done.finalized or done.recovered or done.promoted or done.expired, "nothing goes on"
            self.check()

    # What must hold

    def check(self) -> None:
        waiting = set(due(self.app))
        tree = self.workflows()
        gates = {each.workflow_id: each.state for _, steps in tree for each in steps}
        for workflow, steps in tree:
            counted = [each for each in steps if each.kind != "finalizer"]
            assert workflow.steps == len(counted)
            assert workflow.ended == sum(each.passed is not None for each in counted)
            assert workflow.failures == sum(each.passed is False for each in counted)
            assert workflow.active == sum(each.passed is None and each.waits == 0 for each in counted)
            begun = workflow.step_of is None or gates[workflow.id] == "claimed"
            if workflow.state == "running" and workflow.active == 0 and begun and workflow.finalization_by is None:
                assert workflow.id in waiting
            self.check_steps(counted, begun)
            assert not workflow.finished or all(each.passed is not None for each in counted)

    def check_steps(self, steps: list[Step], begun: bool) -> None:
        passed = {each.task_id: each.passed for each in steps}
        for each in steps:
            assert (each.passed is not None) == (each.state in ("completed", "failed", "cancelled"))
            open_ones = sum(passed[parent] is not True for parent in each.after)
            before_its_turn = max(open_ones, 1)  # it waits for its workflow as well
            if each.passed is None:
                assert each.waits == (open_ones if begun else before_its_turn)
            else:
                assert each.waits in (open_ones, before_its_turn)
            assert not (each.state in ("pending", "claimed", "completed") and each.waits)
            assert not (each.state == "blocked" and each.waits == 0)


@pytest.mark.parametrize("seed", range(6))
def test_after_any_sequence_of_operations_a_workflow_ends_and_a_retry_completes_it(
    app: Any, clock: Clock, seed: int
) -> None:
    course = Course(app, clock, seed)
    course.check()
    for _ in range(MOVES):
        course.move()
        course.check()
    course.run_out()
    while app.get_workflow(course.root).state != "completed":
        app.retry_workflow(course.root)
        course.check()
        course.run_out()
    report = verify(app.all_history(), tasks=app.list_tasks(limit=1000))
    assert report.ok, str(report)
