"""How the steps of a workflow ended: what a finalizer reads, and what the error of a failed workflow names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dibs.errors import DibsError
from dibs.model.task import Failure, State
from dibs.model.workflow import FINALIZER_NAME, Step, StepKind, Workflow, WorkflowState

NAMED = 5
"""The largest number of failed steps that the message of an error names."""


class StepEnd(msgspec.Struct, frozen=True):
    """The end of one step. `ignored`: the step did not complete, and its children have run all the same.

    `started`: a worker has claimed it. `error` is without its traceback, which the task has.
    """

    task_id: int
    name: str
    state: State
    ignored: bool = False
    started: bool = True
    error: Failure | None = None


class Execution(msgspec.Struct, frozen=True):
    """How the steps of a workflow ended, without its finalizer.

    `state`: how the workflow ends: completed, failed or cancelled. While steps are running: running. `stopping`: why no
    further step has started ("failed", "cancelled", "deadline"); None if none was held back. `error`: of the workflow.
    """

    workflow_id: int
    name: str
    state: WorkflowState
    stopping: str | None
    error: Failure | None
    steps: list[StepEnd]

    @classmethod
    def of(cls, workflow: Workflow, steps: Sequence[Step]) -> Execution:
        """The execution of this workflow, whose steps are these."""
        return cls(
            workflow_id=workflow.id,
            name=workflow.name,
            state=workflow.ends_as,
            stopping=workflow.stopping,
            error=_brief(workflow.error),
            steps=[_end_of(step) for step in steps if step.kind is not StepKind.FINALIZER],
        )

    @property
    def completed(self) -> list[str]:
        """The names of the completed steps, in the order in which they were added."""
        return [step.name for step in self.steps if step.state is State.COMPLETED]

    @property
    def failed(self) -> dict[str, Failure]:
        """The errors of the failed steps, by name, without the steps whose failure is ignored."""
        return {step.name: _error_of(step) for step in self.steps if step.state is State.FAILED and not step.ignored}

    @property
    def ignored(self) -> dict[str, Failure]:
        """The errors of the steps whose failure or cancellation is ignored, by name."""
        return {step.name: _error_of(step) for step in self.steps if step.ignored}

    @property
    def cancelled(self) -> list[str]:
        """The names of the steps that were cancelled after a worker had started them."""
        return [step.name for step in self._cancelled if step.started]

    @property
    def skipped(self) -> list[str]:
        """The names of the steps that were cancelled before any worker started them."""
        return [step.name for step in self._cancelled if not step.started]

    @property
    def _cancelled(self) -> list[StepEnd]:
        return [step for step in self.steps if step.state is State.CANCELLED and not step.ignored]


class WorkflowFailed(DibsError):
    """The result of a workflow that has failed or was cancelled was read. `execution`: how its steps ended."""

    code = "workflow_failed"

    def __init__(self, message: str, *, execution: Execution, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.workflow_id = execution.workflow_id
        self.execution = execution


def workflow_failed(execution: Execution) -> WorkflowFailed:
    """The error: the workflow has no result, with the first failed steps and their errors."""
    failed = [step for step in execution.steps if step.state is State.FAILED and not step.ignored]
    causes = [f"step {step.name!r} (task {step.task_id}): {_text(step.error)}" for step in failed[:NAMED]]
    if len(failed) > NAMED:
        causes.append(f"and {len(failed) - NAMED:,} more")
    if not failed and execution.error is not None:
        causes = [_text(execution.error)]
    what = f"Workflow {execution.workflow_id} ({execution.name}) "
    what += "was cancelled" if execution.state is WorkflowState.CANCELLED else "failed"
    hint = f"app.retry_workflow({execution.workflow_id}) runs the failed and cancelled steps again."
    return WorkflowFailed(f"{what}: {'; '.join(causes)}" if causes else f"{what}.", execution=execution, hint=hint)


def result_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps whose results are the result of a completed workflow: its finalizer if that has run, else all steps."""
    finalizer = [step for step in steps if step.name == FINALIZER_NAME and step.state is State.COMPLETED]
    return finalizer or [step for step in steps if step.kind is not StepKind.FINALIZER]


def _end_of(step: Step) -> StepEnd:
    return StepEnd(
        task_id=step.task_id,
        name=step.name,
        state=step.state,
        ignored=step.state in (State.FAILED, State.CANCELLED) and bool(step.passed),
        started=step.claimed_at is not None or step.attempts > 0,
        error=_brief(step.error),
    )


def _error_of(step: StepEnd) -> Failure:
    return step.error or Failure("Cancelled", "The step was cancelled.")


def _brief(error: Failure | None) -> Failure | None:
    return None if error is None else msgspec.structs.replace(error, traceback=None)


def _text(error: Failure | None) -> str:
    return "without an error" if error is None else f"{error.type}: {error.message}"
