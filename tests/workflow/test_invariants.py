"""After any sequence of operations on workflows the counters are right, and every workflow ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from dibs import Failure, InvalidGraph, InvalidValue, TaskNotFound, WrongState
from dibs.errors import WorkflowNotFound, WrongWorkflowState
from dibs.model.claim import Cancelled, Claim, ClaimRequest, Completed, Failed, Outcome, Released
from dibs.model.search import DeadFilter
from dibs.model.task import NewTask
from dibs.model.workflow import NewStep, NewWorkflow, OnFailure
from dibs.store.contract import Store
from dibs.store.open import open_store
from tests import matrix
from tests.helpers.clients import Clock
from tests.helpers.retention import keep_in
from tests.helpers.workflow_consistency import OPEN, Books

SEEDS = range(12 if matrix.is_stress() else 5)
MOVES = 40
REFUSED = (WrongState, WrongWorkflowState, InvalidGraph, WorkflowNotFound, TaskNotFound)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_counters_are_right_after_every_operation_and_every_workflow_ends(
    seed: int, url: str, clock: Clock
) -> None:
    game = Game(url, clock, Random(seed))
    for _ in range(MOVES):
        game.move()
    game.play_on_to_the_end()
    game.store.close()


class Game:
    """A client that does any operation at any time; `told` lists the operations, for the report of a failure."""

    def __init__(self, url: str, clock: Clock, chance: Random) -> None:
        self.url, self.clock, self.chance = url, clock, chance
        self.store: Store = open_store(url, clock=clock)
        keep_in(self.store, completed=20, cancelled=20, failed=20)  # and so there are tables to look at
        self.held: list[Claim] = []
        self.told: list[str] = []
        self.numbers = iter(range(10**6))

    def move(self) -> None:
        moves: dict[Callable[[], Any], float] = {
            self.start: 1.0 if self.books.workflows else 100.0,
            self.claim: 6,
            self.finish: 8,
            self.finalize: 4,
            self.let_time_pass: 2,
            self.manage_a_workflow: 2.5,
            self.manage_a_step: 3,
            self.add: 1,
            self.run_upkeep: 4,
        }
        move = self.chance.choices(list(moves), list(moves.values()))[0]
        try:
            self.tell(f"{move.__name__}: {move()}")
        except REFUSED as refusal:
            self.tell(f"{move.__name__}: {refusal}")

    def tell(self, what: str) -> None:
        self.told.append(what)
        wrong = self.books.wrong()
        assert not wrong, "\n".join([*self.told, *wrong])

    @property
    def books(self) -> Books:
        return Books(self.url)

    # Moves

    def start(self) -> Any:
        return self.store.run(self.store.workflows.start_workflow(self.any_workflow(2))).id

    def claim(self, count: int = 4) -> Any:
        request = ClaimRequest(worker_id="w", count=count, lease=10.0)
        claims = self.store.run(self.store.queue.claim(request))
        self.held += claims
        return [claim.task_id for claim in claims]

    def finish(self) -> Any:
        some = [self.held.pop(self.chance.randrange(len(self.held))) for _ in self.held[:4]]
        reports = [(claim, self.any_outcome(claim)) for claim in some]
        answers = self.store.run(self.store.queue.finish(reports))
        self.held += [claim for claim, answer in zip(some, answers, strict=True) if isinstance(answer, InvalidValue)]
        return [(claim.task_id, type(outcome).__name__) for claim, outcome in reports], answers

    def finalize(self) -> Any:
        done = []
        for workflow_id in self.store.run(self.store.finalization.due_finalizations()):
            claim = self.store.run(self.store.finalization.claim_finalization(workflow_id, "p", 30_000_000))
            assert claim.token is not None, claim
            done.append(self.store.run(self.store.finalization.finalize(workflow_id, "p", claim.token)))
        return done

    def let_time_pass(self) -> None:
        self.clock.advance(self.chance.choice([1, 6, 12, 40]))

    def manage_a_workflow(self) -> Any:
        workflow_id = self.chance.choice([*self.books.workflows, 0])
        verb = self.chance.choice(
            [
                self.store.workflows.cancel_workflow,
                self.store.workflows.retry_workflow,
                self.store.workflows.retry_workflow,
            ]
        )
        return self.store.run(verb(workflow_id)).state

    def manage_a_step(self) -> Any:
        task_id = self.chance.choice([*self.books.steps, 0])
        verb = self.chance.choice([self.store.tasks.cancel, self.store.tasks.retry])
        return task_id, self.store.run(verb(task_id)).state

    def add(self) -> Any:
        workflow_id = self.chance.choice([*self.books.workflows, 0])
        steps = self.after_something(workflow_id, self.any_steps(1, self.chance.randint(1, 2)))
        return self.store.run(self.store.workflows.add_steps(workflow_id, steps)).id

    def run_upkeep(self) -> Any:
        chores: list[Callable[[], Any]] = [
            self.store.upkeep.promote,
            self.store.upkeep.recover,
            self.store.upkeep.expire_workflows,
            lambda: self.store.upkeep.prune(limit=self.chance.choice([2, 500])),
            lambda: self.store.tasks.redrive_some(DeadFilter(), 5),
        ]
        assert self.store.run(self.store.upkeep.mend_workflows()) == 0
        return self.store.run(self.chance.choice(chores)())

    # Chance

    def any_workflow(self, depth: int) -> NewWorkflow:
        return NewWorkflow(
            name="w",
            steps=self.any_steps(depth, self.chance.randint(0, 5)),
            finalizer=self.any_task() if self.chance.random() < 0.4 else None,
            on_failure=self.chance.choice(list(OnFailure)),
            deadline=self.chance.choice([None, None, None, 30, 100]),
        )

    def any_steps(self, depth: int, count: int) -> list[NewStep]:
        steps: list[NewStep] = []
        for _ in range(count):
            after = [step.name for step in steps if self.chance.random() < 0.3]
            inner = self.any_workflow(depth - 1) if depth and self.chance.random() < 0.25 else None
            task = self.any_task() if inner is None else None
            policy = self.chance.choice([None, None, *OnFailure])
            name = f"s{next(self.numbers)}"
            steps.append(NewStep(name=name, task=task, workflow=inner, after=after, on_failure=policy))
        return steps

    def any_task(self) -> NewTask:
        queue, attempts = self.chance.choice(["a", "a", "a", "b", "c"]), self.chance.choice([1, 1, 2, 3])
        return NewTask("t", queue=queue, max_attempts=attempts, delay=self.chance.choice([None, None, 5]))

    def any_outcome(self, claim: Claim) -> Outcome:
        which = self.chance.random()
        if which < 0.15:
            steps = self.after_something(claim.task.workflow_id, self.any_steps(1, self.chance.randint(1, 3)))
            return Completed(None, steps)
        if which < 0.6:
            return Completed({"n": 1})
        if which < 0.9:
            return Failed(Failure("E", "as always"), permanent=self.chance.random() < 0.5)
        return self.chance.choice([Released(), Cancelled()])

    def after_something(self, workflow_id: int | None, steps: list[NewStep]) -> Sequence[NewStep]:
        """Half of the time, the first of them is also after a step that the workflow has already."""
        names = [step["name"] for step in self.books.of[workflow_id or 0] if step["kind"] != "finalizer"]
        if names and self.chance.random() < 0.5:
            steps[0] = msgspec.structs.replace(steps[0], after=[*steps[0].after, self.chance.choice(names)])
        return steps

    # The end

    def play_on_to_the_end(self) -> None:
        """From now on everything is completed."""
        for _ in range(200):
            if not any(workflow["state"] in OPEN for workflow in self.books.workflows.values()):
                return
            self.clock.advance(6)
            for chore in (self.store.upkeep.promote, self.store.upkeep.recover, self.store.upkeep.expire_workflows):
                self.store.run(chore())
            self.claim(100)
            self.store.run(self.store.queue.finish([(claim, Completed()) for claim in self.held]))
            self.held.clear()
            self.tell(f"play on: {self.finalize()}")
        raise AssertionError("\n".join([*self.told, "It never ends."]))
