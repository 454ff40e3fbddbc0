"""Workflows as JSON: start, add steps, list, and read workflows, steps and results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, field

from dibs.errors import InvalidGraph
from dibs.json_values import MAX_DEPTH
from dibs.model import execution as model_execution
from dibs.model import workflow as model_workflow
from dibs.model.claim import MAX_BATCH
from dibs.model.construct import constructor
from dibs.model.task import NewTask, State
from dibs.model.workflow import (
    FinalizeWhen,
    NewStep,
    NewWorkflow,
    OnFailure,
    StepKind,
    WorkflowFilter,
    WorkflowState,
    free_name,
)
from dibs.wire.fields import (
    IdempotencyKey,
    Moment,
    Name,
    Query,
    RequestBody,
    TaskTypeName,
    Timeout,
    Timestamp,
    not_both,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
    utc,
    utc_or_none,
)
from dibs.wire.tasks import BackoffBody, Failure, TaskOptions, checked_params

# A graph to start

Policy = Annotated[
    OnFailure,
    Meta(description="fail: start no more steps; continue: independent steps still run; ignore: as if completed."),
]
When = Annotated[
    FinalizeWhen,
    Meta(
        description="success: the finalizer runs if all steps have passed; failure: if a step failed, or the workflow"
        " was cancelled or passed its deadline; always: in both cases."
    ),
]
Parents = Annotated[list[Name], Meta(description="The names of its parents, each once.")]
Deadline = Annotated[Timeout, Meta(description="Seconds until the remaining steps are stopped and the workflow fails.")]

_GIVEN = {"not": {"type": "null"}}
_OPTIONS = msgspec.structs.fields(TaskOptions)


def _no_options() -> dict[str, Any]:
    """The schema of options with their default values: the steps of the sub-workflow have their own options."""
    plain = msgspec.to_builtins({option.encode_name: _default(option) for option in _OPTIONS})
    return {"properties": {name: {"const": value} for name, value in plain.items()}}


def _default(option: Any) -> Any:
    return option.default if option.default_factory is msgspec.NODEFAULT else option.default_factory()


class FinalizerBody(TaskOptions, frozen=True, kw_only=True):
    """A task that runs once, after all steps."""

    type: TaskTypeName = field(name="task_type")

    @classmethod
    def from_model(cls, task: NewTask) -> FinalizerBody:
        """The task to send; params that dibs does not store are refused."""
        return _body_of_finalizer(task)

    def to_model(self) -> NewTask:
        """The task, checked."""
        return self.of_type(self.type)


_body_of_finalizer = constructor(
    FinalizerBody,
    source=NewTask,
    params=checked_params,
    run_at=utc,
    expires_at=utc,
    backoff=BackoffBody.from_model,
    tags=list,
    limits=list,
)


class StepBody(TaskOptions, frozen=True):
    """A step: a task or a sub-workflow that begins when its parents are completed."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        *TaskOptions.rules,
        not_both("task_type", "workflow"),
        {
            "if": {"required": ["workflow"], "properties": {"workflow": _GIVEN}},
            "then": _no_options(),
            "else": {"required": ["task_type"], "properties": {"task_type": _GIVEN}},
        },
    )

    type: TaskTypeName | None = field(name="task_type", default=None)
    workflow: Annotated[SubWorkflowBody, Meta(description="A sub-workflow, instead of a task.")] | None = None
    name: Annotated[Name, Meta(description="By default the task type, with -2, -3 … if that is taken.")] | None = None
    after: Parents = field(default_factory=list)
    on_failure: Policy | None = None

    def __post_init__(self) -> None:
        if (self.type is None) == (self.workflow is None):
            raise ValueError("A step has either a task_type or a workflow")
        if self.workflow is not None and any(getattr(self, option.name) != _default(option) for option in _OPTIONS):
            raise ValueError("A step that is a workflow has no options of a task: its own steps have them")
        if self.delay is not None and self.run_at is not None:
            raise ValueError("Give either delay_seconds or run_at, not both")

    @classmethod
    def from_model(cls, step: NewStep) -> StepBody:
        """The step to send; params that dibs does not store are refused."""
        after = list(step.after)
        on_failure = None if step.on_failure is None else OnFailure(step.on_failure)
        if step.task is not None:
            return _body_of_step(step.task, None, step.name, after, on_failure)
        assert step.workflow is not None
        return cls(
            workflow=SubWorkflowBody.from_model(step.workflow), name=step.name, after=after, on_failure=on_failure
        )

    def to_model(self, name: str, depth: int) -> NewStep:
        """The step under this name, checked."""
        task = None if self.type is None else self.of_type(self.type)
        workflow = None if self.workflow is None else self.workflow.to_model(depth + 1)
        return NewStep(name=name, task=task, workflow=workflow, after=self.after, on_failure=self.on_failure)


