"""Workflows: named graphs of steps, their states, and the checks of a graph.

A step is a task that becomes pending when its parents have ended. A graph is checked on construction, so that every
stored workflow can run to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from dibs.errors import InvalidGraph, InvalidValue
from dibs.json_values import MAX_NAME, check_name
from dibs.model.checks import check_integer, check_moment, check_seconds
from dibs.model.task import Failure, NewTask, State

MAX_STEPS = 100_000

WORKFLOW_STEP = "dibs.workflow"
"""The type of the task that represents a sub-workflow. Workers never claim it; the end of the sub-workflow ends it."""


FINALIZER_NAME = "(finalizer)"


class WorkflowState(StrEnum):
    """The state of a workflow."""

    RUNNING = "running"
    FINALIZING = "finalizing"  # its steps have ended, its finalizer has not
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({WorkflowState.COMPLETED, WorkflowState.FAILED, WorkflowState.CANCELLED})


class OnFailure(StrEnum):
    """What the failure of a step does to its workflow."""

    FAIL = "fail"  # no further step starts, and the workflow fails
    CONTINUE = "continue"  # steps that do not depend on it continue; the workflow fails at the end
    IGNORE = "ignore"  # the step counts as completed, without a result


class StepKind(StrEnum):
    """The kind of a step."""

    TASK = "task"
    WORKFLOW = "workflow"  # a sub-workflow
    FINALIZER = "finalizer"  # runs once, after all other steps


class FinalizeWhen(StrEnum):
    """After which end of the steps a finalizer runs."""

    SUCCESS = "success"  # all steps have passed
    FAILURE = "failure"  # a step failed, or the workflow was cancelled or passed its deadline
    ALWAYS = "always"

    def includes(self, state: str) -> bool:
        """True if the finalizer of a workflow that ends in this state runs."""
        return self is FinalizeWhen.ALWAYS or (self is FinalizeWhen.SUCCESS) == (state == WorkflowState.COMPLETED)


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step to add: a task or a sub-workflow that starts when the steps named in `after` have ended.

    `on_failure`: None for the policy of the workflow.
    """

    name: str
    task: NewTask | None = None
    workflow: NewWorkflow | None = None
    after: Sequence[str] = ()
    on_failure: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "The name of a step")
        if self.name.startswith(FINALIZER_NAME[:-1]):
            raise InvalidGraph(f"The name {self.name!r} is reserved for the finalizer.", hint="Use another name.")
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
    """A workflow to start. Checked on construction: names are unique, parents exist, the graph has no cycle.

    `deadline`: seconds from its start, or a time, after which the remaining steps are stopped and the workflow fails.
    `finalizer`: a task that runs once, after every step has ended; `finalize_when`: "success" (the default: if all
    steps have passed), "failure" (if not, also after a cancellation or the deadline) or "always".
    """

    name: str
    steps: Sequence[NewStep] = ()
    finalizer: NewTask | None = None
    finalize_when: str = FinalizeWhen.SUCCESS
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
        check_when(self.finalize_when)
        check_policy(self.on_failure)
        _check_deadline(self.deadline)
        check_graph(self.steps)
        if self.size > MAX_STEPS:
            raise InvalidValue(f"The workflow {self.name!r} has {self.size:,} steps; the limit is {MAX_STEPS:,}.")

    @property
    def size(self) -> int:
        """The number of steps, including those of sub-workflows."""
        return sum(1 if step.workflow is None else 1 + step.workflow.size for step in self.steps)

    def tasks(self) -> Iterator[NewTask]:
        """Every task of the workflow, including those of sub-workflows and finalizers."""
        yield from tasks_in(self.steps)
        if self.finalizer is not None:
            yield self.finalizer


class WorkflowRecord(msgspec.Struct, frozen=True, dict=True):
    """What Workflow and AsyncWorkflow have in common: a workflow as read from the store.

    `steps`: the number of steps. `active`: of steps that run or may run now. `ended`: of steps that have ended.
    `failures`: of ended steps whose children must not start.
    `queues`: the queues of its tasks. `stopping`: why no further step starts ("failed", "cancelled", "deadline").
    `step_of`: the step that represents it, for a sub-workflow; `root_id`: the outermost workflow, which may be itself.
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
    finalize_when: FinalizeWhen = FinalizeWhen.SUCCESS
    finalization_token: int = 0
    finalization_by: str | None = None
    finalization_until: datetime | None = None
    deduplicated: bool = False

    @property
    def finished(self) -> bool:
        """True in a final state, which only `retry_workflow` leaves."""
        return self.state in ENDED

    @property
    def ends_as(self) -> WorkflowState:
        """The state in which the workflow ends, as far as that is decided: while the finalizer runs, the state that
        follows from the other steps."""
        if self.state is not WorkflowState.FINALIZING:
            return self.state
        if self.finalize_when is FinalizeWhen.SUCCESS or not (self.stopping or self.failures):
            return WorkflowState.COMPLETED
        return WorkflowState.CANCELLED if self.stopping == STOP_CANCELLED else WorkflowState.FAILED

    def _client(self, verb: str) -> Any:
        app = vars(self).get("app")
        if app is None:
            raise InvalidValue(
                "This workflow was not returned by a client, so it cannot wait.", hint=f"Use app.{verb}({self.id})."
            )
        return app

    def of(self, app: Any) -> Self:
        """Attach the client that returned the workflow."""
        vars(self)["app"] = app
        return self


class Workflow(WorkflowRecord, frozen=True, dict=True):
    """A workflow as read from the store."""

    def wait(self, timeout: float | None = None) -> Workflow:
        """Wait until the workflow has ended, and return it. Raises WaitTimeout."""
        ended: Workflow = self._client("wait_workflow").wait_workflow(self.id, timeout)
        return ended

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the workflow has ended. Returns the result of its finalizer, or the results of its steps by name,
        as `app.workflow_result` does. Raises WorkflowFailed and WaitTimeout."""
        return self._client("workflow_result").workflow_result(self.id, timeout)


