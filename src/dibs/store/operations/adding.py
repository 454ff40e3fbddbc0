"""Adding steps: the rows of a graph, numbered, linked and inserted in one go, at its start or while it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from dibs.codec import encode
from dibs.errors import InvalidValue
from dibs.model.checks import to_micros
from dibs.model.task import DEFAULT_QUEUE, NewTask
from dibs.model.workflow import (
    FINALIZER_NAME,
    MAX_STEPS,
    WORKFLOW_STEP,
    NewStep,
    NewWorkflow,
    OnFailure,
    StepKind,
    Workflow,
    check_graph,
)
from dibs.store.operation import Rows, Statement, Steps
from dibs.store.operations.advancing import Advancing, Tally
from dibs.store.operations.checking import Checks
from dibs.store.operations.enqueueing import Enqueueing

Known = Mapping[str, tuple[int, bool | None]]
"""Steps that a workflow has already: name -> (task, passed)."""


@dataclass
class Graph:
    """The rows of new steps, as they are put together."""

    ids: list[int]
    checks: Checks
    tasks: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, int]] = field(default_factory=list)
    gates: Rows = field(default_factory=list)
    """Sub-workflows that begin at once."""

    def next_id(self) -> int:
        """An id for the next task."""
        return self.ids[len(self.tasks)]


@dataclass(frozen=True)
class Home:
    """The workflow that gets the steps. `begun`: what waits for nothing may run."""

    workflow_id: int
    root_id: int
    on_failure: str
    begun: bool = True


@dataclass(frozen=True)
class Part:
    """Steps for one workflow, its finalizer, the steps that it has already, and how the params were validated."""

    home: Home
    steps: Sequence[NewStep]
    finalizer: NewTask | None = None
    known: Known = field(default_factory=dict)
    checks: Checks = field(default_factory=lambda: Checks([]))


class Adding(Advancing, Enqueueing, ABC):
    """Putting steps in."""

    @abstractmethod
    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Steps[None]:
        """Insert the tasks of steps under their ids, with their history."""

    def check_tasks(self, tasks: Iterable[NewTask], checks: Checks) -> None:
        """Raise what is wrong with the params, as it was found before the operation began."""
        for task in tasks:
            if (invalid := checks.find(task).error) is not None:
                raise invalid

    def known_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Steps[Known]:
        """The existing steps that these are after. Raises InvalidGraph where one is missing, or a new name is taken."""
        found = yield from self.find_steps(workflow_id, steps)
        check_graph(steps, known=list(found))
        return found

    def find_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Steps[Known]:
        """The existing steps that these are after, or whose names they have."""
        names = {name for step in steps for name in (step.name, *step.after)}
        rows = yield Statement("find_steps", {"id": workflow_id, "keys": sorted(names)})
        return {row[0]: (row[1], None if row[2] is None else bool(row[2])) for row in rows}

    def add_queues(self, workflow_id: int, tasks: Iterable[NewTask]) -> Steps[None]:
        """These tasks are in the workflow now, and so in those that it is a part of. Who may use some queues only is
        shown the workflows that use no others."""
        used = {task.queue for task in tasks}
        workflow = yield from self.read_workflow(workflow_id)
        while workflow is not None and not used <= set(workflow.queues):
            queues = encode(sorted(used | set(workflow.queues)), "queues")
            yield Statement("add_queues", {"id": workflow.id, "queues": queues})
            parents = yield Statement("step", {"ids": [workflow.step_of]})
            workflow = (yield from self.read_workflow(parents[0][1])) if parents else None

    def insert_graph(self, part: Part, tally: Tally) -> Steps[dict[str, int]]:
        """Insert the steps; the task of each by its name. The tree is held, or nobody knows of it yet."""
        count = size_of(part.steps) + _finalizers(part.steps) + (part.finalizer is not None)
        if count == 0:
            return {}
        ids = yield Statement("fresh_ids", {"count": count})
        graph = Graph([row[0] for row in ids], part.checks)
        names = yield from self._number(part, graph, tally)
        yield from self.insert_step_tasks(graph.tasks)
        self.witness.added(row["queue"] for row in graph.tasks)
        yield Statement("add_steps", rows=graph.steps)
        if graph.edges:
            yield Statement("add_edges", rows=graph.edges)
        yield from self.ready(graph.gates, tally)
        return names

    def _number(self, part: Part, graph: Graph, tally: Tally) -> Steps[dict[str, int]]:
        """Give every task its id, and the rows of the part to the graph; then those of its sub-workflows."""
        first, names = len(graph.tasks), {}
        for step in part.steps:
            names[step.name] = self._put(part.home, step, graph)
        _link(part, names, graph, first)
        _start(part.home, graph, first, tally)
        tally.note(part.home.workflow_id, steps=len(part.steps))
        if part.finalizer is not None:
            yield from self._put_finalizer(part.home, part.finalizer, graph)
        for step in part.steps:
            if step.workflow is not None:
                yield from self._number_sub(part.home, step.workflow, names[step.name], graph, tally)
        return names

    def _number_sub(self, home: Home, new: NewWorkflow, gate: int, graph: Graph, tally: Tally) -> Steps[None]:
        sub_id = yield from self.insert_workflow(new, root_id=home.root_id, step_of=gate)
        sub = Home(sub_id, home.root_id, new.on_failure, begun=False)
        yield from self._number(Part(sub, new.steps, new.finalizer), graph, tally)

    def insert_workflow(
        self, new: NewWorkflow, *, root_id: int | None = None, step_of: int | None = None, content: str | None = None
    ) -> Steps[Any]:
        """The new workflow's id; None where its key is taken."""
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
                "queues": queues_of(new.tasks()),
                "allowed": seconds,
                "deadline": moment,
            },
        )
        return rows[0][0] if rows else None

    def _put(self, home: Home, step: NewStep, graph: Graph) -> int:
        policy = str(step.on_failure or home.on_failure)
        if step.task is not None:
            return self._append(home, step.task, graph, name=step.name, kind=StepKind.TASK, on_failure=policy)
        gate = _gate(step.workflow)
        return self._append(home, gate, graph, name=step.name, kind=StepKind.WORKFLOW, on_failure=policy)

    def _put_finalizer(self, home: Home, task: NewTask, graph: Graph) -> Steps[None]:
        policy = OnFailure.FAIL
        task_id = self._append(home, task, graph, name=FINALIZER_NAME, kind=StepKind.FINALIZER, on_failure=policy)
        graph.steps[-1]["waits"] = 1  # for the finalization
        yield Statement("set_finalizer", {"id": home.workflow_id, "task_id": task_id})

    def _append(self, home: Home, task: NewTask, graph: Graph, *, name: str, kind: StepKind, on_failure: str) -> int:
        task_id, row = graph.next_id(), graph.checks.row(task)
        graph.tasks.append({**asdict(row), "id": task_id, "workflow_id": home.workflow_id, "blocked": True})
        about = {"task_id": task_id, "workflow_id": home.workflow_id, "name": name, "kind": kind.value}
        graph.steps.append({**about, "on_failure": str(on_failure), "waits": 0, "delay": row.delay})
        return task_id


