"""The last steps of workflows end concurrently and finalizers are killed: each workflow is finalized once.

Promise 8, with 2 to 5. Processors start workflows, finish their steps and finalize the workflows that are then due;
kill -9 may come at any point.
"""

from __future__ import annotations

from collections.abc import Iterator

import dibs
from dibs import Claim, Completed, Event, FinalizationLost, Finished, NewStep, NewTask, NewWorkflow
from dibs.model.finalization import ClaimReason
from tests.helpers.workflow_consistency import Books
from tests.stress.members import MAX_ATTEMPTS, PlainWorker, Role, let_go
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 0.5, 0.2


def play(stage: Stage) -> None:
    stage.tally.promised = LEASE + UPKEEP
    group = stage.start_processes(
        3, kind=f"{__spec__.name}:process", lease=LEASE, upkeep_every=UPKEEP, batch=4, mixed=False
    )
    for _ in stage.rounds():
        group.wait_for(stage.chance.randint(5, 15 if stage.short else 60))
        group.replace(group.kill())
        stage.tally.injected += 1
    stage.checks += [lambda _: Books(stage.database).wrong(), ended_once]


class Processor(PlainWorker):
    """A plain worker whose tasks are steps: it finalizes a workflow that a reply reports as due."""

    def send(self, count: int) -> None:
        self._sent += 1
        for number in range(count // 4):
            new = a_workflow(f"{self.name}-{self._sent}-{number}", self.chance.randint(1, 5))
            workflow = self.insist(lambda new=new: self.app.start_workflow(new))  # type: ignore[misc]
            self.replies.write("started", [workflow.id])

    def report(self, reports: list[tuple[Claim, Completed]]) -> None:  # type: ignore[override]
        answers = self.insist(lambda: self.app.finish(reports))
        ended = [claim for (claim, _), answer in zip(reports, answers, strict=True) if isinstance(answer, Finished)]
        self.replies.write(Event.COMPLETED, [(claim.task_id, claim.token) for claim in ended])
        for answer in answers:
            if isinstance(answer, Finished) and answer.finalize is not None:
                self.finalize(answer.finalize)

    def finalize(self, workflow_id: int) -> None:
        claim = self.insist(lambda: self.app.claim_finalization(workflow_id, self.name, LEASE))
        if claim.token is None:
            return
        token = claim.token
        try:
            finalized = self.insist(lambda: self.app.finalize(workflow_id, self.name, token))
        except FinalizationLost:
            return
        self.replies.write("finalized", [workflow_id])
        for due in finalized.due:
            self.finalize(due)


def a_workflow(key: str, width: int) -> NewWorkflow:
    """A workflow with this number of concurrent last steps and a finalizer; sometimes a step is a sub-workflow."""
    last = [NewStep(name=f"last-{n}", task=a_task(), after=["first"]) for n in range(width)]
    if width % 2:
        inner = NewWorkflow(name="inner", steps=[NewStep(name="only", task=a_task())], finalizer=a_task())
        last.append(NewStep(name="inner", workflow=inner, after=["first"]))
    first = NewStep(name="first", task=a_task())
    return NewWorkflow(name="outer", steps=[first, *last], finalizer=a_task(), key=key)


def a_task() -> NewTask:
    return NewTask("t", max_attempts=MAX_ATTEMPTS)


def ended_once(app: dibs.Dibs) -> Iterator[str]:
    """Each claim of a finalization had the next token, and the workflow was completed by the last one."""
    cursor: int | None = None
    while page := app.list_workflows(limit=1000, cursor=cursor):
        cursor = page[-1].id
        for workflow in page:
            tokens = [
                attempt.token
                for attempt in app.finalization_attempts(workflow.id)
                if attempt.reason is ClaimReason.CLAIMED
            ]
            if workflow.state != "completed" or not tokens or tokens != list(range(1, len(tokens) + 1)):
                yield f"workflow {workflow.id} is {workflow.state} after the finalization tokens {tokens}"


def process(role: Role) -> int:
    """Be a processor."""
    return let_go(Processor(role))


SCENARIO = Scenario(
    name="finalizers_killed",
    fault="last steps race, finalizers are killed with kill -9",
    promises=(2, 3, 4, 5, 8),
    engines=("sqlite", "postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