class Step(msgspec.Struct, frozen=True):
    """A step as read from the store. `passed`: whether its children may start; None while that is not decided."""

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
    """The workflow that the step represents, for a sub-workflow."""


class StepResult(msgspec.Struct, frozen=True):
    """The result of a parent step, or its error if the failure is ignored."""

    task_id: int
    name: str
    type: str
    state: State
    result: Any = None
    error: Failure | None = None


class WorkflowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workflows to list: by state and name, newest first, in pages (`cursor`: the last id of the previous page).
    Sub-workflows are not listed. `only`: workflows that have all their tasks in these queues."""

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
    """Every task in these steps, including those of sub-workflows."""
    for step in steps:
        if step.task is not None:
            yield step.task
        if step.workflow is not None:
            yield from step.workflow.tasks()


def free_name(base: str, taken: Container[str], numbers: dict[str, int]) -> str:
    """A free name for a step without a name: `base`, or if that is taken `base-2`, `base-3` …

    `numbers`: the last number of each base, so that the time to name many steps grows linearly.
    """
    name = base
    while name in taken:
        numbers[base] = numbers.get(base, 1) + 1
        end = f"-{numbers[base]}"
        name = base[: MAX_NAME - len(end)] + end
    return name


def check_graph(steps: Sequence[NewStep], known: Sequence[str] = ()) -> None:
    """Check that names are unique, parents are among the steps or `known`, and the graph has no cycle."""
    counts = Counter(step.name for step in steps)
    counts.update(known)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidGraph(f"Two steps are named {twice[0]!r}.", hint="Give one of them another name.")
    for step in steps:
        for parent in step.after:
            if parent not in counts:
                raise InvalidGraph(
                    f"The step {step.name!r} is after {parent!r}, which is not a step of this workflow.",
                    hint="Name a step that was added before.",
                )
    if cycle := _find_cycle({step.name: step.after for step in steps}):
        raise InvalidGraph(
            f"These steps wait for each other: {' → '.join(cycle)}.", hint="Remove one of the dependencies."
        )


def _find_cycle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """The steps of a cycle, with the first step repeated at the end; empty if there is none."""
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
    return _cycle_from({name for name, count in waits.items() if count}, parents)


def _cycle_from(stuck: set[str], parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Follow the parents of a step in a cycle until a step repeats."""
    if not stuck:
        return []
    path = [min(stuck)]
    while (parent := next(each for each in parents[path[-1]] if each in stuck)) not in path:
        path.append(parent)
    return [parent, *reversed(path[path.index(parent) :])]


def check_type(task: NewTask) -> None:
    """Refuse a task of the type that is reserved for sub-workflows."""
    if task.type == WORKFLOW_STEP:
        raise InvalidValue(
            f"The task type {WORKFLOW_STEP!r} is reserved: dibs creates one such task for each sub-workflow.",
            hint="Use another type, or add the sub-workflow as a step.",
        )


def check_policy(policy: Any) -> None:
    """Check for a failure policy, or None."""
    if policy is not None and policy not in OnFailure.__members__.values():
        raise InvalidValue(f"{policy!r} is not a valid on_failure.", hint=f"Use one of: {', '.join(OnFailure)}.")


def check_when(when: Any) -> None:
    """Check for a value of FinalizeWhen."""
    if when not in FinalizeWhen.__members__.values():
        raise InvalidValue(
            f"{when!r} is not a valid `when` of a finalizer.", hint=f"Use one of: {', '.join(FinalizeWhen)}."
        )


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
    """The constant fields of the first steps of a workflow, in the order in which the steps were added. `parents`: the
    positions of each step's parents. `whole`: no step and no dependency is missing."""

    ids: Sequence[int]
    names: Sequence[str]
    kinds: Sequence[str]
    types: Sequence[str]
    parents: Sequence[Sequence[int]]
    whole: bool


class StepGroup(msgspec.Struct, frozen=True):
    """Steps with equal state, policy and `passed`, in no particular order."""

    state: State
    on_failure: OnFailure
    passed: bool | None
    ids: list[int]


class SubWorkflowProgress(msgspec.Struct, frozen=True):
    """The progress of a sub-workflow: the number of its steps, and of its ended steps."""

    steps: int
    ended: int


class StepDetails(msgspec.Struct, frozen=True):
    """Steps by task id, without errors and parents, and the progress of the sub-workflows among them."""

    steps: dict[int, Step]
    inside: dict[int, SubWorkflowProgress]


class FoundWorkflows(msgspec.Struct, frozen=True):
    """A page of workflows. `cursor`: continue below this id; None: all workflows have been read."""

    workflows: list[Workflow]
    cursor: int | None


STOP_FAILED, STOP_CANCELLED, STOP_DEADLINE = "failed", "cancelled", "deadline"
"""Why a workflow is stopping."""


STOP_PRUNED = "pruned"
"""Why an ended workflow cannot be retried: some of its steps are already deleted."""
