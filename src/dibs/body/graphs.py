"""A graph in JSON: steps by name, each a task or a whole workflow, with names made up for those that have none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from dibs.body.fields import Body, Key, Moment, Name, TaskTypeName, Timeout, not_both
from dibs.body.tasks import TaskOptions
from dibs.codec import MAX_DEPTH
from dibs.errors import InvalidGraph
from dibs.model.task import NewTask
from dibs.model.workflow import NewStep, NewWorkflow, OnFailure, free_name

Policy = Annotated[
    OnFailure,
    Meta(description="fail: nothing more is begun; continue: what does not depend on it goes on; ignore: never mind."),
]
Parents = Annotated[list[Name], Meta(description="The steps that it waits for, by name, each once.")]
Deadline = Annotated[Timeout, Meta(description="Seconds from now until what is left is stopped, and it fails.")]

_GIVEN = {"not": {"type": "null"}}
_OPTIONS = msgspec.structs.fields(TaskOptions)


def _left_alone() -> dict[str, Any]:
    """The schema of options that say nothing: the workflow's own steps have theirs."""
    plain = msgspec.to_builtins({field.name: _usual(field) for field in _OPTIONS})
    return {"properties": {name: {"const": value} for name, value in plain.items()}}


def _usual(field: Any) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class FinalizerBody(TaskOptions, frozen=True, kw_only=True):
    """A task that runs once, when every step is done."""

    task_type: TaskTypeName

    def task(self) -> NewTask:
        """The task, checked."""
        return self.of_type(self.task_type)


class StepBody(TaskOptions, frozen=True):
    """A step: a task, or a workflow, that begins when others are done."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (
        *TaskOptions.rules,
        not_both("task_type", "workflow"),
        {
            "if": {"required": ["workflow"], "properties": {"workflow": _GIVEN}},
            "then": _left_alone(),
            "else": {"required": ["task_type"], "properties": {"task_type": _GIVEN}},
        },
    )

    task_type: TaskTypeName | None = None
    workflow: Annotated[SubWorkflowBody, Meta(description="A workflow, instead of a task.")] | None = None
    name: Annotated[Name, Meta(description="Left out: its type, then with -2, -3 … at its end.")] | None = None
    after: Parents = msgspec.field(default_factory=list)
    on_failure: Policy | None = None

    def __post_init__(self) -> None:
        if (self.task_type is None) == (self.workflow is None):
            raise ValueError("A step has either a task_type or a workflow")
        if self.workflow is not None and any(getattr(self, field.name) != _usual(field) for field in _OPTIONS):
            raise ValueError("A step that is a workflow has no options of a task: its own steps have them")
        if self.delay_seconds is not None and self.run_at is not None:
            raise ValueError("Give either delay_seconds or run_at, not both")

    def step(self, name: str, depth: int) -> NewStep:
        """The step under this name, checked."""
        task = None if self.task_type is None else self.of_type(self.task_type)
        workflow = None if self.workflow is None else self.workflow.new(depth + 1)
        return NewStep(name=name, task=task, workflow=workflow, after=self.after, on_failure=self.on_failure)


class SubWorkflowBody(Body, frozen=True):
    """A named graph of steps."""

    rules: ClassVar[tuple[dict[str, Any], ...]] = (not_both("deadline_seconds", "deadline_at"),)

    name: Annotated[Name, Meta(description="What it is called; others may be called the same.")]
    steps: Annotated[list[StepBody], Meta(description="Its steps, in any order.")]
    finalizer: Annotated[FinalizerBody, Meta(description="A task that runs once, when every step is done.")] | None = (
        None
    )
    on_failure: Policy = OnFailure.FAIL
    deadline_seconds: Deadline | None = None
    deadline_at: Annotated[Moment, Meta(description="The same as a time.")] | None = None

    def __post_init__(self) -> None:
        if self.deadline_seconds is not None and self.deadline_at is not None:
            raise ValueError("Give either deadline_seconds or deadline_at, not both")

    def new(self, depth: int = 0, key: str | None = None) -> NewWorkflow:
        """The workflow, checked."""
        if depth >= MAX_DEPTH:
            raise InvalidGraph(f"The workflow {self.name!r} is nested deeper than {MAX_DEPTH} levels.")
        return NewWorkflow(
            name=self.name,
            steps=steps_of(self.steps, depth=depth),
            finalizer=None if self.finalizer is None else self.finalizer.task(),
            key=key,
            on_failure=self.on_failure,
            deadline=self.deadline_at if self.deadline_seconds is None else self.deadline_seconds,
        )


class WorkflowBody(SubWorkflowBody, frozen=True):
    """A workflow to start."""

    idempotency_key: Key | None = None

    def workflow(self) -> NewWorkflow:
        """The workflow, checked."""
        return self.new(key=self.idempotency_key)


def steps_of(bodies: Sequence[StepBody], known: Collection[str] = (), depth: int = 0) -> list[NewStep]:
    """The steps, checked; `known`: names that are taken already."""
    names = _names(bodies, known)
    return [body.step(name, depth) for body, name in zip(bodies, names, strict=True)]


def _names(bodies: Sequence[StepBody], known: Collection[str]) -> Iterator[str]:
    taken = {*known, *(body.name for body in bodies if body.name is not None)}
    numbers: dict[str, int] = {}
    for body in bodies:
        name = body.name or free_name(_called(body), taken, numbers)
        taken.add(name)
        yield name


def _called(body: StepBody) -> str:
    return body.task_type or (body.workflow.name if body.workflow is not None else "step")
