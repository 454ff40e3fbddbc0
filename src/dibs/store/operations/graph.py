"""Insert the steps of a workflow: when it is started, when a client adds steps, and when a step adds steps.

A step adds steps in the transaction that completes it. Steps that wait for the adding step wait for the added steps as
well. An attempt that fails adds nothing, and a repeated outcome adds nothing twice, because a step is completed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict

from dibs.errors import InvalidGraph, InvalidValue
from dibs.json_values import MAX_NAME, encode
from dibs.model.checks import to_micros
from dibs.model.task import DEFAULT_QUEUE, NewTask
from dibs.model.workflow import (
    FINALIZER_NAME,
    MAX_STEPS,
    STOP_CANCELLED,
    WORKFLOW_STEP,
    NewStep,
    NewWorkflow,
    OnFailure,
    StepKind,
    Workflow,
    check_graph,
    free_name,
    tasks_in,
)
from dibs.store.contract import Observer
from dibs.store.operation import Mode, Operation, Rows, Statement, Statements
from dibs.store.operations.advance import Advance, CounterChanges
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.flow import FlowRules, RulesCache
from dibs.store.operations.rows import NewRow
from dibs.store.operations.validation import TaskValidation

_CONTENT = (
    "type", "queue", "priority", "params", "max_attempts", "backoff_base", "backoff_cap", "type_version", "timeout",
    "trace", "tags", "limits", "group_key"
)  # fmt: skip
"""The fields of NewRow that the statement `task_content` reads."""

ExistingSteps = Mapping[str, tuple[int, bool | None]]
"""Steps that a workflow has already: name -> (task, passed)."""


@dataclass
class GraphRows:
    """The rows of new steps, collected before they are inserted."""

    ids: list[int]
    validation: TaskValidation
    rules: FlowRules
    checked: bool
    """The limits of the tasks were checked before."""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, int]] = field(default_factory=list)
    sub_steps: Rows = field(default_factory=list)
    """Steps that represent sub-workflows which begin at once."""

    def next_id(self) -> int:
        """An id for the next task."""
        return self.ids[len(self.tasks)]


@dataclass(frozen=True)
class TargetWorkflow:
    """The workflow that gets the steps. `begun`: steps without open parents may run."""

    workflow_id: int
    root_id: int
    on_failure: str
    begun: bool = True


@dataclass(frozen=True)
class StepBatch:
    """Steps to insert into one workflow: its finalizer, its existing steps, and the validation of the params."""

    target: TargetWorkflow
    steps: Sequence[NewStep]
    finalizer: NewTask | None = None
    existing: ExistingSteps = field(default_factory=dict)
    validation: TaskValidation = field(default_factory=lambda: TaskValidation([]))
    checked: bool = False


@dataclass(frozen=True)
class AddedSteps:
    """Steps that a step adds, checked and named. `stopping`: the workflow starts no more steps."""

    task_id: int
    target: TargetWorkflow
    steps: Sequence[NewStep]
    existing: ExistingSteps
    stopping: bool
    validation: TaskValidation


class Graph:
    """Statements that insert steps, for the operations that start workflows and that complete steps."""

    def __init__(self, dialect: Dialect, advance: Advance, observer: Observer, rules: RulesCache) -> None:
        self._dialect = dialect
        self._rules = rules
        self._advance = advance
        self._observer = observer

    def check_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Statements[ExistingSteps]:
        """The existing parents of these steps. Raises InvalidGraph if a parent is missing or a new name is taken."""
        found = yield from self.find_steps(workflow_id, steps)
        check_graph(steps, known=list(found))
        return found

    def find_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Statements[ExistingSteps]:
        """The existing steps that are parents of these steps or have the same names."""
        names = {name for step in steps for name in (step.name, *step.after)}
        rows = yield Statement("find_steps", {"id": workflow_id, "keys": sorted(names)})
        return {row[0]: (row[1], None if row[2] is None else bool(row[2])) for row in rows}

    def add_queues(self, workflow_id: int, tasks: Iterable[NewTask]) -> Statements[None]:
        """Add the queues of these tasks to the workflow and to the workflows that it is a part of. A caller that is
        limited to some queues sees the workflows that use no others."""
        used = {task.queue for task in tasks}
        workflow = yield from self._advance.read_workflow(workflow_id)
        while workflow is not None and not used <= set(workflow.queues):
            queues = encode(sorted(used | set(workflow.queues)), "queues")
            yield Statement("add_queues", {"id": workflow.id, "queues": queues})
            parents = yield Statement("step", {"ids": [workflow.step_of]})
            workflow = (yield from self._advance.read_workflow(parents[0][1])) if parents else None

    def insert_graph(self, batch: StepBatch, changes: CounterChanges) -> Statements[dict[str, int]]:
        """Insert the steps. Returns the task of each step by its name. The caller has locked the tree, or has inserted
        the workflow in this transaction."""
        count = size_of(batch.steps) + _finalizers(batch.steps) + (batch.finalizer is not None)
        if count == 0:
            return {}
        ids = yield Statement("fresh_ids", {"count": count})
        rules = yield from self._rules.checked()
        graph = GraphRows([row[0] for row in ids], batch.validation, rules, batch.checked)
        names = yield from self._number(batch, graph, changes)
        yield from self._insert(graph)
        if graph.edges:
            yield Statement("add_edges", rows=graph.edges)
        yield from self._advance.make_ready(graph.sub_steps, changes)
        return names

    def _number(self, batch: StepBatch, graph: GraphRows, changes: CounterChanges) -> Statements[dict[str, int]]:
        """Give every task its id and add the rows of the batch to the graph, then those of its sub-workflows."""
        first, names = len(graph.tasks), {}
        for step in batch.steps:
            names[step.name] = self._put(batch.target, step, graph)
        _link(batch, names, graph, first)
        _start(batch.target, graph, first, changes)
        changes.add(batch.target.workflow_id, steps=len(batch.steps))
        if batch.finalizer is not None:
            yield from self._put_finalizer(batch.target, graph.validation.row(batch.finalizer), graph)
        for step in batch.steps:
            if step.workflow is not None:
                yield from self._number_sub(batch.target, step.workflow, names[step.name], graph, changes)
        return names

    def _number_sub(
        self, target: TargetWorkflow, new: NewWorkflow, sub_step: int, graph: GraphRows, changes: CounterChanges
    ) -> Statements[None]:
        sub_id = yield from self.insert_workflow(new, root_id=target.root_id, step_of=sub_step)
        sub = TargetWorkflow(sub_id, target.root_id, new.on_failure, begun=False)
        yield from self._number(StepBatch(sub, new.steps, new.finalizer), graph, changes)

    def insert_workflow(
        self, new: NewWorkflow, *, root_id: int | None = None, step_of: int | None = None, content: str | None = None
    ) -> Statements[Any]:
        """Insert the workflow. Returns its id; None if its key is taken."""
        moment = to_micros(new.deadline) if isinstance(new.deadline, datetime) else None
        seconds = None if new.deadline is None or moment is not None else round(float(new.deadline) * 1e6)  # type: ignore[arg-type]
        rows = yield Statement(
            "start_workflow",
            {
                "root_id": root_id,
                "step_of": step_of,
                "name": new.name,
                "key": new.key,
                "key_content": content,
                "on_failure": str(new.on_failure),
                "finalize_when": str(new.finalize_when),
                "queues": queues_of(new.tasks()),
                "allowed": seconds,
                "deadline": moment,
            },
        )
        return rows[0][0] if rows else None

    def _put(self, target: TargetWorkflow, step: NewStep, graph: GraphRows) -> int:
        policy = str(step.on_failure or target.on_failure)
        if step.task is not None:
            row = graph.validation.row(step.task)
            return self._append(target, row, graph, name=step.name, kind=StepKind.TASK, on_failure=policy)
        sub_step = _sub_step(step.workflow)
        return self._append(
            target, graph.validation.row(sub_step), graph, name=step.name, kind=StepKind.WORKFLOW, on_failure=policy
        )

    def _put_finalizer(self, target: TargetWorkflow, row: NewRow, graph: GraphRows) -> Statements[None]:
        policy = OnFailure.FAIL
        task_id = self._append(target, row, graph, name=FINALIZER_NAME, kind=StepKind.FINALIZER, on_failure=policy)
        graph.steps[-1]["waits"] = 1  # for the finalization
        yield Statement("set_finalizer", {"id": target.workflow_id, "task_id": task_id})

    def _append(
        self, target: TargetWorkflow, row: NewRow, graph: GraphRows, *, name: str, kind: StepKind, on_failure: str
    ) -> int:
        task_id = graph.next_id()
        if kind is not StepKind.WORKFLOW:
            row = graph.rules.place(row, checked=graph.checked)
        graph.tasks.append({**asdict(row), "id": task_id, "workflow_id": target.workflow_id, "blocked": True})
        about = {"task_id": task_id, "workflow_id": target.workflow_id, "name": name, "kind": kind.value}
        times = {"delay": row.delay, "expires_in": row.expires_in}
        graph.steps.append({**about, **times, "on_failure": str(on_failure), "waits": 0})
        return task_id

    def renew_finalizers(self, workflow_ids: Sequence[int]) -> Statements[None]:
        """Give these workflows, which run again, another finalizer in place of one that has run for their earlier end.
        A completed task stays completed."""
        retired = (yield Statement("retire_finalizers", {"ids": list(workflow_ids)})) if workflow_ids else []
        if not retired:
            return
        rules = yield from self._rules.checked()
        for old, workflow_id, delay, expires_in in retired:
            [content] = yield Statement("task_content", {"id": old})
            row = NewRow(**dict(zip(_CONTENT, content, strict=True)), delay=delay, expires_in=expires_in)
            [(task_id,)] = yield Statement("fresh_ids", {"count": 1})
            graph = GraphRows([task_id], TaskValidation([]), rules, checked=True)
            target = TargetWorkflow(workflow_id, workflow_id, OnFailure.FAIL)
            yield from self._put_finalizer(target, row, graph)
            yield from self._insert(graph)

    def _insert(self, graph: GraphRows) -> Statements[None]:
        yield from self._dialect.insert_step_tasks(graph.tasks)
        self._observer.added(row["queue"] for row in graph.tasks)
        yield Statement("add_steps", rows=graph.steps)

    # Steps that a step adds

    def plan_steps(
        self, task_id: int, steps: Sequence[NewStep], validation: TaskValidation, planned: Collection[AddedSteps] = ()
    ) -> Statements[AddedSteps]:
        """Name and check the steps that this task adds. Raises InvalidValue if they cannot be added. The caller has
        locked the tree.

        `planned`: the steps that other tasks add in the same transaction.
        """
        rows = yield Statement("step", {"ids": [task_id]})
        if not rows:
            raise InvalidValue(f"Task {task_id} is not a step of a workflow, so it cannot add steps.")
        _, workflow_id, name, kind, _, _, stopping, on_failure, root_id = rows[0]
        if kind == StepKind.FINALIZER:
            raise InvalidValue(
                "A finalizer cannot add steps: it is the last step of its workflow.", hint="Start another workflow."
            )
        check_room((yield from self._advance.read_workflow(workflow_id)), steps)
        validation.check(tasks_in(steps))
        rules = yield from self._rules.checked()
        for task in tasks_in(steps):
            rules.place(validation.row(task))
        taken = {step.name for other in planned if other.target.workflow_id == workflow_id for step in other.steps}
        named, existing = yield from self._named(workflow_id, name, task_id, steps, taken)
        check_graph(named, known=list(existing))
        yield from self._check_order(task_id, named, existing)
        target = TargetWorkflow(workflow_id, root_id, on_failure)
        return AddedSteps(task_id, target, named, existing, stopping is not None, validation)

    def _named(
        self, workflow_id: int, parent: str, task_id: int, steps: Sequence[NewStep], taken: Collection[str]
    ) -> Statements[tuple[list[NewStep], ExistingSteps]]:
        """The steps under names that are free in the workflow, and the existing steps that they wait for. The names do
        not depend on anything that another attempt could change: the tree is locked, and a step is completed once."""
        while True:
            named = _under(parent, task_id, steps, taken)
            existing = yield from self.find_steps(workflow_id, named)
            if not (more := {step.name for step in named} & existing.keys()):
                return named, existing
            taken = {*taken, *more}  # next time these steps get other names

    def check_parents(self, task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Operation[None]:
        """Check that the steps that this task adds are after steps in the queues `only`. The error is the same as for a
        step that does not exist. Names and queues of steps never change (see change.py), so the check still holds when
        the task completes."""
        return Operation("check_parents", lambda: _check_parents(task_id, steps, only), mode=Mode.READ)

    def _check_order(self, task_id: int, steps: Sequence[NewStep], existing: ExistingSteps) -> Statements[None]:
        """The steps that wait for the task will wait for the added steps, which therefore must not wait for them."""
        parents = {name: existing[name] for step in steps for name in step.after if name in existing}
        open_parents = [parent for parent, passed in parents.values() if not passed and parent != task_id]
        if open_parents and (yield Statement("descendants", {"ids": open_parents, "id": task_id})):
            raise InvalidGraph(
                f"A step that task {task_id} adds has a parent that itself waits for task {task_id}.",
                hint="Steps that wait for a step also wait for the steps that it adds. Remove that dependency.",
            )

    def add_planned_steps(self, added: AddedSteps) -> Statements[None]:
        """Insert the steps between the step that adds them, which ends next, and its children."""
        changes = CounterChanges()
        children = [row[0] for row in (yield Statement("children", {"id": added.task_id}))]
        names = yield from self.insert_graph(
            StepBatch(added.target, added.steps, None, added.existing, added.validation, checked=True), changes
        )
        parents = {parent for step in added.steps for parent in step.after}
        last = [task_id for name, task_id in names.items() if name not in parents]
        if children:
            edges = [{"parent_id": parent, "child_id": child} for child in children for parent in last]
            yield Statement("add_edges", rows=edges)
            yield Statement("add_waits", rows=[{"task_id": child, "more": len(last)} for child in children])
        yield from self.add_queues(added.target.workflow_id, tasks_in(added.steps))
        if added.stopping:
            yield from self._cancel_added(added, names, changes)
        yield from self._advance.write_counters(changes)

    def _cancel_added(self, added: AddedSteps, names: Mapping[str, int], changes: CounterChanges) -> Statements[None]:
        """The workflow is stopping: cancel the added steps."""
        yield from self._advance.cancel_waiting(added.target.workflow_id, changes)
        sub_steps = [names[step.name] for step in added.steps if step.workflow is not None]
        for sub in (yield from self._advance.sub_workflows_of(sub_steps)):
            yield from self._advance.stop(sub, STOP_CANCELLED, changes)


def _link(batch: StepBatch, names: Mapping[str, int], graph: GraphRows, first: int) -> None:
    for step, row in zip(batch.steps, graph.steps[first:], strict=True):
        for name in step.after:
            parent, passed = (names[name], None) if name in names else batch.existing[name]
            graph.edges.append({"parent_id": parent, "child_id": row["task_id"]})
            row["waits"] += not passed
        if not batch.target.begun and row["waits"] == 0:
            row["waits"] = 1  # for its workflow to begin


def _start(target: TargetWorkflow, graph: GraphRows, first: int, changes: CounterChanges) -> None:
    """Make the steps that wait for nothing runnable."""
    for task, step in zip(graph.tasks[first:], graph.steps[first:], strict=True):
        if step["waits"]:
            continue
        if step["kind"] == StepKind.WORKFLOW:
            graph.sub_steps.append((step["task_id"], target.workflow_id, StepKind.WORKFLOW, 0))
        else:
            task["blocked"] = False
            changes.add(target.workflow_id, active=1)


def _sub_step(workflow: NewWorkflow | None) -> NewTask:
    """The task that represents a sub-workflow, in the queue of its tasks. If the tasks are in several queues, it is in
    a queue of its own: its result contains theirs, and a key that is limited to some of the queues must not see it."""
    assert workflow is not None
    queues = {task.queue for task in workflow.tasks()} or {DEFAULT_QUEUE}
    queue = queues.pop() if len(queues) == 1 else WORKFLOW_STEP
    return NewTask(WORKFLOW_STEP, {"workflow": workflow.name}, queue=queue, max_attempts=1)


def size_of(steps: Sequence[NewStep]) -> int:
    """The number of these steps and of the steps of their sub-workflows."""
    return sum(1 if step.workflow is None else 1 + step.workflow.size for step in steps)


def _finalizers(steps: Sequence[NewStep]) -> int:
    """The number of finalizers of the sub-workflows."""
    subs = [step.workflow for step in steps if step.workflow is not None]
    return sum((sub.finalizer is not None) + _finalizers(sub.steps) for sub in subs)


def check_room(workflow: Workflow | None, steps: Sequence[NewStep]) -> None:
    """Raise InvalidValue if the workflow would have too many steps, with the same limit as for a new workflow."""
    if workflow is not None and workflow.steps + size_of(steps) > MAX_STEPS:
        message = f"Workflow {workflow.id} would have more than {MAX_STEPS:,} steps."
        raise InvalidValue(message, hint="Start another workflow for the rest.")


def queues_of(tasks: Iterable[NewTask]) -> str:
    """The queues of these tasks, as JSON. A workflow without tasks is in the default queue: in no queue it would be
    visible to every key, whatever queues the key is limited to."""
    return encode(sorted({task.queue for task in tasks} or {DEFAULT_QUEUE}), "queues")


def _check_parents(task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Statements[None]:
    rows = yield Statement("step", {"ids": [task_id]})
    if rows:
        _, workflow_id, own, *_ = rows[0]
        named = _under(own, task_id, steps)
        requested = {own, *(parent for step in named for parent in step.after)} - {step.name for step in named}
        found = yield Statement("find_steps", {"id": workflow_id, "keys": sorted(requested)})
        ours = [row[0] for row in found if row[3] in only]
        if own in ours:
            check_graph(named, known=ours)
            return
    check_graph(steps)  # the caller cannot see the step, so no existing name is valid


def _under(parent: str, task_id: int, steps: Sequence[NewStep], taken: Collection[str] = ()) -> list[NewStep]:
    """The steps under the name of the step that adds them. Steps without a parent come after that step."""
    names = _names(parent, task_id, [step.name for step in steps], taken)
    if len(names) < len(steps):
        raise InvalidGraph("Two of the added steps have the same name.", hint="Give one of them another name.")
    return [
        msgspec.structs.replace(step, name=names[step.name], after=_parents(step, names) or [parent]) for step in steps
    ]


def _parents(step: NewStep, names: Mapping[str, str]) -> list[str]:
    """The full names of the parents of this step. A name means the step that is added under it, if there is
    one, else a step that the workflow has. A step's own name always means the latter: a step that adds a step of its
    own type gives it its own name, and no step can wait for itself."""
    return [each if each == step.name else names.get(each, each) for each in step.after]


def _names(parent: str, task_id: int, names: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """The full name of each added step: `parent/name`. Where that is taken, or too long after many levels of steps that
    add steps, the id of the adding task replaces the parent's name: `#12/name`."""
    used, numbers, full = set(taken), dict[str, int](), dict[str, str]()
    for name in names:
        whole = f"{parent}/{name}"
        if len(whole) > MAX_NAME or whole in used:
            whole = free_name(f"#{task_id}/{name}"[:MAX_NAME], used, numbers)
        full[name] = whole
        used.add(whole)
    return full
