"""Growing: a step adds steps to its workflow, in the transaction that completes it.

Steps that wait for the adding step wait for the added steps as well. An attempt that fails adds nothing, and a repeated
outcome adds nothing twice, since a step is completed once.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dibs.codec import MAX_NAME
from dibs.errors import InvalidGraph, InvalidValue
from dibs.model.workflow import STOP_CANCELLED, NewStep, StepKind, check_graph, free_name, tasks_in
from dibs.store.operation import Operation, Statement, Steps
from dibs.store.operations.adding import Adding, Home, Known, Part, check_room
from dibs.store.operations.advancing import Tally
from dibs.store.operations.checking import Checks


@dataclass(frozen=True)
class Growth:
    """What a step adds, checked and named. `stopping`: nothing more is begun in its workflow."""

    task_id: int
    home: Home
    steps: Sequence[NewStep]
    known: Known
    stopping: bool
    checks: Checks


class Growing(Adding, ABC):
    """Steps from steps."""

    def plan_growth(
        self, task_id: int, steps: Sequence[NewStep], checks: Checks, planned: Collection[Growth] = ()
    ) -> Steps[Growth]:
        """Name and check the steps that this task adds; InvalidValue where they cannot be added. The tree is held.

        `planned`: what other steps add in the same transaction.
        """
        rows = yield Statement("step", {"ids": [task_id]})
        if not rows:
            raise InvalidValue(f"Task {task_id} is no step of a workflow: it cannot add steps to one.")
        _, workflow_id, name, kind, _, _, stopping, on_failure, root_id = rows[0]
        if kind == StepKind.FINALIZER:
            raise InvalidValue("A finalizer cannot add steps: its workflow is over.", hint="Start another workflow.")
        check_room((yield from self.read_workflow(workflow_id)), steps)
        self.check_tasks(tasks_in(steps), checks)
        taken = {step.name for other in planned if other.home.workflow_id == workflow_id for step in other.steps}
        named, known = yield from self._named(workflow_id, name, task_id, steps, taken)
        check_graph(named, known=list(known))
        yield from self._check_order(task_id, named, known)
        home = Home(workflow_id, root_id, on_failure)
        return Growth(task_id, home, named, known, stopping is not None, checks)

    def _named(
        self, workflow_id: int, parent: str, task_id: int, steps: Sequence[NewStep], taken: Collection[str]
    ) -> Steps[tuple[list[NewStep], Known]]:
        """The steps under names that are free in the workflow, and the existing steps that they wait for. The names
        depend on nothing that another attempt could change: the tree is held, and a step is completed once."""
        while True:
            named = _under(parent, task_id, steps, taken)
            known = yield from self.find_steps(workflow_id, named)
            if not (more := {step.name for step in named} & known.keys()):
                return named, known
            taken = {*taken, *more}  # next time these steps get other names

    def check_parents(self, task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Operation[None]:
        """What this task wants to add is after steps in the queues `only`; InvalidGraph in the words for one that does
        not exist. Names and queues of steps never change, so what is found here holds when it completes."""
        return Operation("check_parents", lambda: _check_parents(task_id, steps, only), writes=False)

    def _check_order(self, task_id: int, steps: Sequence[NewStep], known: Known) -> Steps[None]:
        """Who waits for the task will wait for the steps, which so cannot wait for any of those."""
        parents = {name: known[name] for step in steps for name in step.after if name in known}
        open_ones = [parent for parent, passed in parents.values() if not passed and parent != task_id]
        if open_ones and (yield Statement("descendants", {"ids": open_ones, "id": task_id})):
            raise InvalidGraph(
                f"A step that task {task_id} adds is after one that itself waits for task {task_id}.",
                hint="What waits for a step waits for all that it adds as well: take that dependency out.",
            )

    def grow(self, growth: Growth) -> Steps[None]:
        """Insert the steps between the one that adds them, which settles next, and those that wait for it."""
        tally = Tally()
        children = [row[0] for row in (yield Statement("children", {"id": growth.task_id}))]
        names = yield from self.insert_graph(Part(growth.home, growth.steps, None, growth.known, growth.checks), tally)
        parents = {parent for step in growth.steps for parent in step.after}
        last = [task_id for name, task_id in names.items() if name not in parents]
        if children:
            edges = [{"parent_id": parent, "child_id": child} for child in children for parent in last]
            yield Statement("add_edges", rows=edges)
            yield Statement("add_waits", rows=[{"task_id": child, "more": len(last)} for child in children])
        yield from self.add_queues(growth.home.workflow_id, tasks_in(growth.steps))
        if growth.stopping:
            yield from self._begin_nothing(growth, names, tally)
        yield from self.count(tally)

    def _begin_nothing(self, growth: Growth, names: Mapping[str, int], tally: Tally) -> Steps[None]:
        """The workflow is stopping: what was added is not begun either."""
        yield from self.cancel_waiting(growth.home.workflow_id, tally)
        gates = [names[step.name] for step in growth.steps if step.workflow is not None]
        for sub in (yield from self.sub_workflows_of(gates)):
            yield from self.give_up(sub, STOP_CANCELLED, tally)


def _check_parents(task_id: int, steps: Sequence[NewStep], only: Sequence[str]) -> Steps[None]:
    rows = yield Statement("step", {"ids": [task_id]})
    if rows:
        _, workflow_id, own, *_ = rows[0]
        named = _under(own, task_id, steps)
        asked = {own, *(parent for step in named for parent in step.after)} - {step.name for step in named}
        found = yield Statement("find_steps", {"id": workflow_id, "keys": sorted(asked)})
        ours = [row[0] for row in found if row[3] in only]
        if own in ours:
            check_graph(named, known=ours)
            return
    check_graph(steps)  # to who may use these queues alone there is no such step, and so none that it could name


def _under(parent: str, task_id: int, steps: Sequence[NewStep], taken: Collection[str] = ()) -> list[NewStep]:
    """The steps under the name of the step that adds them. Steps without a parent come after that step."""
    names = _names(parent, task_id, [step.name for step in steps], taken)
    if len(names) < len(steps):
        raise InvalidGraph("Two of the added steps have the same name.", hint="Give one of them another name.")
    return [
        msgspec.structs.replace(step, name=names[step.name], after=_parents(step, names) or [parent]) for step in steps
    ]


def _parents(step: NewStep, names: Mapping[str, str]) -> list[str]:
    """The full names of the steps that this step is after. A name means the step that is added under it, if there is
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
