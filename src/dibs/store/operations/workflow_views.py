"""Reads of workflows for the dashboard, each limited to what a page shows, however many steps and errors there are.

Keep every read bounded: a statement has a limit, and walks along an index (named in its section of `inspect.sql`; plan
guards test it). A page with a workflow of a million steps costs as much as a page with a workflow of ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dibs.model.checks import check_integer
from dibs.model.finalization import FinalizationAttempt
from dibs.model.task import STATES
from dibs.model.workflow import (
    FoundWorkflows,
    OnFailure,
    Step,
    StepDetails,
    StepGroup,
    StepKind,
    SubWorkflowProgress,
    WorkflowFilter,
    WorkflowOutline,
    WorkflowState,
)
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.finalize import read_attempt
from dibs.store.operations.rows import moment
from dibs.store.operations.workflows import list_some

STEPS = 10_000
EDGES = 100_000
ATTEMPTS = 100
"""The largest number of steps, of dependencies between them, and of attempts to finalize that one call reads."""

SPAN = 20_000
"""The number of workflows that one call searches."""

FEW = 2000
"""If a state has up to this number of workflows, only these are searched, instead of all workflows."""

MAX_ID = 2**63 - 1
_KINDS = {kind.value: kind for kind in StepKind}
_POLICIES = {policy.value: policy for policy in OnFailure}
_decode_ids = msgspec.json.Decoder(list[int]).decode


class WorkflowViews:
    """Read only as much of workflows as a page shows."""

    def outline(self, workflow_id: int, limit: int = STEPS) -> Operation[WorkflowOutline]:
        """The first `limit` steps of a workflow and their dependencies; empty if there is no such workflow."""
        check_integer(limit, "limit", 1, MAX_ID)
        return Operation("outline", lambda: _outline(workflow_id, limit), mode=Mode.READ)

    def step_states(self, workflow_id: int, last: int) -> Operation[list[StepGroup]]:
        """The states of the steps of a workflow, up to the step with the id `last`."""
        return Operation("step_states", lambda: _step_states(workflow_id, last), mode=Mode.READ)

    def step_details(self, task_ids: Sequence[int]) -> Operation[StepDetails]:
        """These steps as they are now. Steps that do not exist are left out."""
        return Operation("step_details", lambda: _step_details(list(task_ids)), mode=Mode.READ)

    def step_errors(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The last error of each of these tasks (`type: message`), its first 200 characters."""
        return Operation("step_errors", lambda: _errors(list(task_ids)), mode=Mode.READ)

    def latest_attempts(self, workflow_id: int, limit: int = ATTEMPTS) -> Operation[list[FinalizationAttempt]]:
        """The newest recorded attempts to claim the finalization of the workflow, newest first."""
        check_integer(limit, "limit", 1, MAX_ID)
        return Operation("latest_attempts", lambda: _attempts(workflow_id, limit), mode=Mode.READ)

    def find_workflows(self, which: WorkflowFilter, span: int = SPAN) -> Operation[FoundWorkflows]:
        """As `list_workflows`, among the candidates of an index, else among the next `span` workflows only: a search
        for a rare name never reads all workflows in one operation."""
        check_integer(span, "span", 1, MAX_ID)
        return Operation("find_workflows", lambda: _find(which, span), mode=Mode.READ)

    def workflow_counts(self) -> Operation[dict[str, int]]:
        """The number of workflows in each state."""
        return Operation("workflow_counts", _workflow_counts, mode=Mode.READ)


def _outline(workflow_id: int, limit: int) -> Statements[WorkflowOutline]:
    rows = yield Statement("outline", {"id": workflow_id}, words=limited(limit + 1))
    some = rows[:limit]
    if not some:
        return WorkflowOutline((), (), (), (), (), True)
    ids, names, kinds, types = zip(*some, strict=True)
    [edges] = yield Statement("outline_edges", {"id": workflow_id, "last": ids[-1]}, words=limited(EDGES + 1))
    above, below = map(_decode_ids, edges)
    whole = len(some) == len(rows) and len(above) <= EDGES
    return WorkflowOutline(ids, names, kinds, types, _parents(ids, above[:EDGES], below[:EDGES]), whole)