class SubWorkflowBody(RequestBody, frozen=True):
    """A named graph of steps."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (not_both("deadline_seconds", "deadline_at"),)

    name: Annotated[Name, Meta(description="The name of the workflow; it need not be unique.")]
    steps: Annotated[list[StepBody], Meta(description="Its steps, in any order.")]
    finalizer: Annotated[FinalizerBody, Meta(description="A task that runs once, after all steps.")] | None = None
    finalize_when: When = FinalizeWhen.SUCCESS
    on_failure: Policy = OnFailure.FAIL
    deadline_seconds: Deadline | None = None
    deadline_at: Annotated[Moment, Meta(description="The deadline as a time, instead of seconds.")] | None = None

    def __post_init__(self) -> None:
        if self.deadline_seconds is not None and self.deadline_at is not None:
            raise ValueError("Give either deadline_seconds or deadline_at, not both")

    @classmethod
    def from_model(cls, new: NewWorkflow) -> Self:
        """The graph to send; params that dibs does not store are refused."""
        return cls(**_graph(new))

    def to_model(self, depth: int = 0) -> NewWorkflow:
        """The workflow, checked."""
        return self._graph(depth)

    def _graph(self, depth: int, key: str | None = None) -> NewWorkflow:
        if depth >= MAX_DEPTH:
            raise InvalidGraph(f"The workflow {self.name!r} is nested deeper than {MAX_DEPTH} levels.")
        return NewWorkflow(
            name=self.name,
            steps=steps_of(self.steps, depth=depth),
            finalizer=None if self.finalizer is None else self.finalizer.to_model(),
            finalize_when=self.finalize_when,
            key=key,
            on_failure=self.on_failure,
            deadline=self.deadline_at if self.deadline_seconds is None else self.deadline_seconds,
        )


class WorkflowBody(SubWorkflowBody, frozen=True):
    """A workflow to start."""

    key: IdempotencyKey | None = field(name="idempotency_key", default=None)

    @classmethod
    def from_model(cls, new: NewWorkflow) -> Self:
        """The workflow to send; params that dibs does not store are refused."""
        return cls(**_graph(new), key=new.key)

    def to_model(self, depth: int = 0) -> NewWorkflow:
        """The workflow, checked."""
        return self._graph(depth, self.key)


_body_of_step = constructor(
    StepBody,
    source=NewTask,
    also=("workflow", "name", "after", "on_failure"),
    params=checked_params,
    run_at=utc,
    expires_at=utc,
    backoff=BackoffBody.from_model,
    tags=list,
    limits=list,
)


def _graph(new: NewWorkflow) -> dict[str, Any]:
    at = new.deadline if isinstance(new.deadline, datetime) else None
    return {
        "name": new.name,
        "steps": [StepBody.from_model(step) for step in new.steps],
        "finalizer": None if new.finalizer is None else FinalizerBody.from_model(new.finalizer),
        "finalize_when": FinalizeWhen(new.finalize_when),
        "on_failure": OnFailure(new.on_failure),
        "deadline_seconds": None if at is not None else new.deadline,
        "deadline_at": utc_or_none(at),
    }


def steps_of(bodies: Sequence[StepBody], known: Collection[str] = (), depth: int = 0) -> list[NewStep]:
    """The steps, checked; `known`: names that are already taken."""
    names = _names(bodies, known)
    return [body.to_model(name, depth) for body, name in zip(bodies, names, strict=True)]


def _names(bodies: Sequence[StepBody], known: Collection[str]) -> Iterator[str]:
    taken = {*known, *(body.name for body in bodies if body.name is not None)}
    numbers: dict[str, int] = {}
    for body in bodies:
        name = body.name or free_name(_base_name(body), taken, numbers)
        taken.add(name)
        yield name


def _base_name(body: StepBody) -> str:
    return body.type or (body.workflow.name if body.workflow is not None else "step")


class MoreStepsBody(RequestBody, frozen=True):
    """Steps to add."""

    steps: Annotated[
        list[StepBody],
        Meta(
            min_length=1, max_length=MAX_BATCH, description="Parents can be other new steps, or steps of the workflow."
        ),
    ]

    @classmethod
    def from_model(cls, steps: Sequence[NewStep]) -> Self:
        """The steps to send."""
        return cls(steps=[StepBody.from_model(step) for step in steps])

    def to_model(self, known: Collection[str] = ()) -> list[NewStep]:
        """The steps, checked; `known`: names that are already taken."""
        return steps_of(self.steps, known)


# Stored workflows


class Finalization(msgspec.Struct, frozen=True):
    """The claim of a finalization: its processor, token and lease. `token` grows by one with every claim."""

    token: int
    processor: str | None = field(name="processor_id")
    lease_until: Timestamp | None


class Workflow(msgspec.Struct, frozen=True):
    """A workflow."""

    id: int
    name: str
    state: WorkflowState = field(name="status")
    steps: Annotated[int, Meta(description="The number of steps, without the finalizer.")]
    active: Annotated[int, Meta(description="The number of steps that run or can run.")]
    ended: Annotated[int, Meta(description="The number of steps that are completed, failed or cancelled.")]
    failures: Annotated[int, Meta(description="The number of steps that failed or were cancelled and are not ignored.")]
    completion_percentage: Annotated[float, Meta(description="The percentage of steps that have passed.")]
    created_at: Timestamp
    finished_at: Timestamp | None
    deadline: Annotated[
        Timestamp | None, Meta(description="The time at which the remaining steps are stopped and the workflow fails.")
    ]
    key: str | None = field(name="idempotency_key")
    on_failure: Annotated[OnFailure, Meta(description="The policy after the failure of a step.")]
    stopping: Annotated[str | None, Meta(description="Why no more steps are started: failed, cancelled or deadline.")]
    error: Annotated[Failure | None, Meta(description="The error of a failed workflow.")]
    queues: Annotated[list[str], Meta(description="The queues of its tasks.")]
    step_of: Annotated[int | None, Meta(description="The step that represents the workflow in its outer workflow.")]
    root_id: Annotated[int, Meta(description="The outermost workflow; its own id without an outer workflow.")]
    finalizer_id: Annotated[int | None, Meta(description="The task that runs once, after all steps.")]
    finalize_when: When
    finalization: Finalization

    @classmethod
    def from_model(cls, workflow: model_workflow.Workflow) -> Self:
        """The workflow as JSON."""
        return cls(
            id=workflow.id,
            name=workflow.name,
            state=workflow.state,
            steps=workflow.steps,
            active=workflow.active,
            ended=workflow.ended,
            failures=workflow.failures,
            completion_percentage=_percentage(workflow),
            created_at=to_text(workflow.created_at),
            finished_at=to_text_or_none(workflow.finished_at),
            deadline=to_text_or_none(workflow.deadline),
            key=workflow.key,
            on_failure=workflow.on_failure,
            stopping=workflow.stopping,
            error=None if workflow.error is None else Failure.from_model(workflow.error),
            queues=workflow.queues,
            step_of=workflow.step_of,
            root_id=workflow.root_id,
            finalizer_id=workflow.finalizer_id,
            finalize_when=workflow.finalize_when,
            finalization=Finalization(
                token=workflow.finalization_token,
                processor=workflow.finalization_by,
                lease_until=to_text_or_none(workflow.finalization_until),
            ),
        )

    def to_model(self, deduplicated: bool = False) -> model_workflow.Workflow:
        """The workflow."""
        return model_workflow.Workflow(
            id=self.id,
            name=self.name,
            state=self.state,
            steps=self.steps,
            active=self.active,
            ended=self.ended,
            failures=self.failures,
            created_at=to_datetime(self.created_at),
            queues=self.queues,
            root_id=self.root_id,
            key=self.key,
            deadline=to_datetime_or_none(self.deadline),
            finished_at=to_datetime_or_none(self.finished_at),
            on_failure=self.on_failure,
            stopping=self.stopping,
            error=None if self.error is None else self.error.to_model(),
            step_of=self.step_of,
            finalizer_id=self.finalizer_id,
            finalize_when=self.finalize_when,
            finalization_token=self.finalization.token,
            finalization_by=self.finalization.processor,
            finalization_until=to_datetime_or_none(self.finalization.lease_until),
            deduplicated=deduplicated,
        )


def _percentage(workflow: model_workflow.Workflow) -> float:
    return round(100 * (workflow.ended - workflow.failures) / workflow.steps, 1) if workflow.steps else 100.0


class WorkflowPage(msgspec.Struct, frozen=True):
    """A page of a list; `next_cursor` is null on the last page."""

    workflows: list[Workflow]
    cursor: int | None = field(name="next_cursor")

    @classmethod
    def from_models(cls, workflows: Sequence[model_workflow.Workflow], limit: int) -> Self:
        """The workflows as a page. A full page has a next page."""
        cursor = workflows[-1].id if len(workflows) == limit else None
        return cls(workflows=[Workflow.from_model(workflow) for workflow in workflows], cursor=cursor)

    def to_model(self) -> list[model_workflow.Workflow]:
        """The workflows."""
        return [workflow.to_model() for workflow in self.workflows]


class WorkflowsQuery(Query, frozen=True):
    """Which workflows to list."""

    state: Annotated[WorkflowState, Meta(description="Only workflows in this state.")] | None = field(
        name="status", default=None
    )
    name: Annotated[Name, Meta(description="Only workflows of this name.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_BATCH, description="Workflows on a page.")] = 100
    cursor: Annotated[int, Meta(ge=0, le=2**63 - 1, description="`next_cursor` of the page before.")] | None = None

    @classmethod
    def from_model(cls, which: WorkflowFilter) -> Self:
        """The filters to send; the server knows the queues of its caller."""
        state = None if which.state is None else WorkflowState(which.state)
        return cls(state=state, name=which.name, limit=which.limit, cursor=which.cursor)

    def to_model(self, only: Sequence[str] | None) -> WorkflowFilter:
        """The filters, checked. `only`: the queues that the caller is limited to, or None."""
        return WorkflowFilter(state=self.state, name=self.name, limit=self.limit, cursor=self.cursor, only=only)


class OneWorkflow(msgspec.Struct, frozen=True):
    """A workflow."""

    workflow: Workflow

    @classmethod
    def from_model(cls, workflow: model_workflow.Workflow) -> Self:
        """The workflow as an answer."""
        return cls(workflow=Workflow.from_model(workflow))

    def to_model(self) -> model_workflow.Workflow:
        """The workflow."""
        return self.workflow.to_model()


class ChangedWorkflow(msgspec.Struct, frozen=True):
    """The workflow as it is now."""

    success: bool
    workflow: Workflow

    @classmethod
    def from_model(cls, workflow: model_workflow.Workflow) -> Self:
        """The workflow as an answer."""
        return cls(success=True, workflow=Workflow.from_model(workflow))

    def to_model(self) -> model_workflow.Workflow:
        """The workflow."""
        return self.workflow.to_model()


class StartedWorkflow(msgspec.Struct, frozen=True):
    """The stored workflow. `deduplicated`: the idempotency key was used before, and this is the workflow that has
    it."""

    success: bool
    workflow: Workflow
    deduplicated: bool

    @classmethod
    def from_model(cls, workflow: model_workflow.Workflow) -> Self:
        """The workflow as an answer."""
        return cls(success=True, workflow=Workflow.from_model(workflow), deduplicated=workflow.deduplicated)

    def to_model(self) -> model_workflow.Workflow:
        """The workflow."""
        return self.workflow.to_model(self.deduplicated)


# Stored steps


class Step(msgspec.Struct, frozen=True):
    """A step of a workflow: the fields of its task that the workflow needs."""

    task_id: int
    name: str
    kind: StepKind
    type: str = field(name="task_type")
    queue: str
    state: State = field(name="status")
    attempts: int
    max_attempts: int
    after: Annotated[list[int], Meta(description="The task ids of its parents.")]
    waits: Annotated[int, Meta(description="The number of parents that it still waits for.")]
    on_failure: OnFailure
    passed: Annotated[bool | None, Meta(description="Whether its children can start; null until the step has ended.")]
    worker_id: str | None
    claimed_at: Timestamp | None
    finished_at: Timestamp | None
    error: Failure | None
    workflow_id: Annotated[int | None, Meta(description="The sub-workflow that the step represents, if it does.")]

    @classmethod
    def from_model(cls, step: model_workflow.Step) -> Self:
        """The step as JSON."""
        return cls(
            task_id=step.task_id,
            name=step.name,
            kind=step.kind,
            type=step.type,
            queue=step.queue,
            state=step.state,
            attempts=step.attempts,
            max_attempts=step.max_attempts,
            after=step.after,
            waits=step.waits,
            on_failure=step.on_failure,
            passed=step.passed,
            worker_id=step.worker_id,
            claimed_at=to_text_or_none(step.claimed_at),
            finished_at=to_text_or_none(step.finished_at),
            error=None if step.error is None else Failure.from_model(step.error),
            workflow_id=step.workflow_id,
        )

    def to_model(self) -> model_workflow.Step:
        """The step."""
        return model_workflow.Step(
            task_id=self.task_id,
            name=self.name,
            kind=self.kind,
            type=self.type,
            queue=self.queue,
            state=self.state,
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            after=self.after,
            waits=self.waits,
            on_failure=self.on_failure,
            passed=self.passed,
            worker_id=self.worker_id,
            claimed_at=to_datetime_or_none(self.claimed_at),
            finished_at=to_datetime_or_none(self.finished_at),
            error=None if self.error is None else self.error.to_model(),
            workflow_id=self.workflow_id,
        )


class Steps(msgspec.Struct, frozen=True):
    """The steps of a workflow."""

    steps: list[Step]

    @classmethod
    def from_model(cls, steps: Sequence[model_workflow.Step]) -> Self:
        """The steps as an answer."""
        return cls(steps=[Step.from_model(step) for step in steps])

    def to_model(self) -> list[model_workflow.Step]:
        """The steps."""
        return [step.to_model() for step in self.steps]


class StepResult(msgspec.Struct, frozen=True):
    """The outcome of a parent: its result, or its error if its failure is ignored."""

    task_id: int
    name: str
    type: str = field(name="task_type")
    state: State = field(name="status")
    result: Any
    error: Failure | None

    @classmethod
    def from_model(cls, found: model_workflow.StepResult) -> Self:
        """The result as JSON."""
        return cls(
            task_id=found.task_id,
            name=found.name,
            type=found.type,
            state=found.state,
            result=found.result,
            error=None if found.error is None else Failure.from_model(found.error),
        )

    def to_model(self) -> model_workflow.StepResult:
        """The result."""
        return model_workflow.StepResult(
            task_id=self.task_id,
            name=self.name,
            type=self.type,
            state=self.state,
            result=self.result,
            error=None if self.error is None else self.error.to_model(),
        )


class Results(msgspec.Struct, frozen=True):
    """The results of the parents of a step."""

    results: list[StepResult]

    @classmethod
    def from_model(cls, results: Sequence[model_workflow.StepResult]) -> Self:
        """The results as an answer."""
        return cls(results=[StepResult.from_model(each) for each in results])

    def to_model(self) -> list[model_workflow.StepResult]:
        """The results."""
        return [each.to_model() for each in self.results]


class StepEnd(msgspec.Struct, frozen=True):
    """The end of one step."""

    task_id: int
    name: str
    state: State = field(name="status")
    ignored: Annotated[bool, Meta(description="It did not complete, and its children have run all the same.")]
    started: Annotated[bool, Meta(description="A worker has claimed it.")]
    error: Failure | None

    @classmethod
    def from_model(cls, step: model_execution.StepEnd) -> Self:
        """The step as JSON."""
        return cls(
            task_id=step.task_id,
            name=step.name,
            state=step.state,
            ignored=step.ignored,
            started=step.started,
            error=None if step.error is None else Failure.from_model(step.error),
        )

    def to_model(self) -> model_execution.StepEnd:
        """The step."""
        return model_execution.StepEnd(
            task_id=self.task_id,
            name=self.name,
            state=self.state,
            ignored=self.ignored,
            started=self.started,
            error=None if self.error is None else self.error.to_model(),
        )


class Execution(msgspec.Struct, frozen=True):
    """How the steps of a workflow ended, without its finalizer."""

    workflow_id: int
    name: str
    state: Annotated[WorkflowState, Meta(description="How the workflow ends, as far as that is decided.")] = field(
        name="status"
    )
    stopping: Annotated[str | None, Meta(description="Why no more steps were started: failed, cancelled or deadline.")]
    error: Annotated[Failure | None, Meta(description="The error of the workflow.")]
    steps: list[StepEnd]

    @classmethod
    def from_model(cls, execution: model_execution.Execution) -> Self:
        """The execution as an answer."""
        return cls(
            workflow_id=execution.workflow_id,
            name=execution.name,
            state=execution.state,
            stopping=execution.stopping,
            error=None if execution.error is None else Failure.from_model(execution.error),
            steps=[StepEnd.from_model(step) for step in execution.steps],
        )

    def to_model(self) -> model_execution.Execution:
        """The execution."""
        return model_execution.Execution(
            workflow_id=self.workflow_id,
            name=self.name,
            state=self.state,
            stopping=self.stopping,
            error=None if self.error is None else self.error.to_model(),
            steps=[step.to_model() for step in self.steps],
        )


class OneExecution(msgspec.Struct, frozen=True):
    """The execution of one workflow."""

    execution: Execution

    @classmethod
    def from_model(cls, execution: model_execution.Execution) -> Self:
        """The execution as an answer."""
        return cls(execution=Execution.from_model(execution))

    def to_model(self) -> model_execution.Execution:
        """The execution."""
        return self.execution.to_model()
