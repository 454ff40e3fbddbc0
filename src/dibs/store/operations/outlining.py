"""Workflows as the dashboard shows them: as much as fits a page, however many steps, errors and attempts there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from dibs.step import FinalizationAttempt, Kind, OnFailure, Step, Workflow, WorkflowFilter, WorkflowState
from dibs.store.operation import Operation, Row, Statement, Steps, limited
from dibs.store.operations.finalizing import read_attempt
from dibs.store.operations.rows import STATES, moment
from dibs.store.operations.workflows import list_some
from dibs.task import check_integer

STEPS = 10_000
EDGES = 100_000
ATTEMPTS = 100
SPAN = 20_000
"""Workflows that one call looks at to find those that match."""

FEW = 2000
"""Workflows in a state that are looked at one by one, instead of all workflows."""

MAX_ID = 2**63 - 1
_KINDS = {kind.value: kind for kind in Kind}
_POLICIES = {policy.value: policy for policy in OnFailure}


class Outline(msgspec.Struct, frozen=True):
    """The first steps of a workflow, without their errors. `whole`: no step and no dependency was left out."""

    steps: list[Step]
    whole: bool


class FoundWorkflows(msgspec.Struct, frozen=True):
    """A page of workflows. `cursor`: go on below this id; None: everything has been looked through."""

    workflows: list[Workflow]
    cursor: int | None


class Outlining:
    """Looks that read no more than is shown."""

    def outline(self, workflow_id: int, limit: int = STEPS, *, edges: bool = True) -> Operation[Outline]:
        """The first `limit` steps of a workflow in the order in which they were added; none if there is no such.
        Without edges: for who knows already what comes after what."""
        check_integer(limit, "limit", 1, MAX_ID)
        return Operation("outline", lambda: _outline(workflow_id, limit, edges), writes=False)

    def step_errors(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """What went wrong last with each of these tasks: `type: message`, its first 200 characters."""
        return Operation("step_errors", lambda: _errors(list(task_ids)), writes=False)

    def latest_attempts(self, workflow_id: int, limit: int = ATTEMPTS) -> Operation[list[FinalizationAttempt]]:
        """The newest wishes to finalize the workflow, newest first."""
        check_integer(limit, "limit", 1, MAX_ID)
        return Operation("latest_attempts", lambda: _attempts(workflow_id, limit), writes=False)

    def find_workflows(self, which: WorkflowFilter, span: int = SPAN) -> Operation[FoundWorkflows]:
        """As `list_workflows`, among those that an index leads to, else among the next `span` workflows alone: no name
        is so rare that all others are looked through for it in one go."""
        check_integer(span, "span", 1, MAX_ID)
        return Operation("find_workflows", lambda: _find(which, span), writes=False)


def _outline(workflow_id: int, limit: int, edges: bool) -> Steps[Outline]:
    rows = yield Statement("outline", {"id": workflow_id}, words=limited(limit + 1))
    some = rows[:limit]
    whole = len(some) == len(rows)
    parents: defaultdict[int, list[int]] = defaultdict(list)
    if edges and some:
        given = {"id": workflow_id, "last": some[-1][0]}
        pairs = yield Statement("outline_edges", given, words=limited(EDGES + 1))
        for parent, child in pairs[:EDGES]:
            parents[child].append(parent)
        whole = whole and len(pairs) <= EDGES
    return Outline([_read_step(row, parents.get(row[0]) or []) for row in some], whole)


def _read_step(row: Row, after: list[int]) -> Step:
    (task_id, name, kind, type_name, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id,
     claimed_at, finished_at, workflow_id) = row  # fmt: skip
    return Step(
        task_id,
        name,
        _KINDS[kind],
        type_name,
        queue,
        STATES[state],
        attempts,
        max_attempts,
        after,
        waits,
        _POLICIES[on_failure],
        None if passed is None else bool(passed),
        worker_id,
        moment(claimed_at),
        moment(finished_at),
        None,
        workflow_id,
    )


def _errors(task_ids: list[int]) -> Steps[dict[int, str]]:
    rows = (yield Statement("step_errors", {"ids": task_ids})) if task_ids else []
    return dict(rows)


def _attempts(workflow_id: int, limit: int) -> Steps[list[FinalizationAttempt]]:
    rows = yield Statement("latest_attempts", {"id": workflow_id}, words=limited(limit))
    return [read_attempt(row) for row in rows]


def _find(which: WorkflowFilter, span: int) -> Steps[FoundWorkflows]:
    ids = yield from _few(which.state)
    if ids is None:
        return (yield from _along(which, span))
    found = (yield from list_some(which, ids=ids)) if ids else []
    return FoundWorkflows(found, found[-1].id if len(found) == which.limit else None)


def _few(state: str | None) -> Steps[list[int] | None]:
    """The workflows in this state by its index, where they are few; None where they are many, or have none."""
    if state is None or state == WorkflowState.FINALIZING:
        return None
    if state == WorkflowState.RUNNING:
        rows = yield Statement("few_running_workflows", words=limited(FEW + 1))
    else:
        rows = yield Statement("few_ended_workflows", {"state": state}, words=limited(FEW + 1))
    return [row[0] for row in rows] if len(rows) <= FEW else None


def _along(which: WorkflowFilter, span: int) -> Steps[FoundWorkflows]:
    below = MAX_ID if which.cursor is None else which.cursor
    [(lowest, looked)] = yield Statement("workflow_stretch", {"below": below}, words=limited(span))
    if not looked:
        return FoundWorkflows([], None)
    found = yield from list_some(which, floor=lowest)
    if len(found) == which.limit:
        return FoundWorkflows(found, found[-1].id)
    return FoundWorkflows(found, lowest if looked == span else None)
