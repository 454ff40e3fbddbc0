"""Workflows: named graphs of steps, what a step may wait for, and who may say how a workflow ended.

A step is a task that becomes pending when its parents are done. A graph is checked when it is made, so that nothing
is ever stored that could not run to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from dibs.codec import MAX_NAME, check_name
from dibs.errors import InvalidGraph, InvalidValue
from dibs.model.checks import check_integer, check_moment, check_seconds
from dibs.model.task import Failure, NewTask, State

MAX_STEPS = 100_000

WORKFLOW_STEP = "dibs.workflow"
"""The type of a task that stands for a sub-workflow: no worker claims it, its workflow does."""


FINALIZER_NAME = "(finalizer)"


class WorkflowState(StrEnum):
    """Where a workflow stands."""

    RUNNING = "running"
    FINALIZING = "finalizing"  # its steps are done, its finalizer is not
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED})


class OnFailure(StrEnum):
    """What the failure of a step means to its workflow."""

    FAIL = "fail"  # nothing more is begun, and the workflow fails
    CONTINUE = "continue"  # what does not depend on it goes on; the workflow fails in the end
    IGNORE = "ignore"  # as if it had completed, without a result


class StepKind(StrEnum):
    """What a step is for."""

    TASK = "task"
    WORKFLOW = "workflow"  # a sub-workflow
    FINALIZER = "finalizer"  # runs once, when all others are done


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step to add: a task, or a whole workflow, that begins when the steps named in `after` are done.

    `on_failure`: that of the workflow where it is None.
    """

    name: str
    task: NewTask | None = None
    workflow: NewWorkflow | None = None
    after: Sequence[str] = ()
    on_failure: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "The name of a step")
        if self.name == FINALIZER_NAME:
            raise InvalidGraph(f"No step may be named {FINALIZER_NAME!r}: the finalizer is.", hint="Use another name.")
        if (self.task is None) == (self.workflow is None):
            raise InvalidValue(f"The step {self.name!r} must be either a task or a workflow.")
        if self.task is not None and self.task.key is not None:
            raise InvalidValue(f"The step {self.name!r} has a key.", hint="Give the workflow a key instead.")
        if self.workflow is not None and self.workflow.key is not None:
            raise InvalidValue(f"The sub-workflow {self.name!r} has a key.", hint="Give the outermost workflow a key.")
        if self.task is not None:
            check_type(self.task)
        check_policy(self.on_failure)
        _check_parents(self.name, self.after)


class NewWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow to start. Checked when it is made: names are unique, parents exist, nothing waits for itself.

    `deadline`: seconds from its start, or the moment, after which what is left is stopped and the workflow fails.
    `finalizer`: a task that runs once, when every step is done.
    """

    name: str
    steps: Sequence[NewStep] = ()
    finalizer: NewTask | None = None
    key: str | None = None
    on_failure: str = OnFailure.FAIL
    deadline: float | datetime | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "The name of a workflow")
        if self.key is not None:
            check_name(self.key, "The key")
        if self.finalizer is not None and self.finalizer.key is not None:
            raise InvalidValue("The finalizer has a key.", hint="Give the workflow a key instead.")
        if self.finalizer is not None:
            check_type(self.finalizer)
        check_policy(self.on_failure)
        _check_deadline(self.deadline)
        check_graph(self.steps)
        if self.size > MAX_STEPS:
            raise InvalidValue(f"The workflow {self.name!r} has {self.size:,} steps; {MAX_STEPS:,} are the most.")

    @property
    def size(self) -> int:
        """How many steps it has, those of its sub-workflows included."""
        return sum(1 if step.workflow is None else 1 + step.workflow.size for step in self.steps)

    def tasks(self) -> Iterator[NewTask]:
        """Every task in it, those of sub-workflows and the finalizers included."""
        yield from tasks_in(self.steps)
        if self.finalizer is not None:
            yield self.finalizer


class Workflow(msgspec.Struct, frozen=True, dict=True):
    """A workflow as it stood when it was read.

    `steps`, `active`, `ended`, `failures`: how many steps there are, may run now or do, have ended, and have ended so
    that nothing may follow them.
    `queues`: those of its tasks. `stopping`: why nothing more is begun ("failed", "cancelled", "deadline").
    `step_of`: the step that it is, where it is a sub-workflow; `root_id`: the outermost workflow, often itself.
    """

    id: int
    name: str
    state: WorkflowState
    steps: int
    active: int
    ended: int
    failures: int
    created_at: datetime
    queues: list[str]
    root_id: int
    key: str | None = None
    deadline: datetime | None = None
    finished_at: datetime | None = None
    on_failure: OnFailure = OnFailure.FAIL
    stopping: str | None = None
    error: Failure | None = None
    step_of: int | None = None
    finalizer_id: int | None = None
    finalization_token: int = 0
    finalization_by: str | None = None
    finalization_until: datetime | None = None
    deduplicated: bool = False

    @property
    def finished(self) -> bool:
        """True in a state that only `retry_workflow` leaves."""
        return self.state in ENDED

    def wait(self, timeout: float | None = None) -> Any:
        """The workflow, once it has ended (to be awaited if it came from AsyncDibs). Raises WaitTimeout."""
        app = vars(self).get("app")
        if app is None:
            raise InvalidValue("This workflow does not know its queue.", hint=f"Use app.wait_workflow({self.id}).")
        return app.wait_workflow(self.id, timeout)

    def of(self, app: Any) -> Self:
        """The same workflow, which now knows the client it came from."""
        vars(self)["app"] = app
        return self


class Step(msgspec.Struct, frozen=True):
    """A step as it stood when it was read. `passed`: whether its children may begin, None while that is open."""

    task_id: int
    name: str
    kind: StepKind
    type: str
    queue: str
    state: State
    attempts: int
    max_attempts: int
    after: list[int]
    waits: int
    on_failure: OnFailure
    passed: bool | None
    worker_id: str | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    error: Failure | None = None
    workflow_id: int | None = None
    """The workflow that it stands for, where it is a sub-workflow."""


class StepResult(msgspec.Struct, frozen=True):
    """What a parent came to: its result, or its error where its failure is ignored."""

    task_id: int
    name: str
    type: str
    state: State
    result: Any = None
    error: Failure | None = None


class WorkflowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workflows: by state and name, newest first, a page at a time (`cursor`: the last id of the last page).
    Sub-workflows are left out, unless they are asked for. `only`: those all of whose tasks are in these queues."""

    state: str | None = None
    name: str | None = None
    limit: int = 100
    cursor: int | None = None
    only: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in WorkflowState.__members__.values():
            raise InvalidValue(f"There is no state {self.state!r}.", hint=f"Use one of: {', '.join(WorkflowState)}.")
        if self.name is not None:
            check_name(self.name, "The name of a workflow")
        check_integer(self.limit, "limit", 1, 1000)
        if self.cursor is not None:
            check_integer(self.cursor, "cursor", 0, 2**63 - 1)


def tasks_in(steps: Sequence[NewStep]) -> Iterator[NewTask]:
    """Every task in these steps, those of sub-workflows included."""
    for step in steps:
        if step.task is not None:
            yield step.task
        if step.workflow is not None:
            yield from step.workflow.tasks()


def free_name(base: str, taken: Container[str], numbers: dict[str, int]) -> str:
    """What to call a step that was given no name: `base`, or where that is taken `base-2`, `base-3` …

    `numbers`: the last one of each base, so that naming many steps alike costs no more than their number.
    """
    name = base
    while name in taken:
        numbers[base] = numbers.get(base, 1) + 1
        end = f"-{numbers[base]}"
        name = base[: MAX_NAME - len(end)] + end
    return name


def check_graph(steps: Sequence[NewStep], known: Sequence[str] = ()) -> None:
    """Names are unique, parents are among the steps or `known`, and nothing waits for itself."""
    counts = Counter(step.name for step in steps)
    counts.update(known)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidGraph(f"Two steps are named {twice[0]!r}.", hint="Give one of them another name.")
    for step in steps:
        for parent in step.after:
            if parent not in counts:
                raise InvalidGraph(
                    f"The step {step.name!r} is after {parent!r}, which is no step of this workflow.",
                    hint="Name a step that was added before.",
                )
    if circle := _circle({step.name: step.after for step in steps}):
        raise InvalidGraph(
            f"These steps wait for each other: {' → '.join(circle)}.", hint="Take one of the dependencies out."
        )