def _parents(ids: Sequence[int], above: Sequence[int], below: Sequence[int]) -> list[list[int]]:
    """The indexes of the parents of each step. Steps outside of `ids` are left out."""
    places = {task_id: place for place, task_id in enumerate(ids)}
    parents: list[list[int]] = [[] for _ in ids]
    for parent, child in zip(above, below, strict=True):
        if parent in places and child in places:
            parents[places[child]].append(places[parent])
    return parents


def _step_states(workflow_id: int, last: int) -> Statements[list[StepGroup]]:
    rows = yield Statement("step_states", {"id": workflow_id, "last": last})
    return [
        StepGroup(STATES[state], _POLICIES[on_failure], None if passed is None else bool(passed), _decode_ids(ids))
        for state, on_failure, passed, ids in rows
    ]


def _step_details(task_ids: list[int]) -> Statements[StepDetails]:
    rows = (yield Statement("some_steps", {"ids": task_ids})) if task_ids else []
    inside = {row[0]: SubWorkflowProgress(*row[-2:]) for row in rows if row[-2] is not None}
    return StepDetails({row[0]: _read_step(row[:-2]) for row in rows}, inside)


def _read_step(row: Row) -> Step:
    (task_id, name, kind, type_name, queue, state, attempts, max_attempts, waits, on_failure, passed, worker_id,
     claimed_at, finished_at, workflow_id) = row  # fmt: skip
    return Step(
        task_id=task_id,
        name=name,
        kind=_KINDS[kind],
        type=type_name,
        queue=queue,
        state=STATES[state],
        attempts=attempts,
        max_attempts=max_attempts,
        after=[],
        waits=waits,
        on_failure=_POLICIES[on_failure],
        passed=None if passed is None else bool(passed),
        worker_id=worker_id,
        claimed_at=moment(claimed_at),
        finished_at=moment(finished_at),
        error=None,
        workflow_id=workflow_id,
    )


def _errors(task_ids: list[int]) -> Statements[dict[int, str]]:
    rows = (yield Statement("step_errors", {"ids": task_ids})) if task_ids else []
    return dict(rows)


def _attempts(workflow_id: int, limit: int) -> Statements[list[FinalizationAttempt]]:
    rows = yield Statement("finalization_attempts", {"id": workflow_id}, words=limited(limit))
    return [read_attempt(row) for row in rows]


def _find(which: WorkflowFilter, span: int) -> Statements[FoundWorkflows]:
    ids = yield from _few(which.state)
    if ids is None:
        return (yield from _search_range(which, span))
    found = (yield from list_some(which, ids=ids)) if ids else []
    return FoundWorkflows(found, found[-1].id if len(found) == which.limit else None)


def _few(state: str | None) -> Statements[list[int] | None]:
    """The ids of the workflows in this state, if they are few; None if they are many, or the state has no index."""
    if state is None or state == WorkflowState.FINALIZING:
        return None
    if state == WorkflowState.RUNNING:
        words = (("condition", "state = 'running'"), ("order", "id"))
    else:
        words = (("condition", "state = :state AND finished_at IS NOT NULL"), ("order", "finished_at"))
    rows = yield Statement("few_workflows", {"state": state}, words=(*words, *limited(FEW + 1)))
    return [row[0] for row in rows] if len(rows) <= FEW else None


def _search_range(which: WorkflowFilter, span: int) -> Statements[FoundWorkflows]:
    below = MAX_ID if which.cursor is None else which.cursor
    [(lowest, looked)] = yield Statement("workflow_range", {"below": below}, words=limited(span))
    if not looked:
        return FoundWorkflows([], None)
    found = yield from list_some(which, floor=lowest)
    if len(found) == which.limit:
        return FoundWorkflows(found, found[-1].id)
    return FoundWorkflows(found, lowest if looked == span else None)


def _workflow_counts() -> Statements[dict[str, int]]:
    rows = yield Statement("workflow_counts")
    return {state: count for state, count in rows if count}