def _link(part: Part, names: Mapping[str, int], graph: Graph, first: int) -> None:
    for step, row in zip(part.steps, graph.steps[first:], strict=True):
        for name in step.after:
            parent, passed = (names[name], None) if name in names else part.known[name]
            graph.edges.append({"parent_id": parent, "child_id": row["task_id"]})
            row["waits"] += not passed
        if not part.home.begun and row["waits"] == 0:
            row["waits"] = 1  # for its workflow to begin


def _start(home: Home, graph: Graph, first: int, tally: Tally) -> None:
    """What waits for nothing may run at once."""
    for task, step in zip(graph.tasks[first:], graph.steps[first:], strict=True):
        if step["waits"]:
            continue
        if step["kind"] == StepKind.WORKFLOW:
            graph.gates.append((step["task_id"], home.workflow_id, StepKind.WORKFLOW, 0))
        else:
            task["blocked"] = False
            tally.note(home.workflow_id, active=1)


def _gate(workflow: NewWorkflow | None) -> NewTask:
    """The task that stands for a sub-workflow, in the queue of its tasks. If they are in several, it is in one of its
    own: its result is made of theirs, and a key that is limited to some of the queues must not see it."""
    assert workflow is not None
    queues = {task.queue for task in workflow.tasks()} or {DEFAULT_QUEUE}
    queue = queues.pop() if len(queues) == 1 else WORKFLOW_STEP
    return NewTask(WORKFLOW_STEP, {"workflow": workflow.name}, queue=queue, max_attempts=1)


def size_of(steps: Sequence[NewStep]) -> int:
    """How many steps these are, those of sub-workflows included."""
    return sum(1 if step.workflow is None else 1 + step.workflow.size for step in steps)


def _finalizers(steps: Sequence[NewStep]) -> int:
    """How many sub-workflows have one."""
    subs = [step.workflow for step in steps if step.workflow is not None]
    return sum((sub.finalizer is not None) + _finalizers(sub.steps) for sub in subs)


def check_room(workflow: Workflow | None, steps: Sequence[NewStep]) -> None:
    """A workflow that grows has the same bound as one that is started."""
    if workflow is not None and workflow.steps + size_of(steps) > MAX_STEPS:
        message = f"Workflow {workflow.id} would have more than {MAX_STEPS:,} steps."
        raise InvalidValue(message, hint="Start another workflow for the rest.")


def queues_of(tasks: Iterable[NewTask]) -> str:
    """The queues of these tasks, as JSON. A workflow without tasks is in the default queue: in no queue it would be
    visible to every key, whatever queues the key is limited to."""
    return encode(sorted({task.queue for task in tasks} or {DEFAULT_QUEUE}), "queues")
