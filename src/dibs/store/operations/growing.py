"""Growing: a step adds steps to its workflow, in the transaction that completes it.

Who waits for the step waits for those as well: they come between. An attempt that fails adds nothing, and one that is
told again adds nothing twice, since a step is completed once.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dibs.codec import MAX_NAME
from dibs.errors import InvalidGraph, InvalidValue
from dibs.step import Kind, NewStep, check_graph, tasks_in
from dibs.store.operation import Operation, Statement, Steps
from dibs.store.operations.adding import Adding, Home, Known, Part, check_room
from dibs.store.operations.advancing import CANCELLED, Tally
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

    def plan_growth(self, task_id: int, steps: Sequence[NewStep], checks: Checks) -> Steps[Growth]:
        """Check what this task wants to add; InvalidValue where that cannot be. The tree is held."""
        rows = yield Statement("step", {"ids": [task_id]})
        if not rows:
            raise InvalidValue(f"Task {task_id} is no step of a workflow: it cannot add steps to one.")
        _, workflow_id, name, kind, _, _, stopping, on_failure, root_id = rows[0]
        if kind == Kind.FINALIZER:
            raise InvalidValue("A finalizer cannot add steps: its workflow is over.", hint="Start another workflow.")
        check_room((yield from self.read_workflow(workflow_id)), steps)
        named = _under(name, task_id, steps)
        self.check_tasks(tasks_in(named), checks)
        known = yield from self.known_steps(workflow_id, named)
        yield from self._check_order(task_id, named, known)
        home = Home(workflow_id, root_id, on_failure)
        return Growth(task_id, home, named, known, stopping is not None, checks)

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
        for step in growth.steps:
            if step.workflow is not None:
                for (sub,) in (yield Statement("workflow_of_step", {"id": names[step.name]})):
                    yield from self.give_up(sub, CANCELLED, tally)


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


def _under(parent: str, task_id: int, steps: Sequence[NewStep]) -> list[NewStep]:
    """The steps under the name of the one that adds them, so that they are not mistaken for others. Those that name no
    parent are after it."""
    names = {step.name: _name(parent, task_id, step.name) for step in steps}
    if len(names) < len(steps):
        raise InvalidGraph("Two of the added steps have the same name.", hint="Give one of them another name.")
    return [
        msgspec.structs.replace(
            step, name=names[step.name], after=[names.get(each, each) for each in step.after or [parent]]
        )
        for step in steps
    ]


def _name(parent: str, task_id: int, name: str) -> str:
    """Where steps add steps that add steps, the names of all of them would not fit: then the last one's id stands for
    them."""
    whole = f"{parent}/{name}"
    return whole if len(whole) <= MAX_NAME else f"#{task_id}/{name}"