def _circle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Steps that wait for each other, the first one at both ends; nothing where there are none."""
    waits = {name: sum(parent in parents for parent in set(after)) for name, after in parents.items()}
    children: dict[str, list[str]] = {name: [] for name in parents}
    for name, after in parents.items():
        for parent in set(after) & parents.keys():
            children[parent].append(name)
    ready = [name for name, count in waits.items() if count == 0]
    while ready:
        for child in children[ready.pop()]:
            waits[child] -= 1
            if waits[child] == 0:
                ready.append(child)
    return _walk_back({name for name, count in waits.items() if count}, parents)


def _walk_back(stuck: set[str], parents: Mapping[str, Sequence[str]]) -> list[str]:
    """From any step that waits for ever, parent by parent, until one comes twice."""
    if not stuck:
        return []
    path = [min(stuck)]
    while (parent := next(each for each in parents[path[-1]] if each in stuck)) not in path:
        path.append(parent)
    return [parent, *reversed(path[path.index(parent) :])]


def check_type(task: NewTask) -> None:
    """Refuse a task that would pass for one that stands for a sub-workflow."""
    if task.type == WORKFLOW_STEP:
        raise InvalidValue(
            f"No task can be of the type {WORKFLOW_STEP!r}: dibs itself makes those, one for each sub-workflow.",
            hint="Use another type, or add the workflow to another one as a step.",
        )


def check_policy(policy: Any) -> None:
    """A policy for failures, or None."""
    if policy is not None and policy not in OnFailure.__members__.values():
        raise InvalidValue(f"There is no policy {policy!r}.", hint=f"on_failure is one of: {', '.join(OnFailure)}.")


def _check_parents(name: str, after: Any) -> None:
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise InvalidValue(f"`after` of the step {name!r} must be a list of names, not {after!r}.")
    for parent in after:
        check_name(parent, "The name of a step")
    if len(set(after)) < len(after):
        raise InvalidGraph(f"The step {name!r} names a parent twice.", hint="Name each parent once.")


def _check_deadline(deadline: Any) -> None:
    if isinstance(deadline, datetime):
        check_moment(deadline, "The deadline")
    elif deadline is not None:
        check_seconds(deadline, "The deadline", least=0.001)


class WorkflowOutline(msgspec.Struct, frozen=True):
    """What never changes of the first steps of a workflow, by their place in the order in which they were added.
    `parents`: the places of those directly before each. `whole`: no step and no dependency was left out."""

    ids: Sequence[int]
    names: Sequence[str]
    kinds: Sequence[str]
    types: Sequence[str]
    parents: Sequence[Sequence[int]]
    whole: bool


class StepGroup(msgspec.Struct, frozen=True):
    """Steps that stand alike, in no order."""

    state: State
    on_failure: OnFailure
    passed: bool | None
    ids: list[int]


class SubWorkflowProgress(msgspec.Struct, frozen=True):
    """How far a sub-workflow is: how many of its steps have ended."""

    steps: int
    ended: int


class StepDetails(msgspec.Struct, frozen=True):
    """Some steps by their ids, without their errors and what they come after; and how far those are that stand for a
    workflow."""

    steps: dict[int, Step]
    inside: dict[int, SubWorkflowProgress]


class FoundWorkflows(msgspec.Struct, frozen=True):
    """A page of workflows. `cursor`: go on below this id; None: everything has been looked through."""

    workflows: list[Workflow]
    cursor: int | None


STOP_FAILED, STOP_CANCELLED, STOP_DEADLINE = "failed", "cancelled", "deadline"
"""Why a workflow is stopping."""


STOP_PRUNED = "pruned"
"""Why a workflow that has ended cannot go on: some of its steps are deleted already."""
