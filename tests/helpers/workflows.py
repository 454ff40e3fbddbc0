"""Workflows run by single calls: started, their steps claimed and finished, and finalized when due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dibs import Claim, Completed, Failed, Failure, Finished, NewStep, NewTask, NewWorkflow, Outcome, Step, Workflow
from dibs.model.finalization import Finalized
from tests.helpers.clients import run

WORKER = "worker-1"
PROCESSOR = "processor-1"
BROKEN = Failed(Failure("Error", "broken"), permanent=True)


def step(name: str, *after: str, on_failure: str | None = None, **options: Any) -> NewStep:
    """A step whose task has the step's name for its type."""
    return NewStep(name=name, task=NewTask(name, **options), after=list(after), on_failure=on_failure)


def sub(name: str, *steps: NewStep, after: Sequence[str] = (), policy: str | None = None, **about: Any) -> NewStep:
    """A step that is a workflow. `policy`: what its failure means to the workflow around it."""
    return NewStep(
        name=name, workflow=NewWorkflow(name=name, steps=steps, **about), after=list(after), on_failure=policy
    )


def start(app: Any, *steps: NewStep, name: str = "order", **about: Any) -> int:
    """The id of a new workflow of these steps."""
    workflow: Workflow = app.start_workflow(NewWorkflow(name=name, steps=steps, **about))
    return workflow.id


DIAMOND = (step("fetch"), step("left", "fetch"), step("right", "fetch"), step("merge", "left", "right"))


def by_name(app: Any, workflow_id: int) -> dict[str, Step]:
    """The workflow's steps."""
    return {each.name: each for each in app.steps(workflow_id)}


def states(app: Any, workflow_id: int) -> dict[str, str]:
    """How the workflow's steps stand."""
    return {each.name: each.state.value for each in app.steps(workflow_id)}


def state(app: Any, workflow_id: int) -> str:
    """How the workflow stands."""
    return str(app.get_workflow(workflow_id).state.value)


def task_of(app: Any, workflow_id: int, name: str) -> int:
    """The task of a step."""
    return by_name(app, workflow_id)[name].task_id


def inner(app: Any, workflow_id: int, name: str) -> int:
    """The sub-workflow of this step."""
    found = by_name(app, workflow_id)[name].workflow_id
    assert found is not None
    return found


def claim(app: Any, workflow_id: int, name: str, worker_id: str = WORKER) -> Claim:
    """A claim of this step."""
    held: Claim = app.claim_by_id(task_of(app, workflow_id, name), worker_id)
    return held


def complete(app: Any, workflow_id: int, name: str, result: Any = None, *, steps: Sequence[NewStep] = ()) -> Finished:
    """This step is done."""
    done: Finished = app.complete(claim(app, workflow_id, name), result, steps=steps)
    return done


def fail(app: Any, workflow_id: int, name: str, error: str = "broken") -> Finished:
    """This step has failed for good."""
    done: Finished = app.fail(claim(app, workflow_id, name), error, permanent=True)
    return done


def due(app: Any) -> list[int]:
    """The workflows that wait for their finalization."""
    return run(app, app._store.finalization.due_finalizations())


def finalize(app: Any, workflow_id: int, processor: str = PROCESSOR) -> Finalized:
    """What came of the workflow's finalization."""
    answer = app.claim_finalization(workflow_id, processor)
    assert answer.claimed, answer
    done: Finalized = app.finalize(workflow_id, processor, answer.token)
    return done


def finalize_due(app: Any) -> list[Finalized]:
    """Finalize what waits for it, and what waits for it because of that."""
    done: list[Finalized] = []
    while ids := due(app):
        done += [finalize(app, workflow_id) for workflow_id in ids]
    return done


def drive(app: Any, outcomes: Mapping[str, Outcome] | None = None) -> list[list[str]]:
    """Run everything to its end: round by round all that can be claimed, each step to the outcome named for its type or
    completed with its type as the result, then the finalizations. The types of each round, sorted."""
    rounds: list[list[str]] = []
    said = outcomes or {}
    while True:
        claims = app.claim_many(WORKER, 1000)
        if claims:
            answers = app.finish([(held, said.get(held.task.type, Completed(held.task.type))) for held in claims])
            assert all(isinstance(answer, Finished) for answer in answers), answers
            rounds.append(sorted(held.task.type for held in claims))
        elif not finalize_due(app):
            return rounds
