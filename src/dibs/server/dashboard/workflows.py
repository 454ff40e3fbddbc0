"""The workflow pages: a list of workflows, and a page with the graph and the steps of one workflow.

A key that is limited to queues does not see a workflow with a task in any other queue.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Literal
from urllib.parse import urlencode

import msgspec

from dibs.errors import WorkflowNotFound
from dibs.model.key import Scope
from dibs.model.task import State
from dibs.model.workflow import (
    STOP_CANCELLED,
    STOP_PRUNED,
    Step,
    StepDetails,
    StepGroup,
    SubWorkflowProgress,
    Workflow,
    WorkflowFilter,
    WorkflowState,
)
from dibs.server.api.workflows import change, if_visible, workflow_id
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.server.dashboard.workflow_graphs import GraphShape, group_statuses, in_state, read_shape
from dibs.server.dashboard.workflow_picture import Picture, Scene, bar, draw, duration
from dibs.workflow.summary import shown_state

SHOWN = 50
"""Number of workflows on a page."""

ROWS = 100
"""Number of steps in the table of a page."""

PARENTS = 3
"""Maximum number of parents that a row names; of more it shows the number."""

MAX_SECONDS = 0.1
"""Seconds after which a search for workflows ends."""


class WorkflowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query for workflows."""

    state: WorkflowState | None = None
    name: str | None = None
    cursor: int | None = None

    def address(self, cursor: int | None) -> str:
        """Return the URL of the page that starts after `cursor`."""
        parameters = {"state": self.state, "name": self.name, "cursor": cursor}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return f"/workflows?{query}" if query else "/workflows"


class WorkflowPageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The view of a workflow: `unfold` draws every step; `of` (a step of a box), `state` and `cursor` select the steps
    in the table."""

    unfold: Literal["1"] | None = None
    of: int | None = None
    state: State | None = None
    cursor: int | None = None

    def address(self, flow_id: int, **also: object) -> str:
        """Return the URL of this view with changes; None removes a parameter."""
        parameters = {**msgspec.structs.asdict(self), "cursor": None, **also}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return f"/workflows/{flow_id}?{query}" if query else f"/workflows/{flow_id}"


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of the table of steps."""

    step: Step
    state: str
    after: Sequence[Step]
    more: int
    duration: float | None
    inside: SubWorkflowProgress | None
    error: str | None


@page("GET", "/workflows", Scope.READ, query=WorkflowQuery)
async def workflows(request: PageRequest) -> PageResult:
    """Render workflows, newest first, without sub-workflows."""
    query: WorkflowQuery = request.query
    found, cursor = await _find(request, query)
    rows = [(each, bar(_counts(each)), _duration(each)) for each in found]
    return request.render(
        "workflows.html",
        query=query,
        rows=rows,
        states=list(WorkflowState),
        older=None if cursor is None else query.address(cursor),
        newest=query.address(None),
    )


@page("GET", "/workflows/{id:int}", Scope.READ, query=WorkflowPageQuery)
async def workflow(request: PageRequest) -> PageResult:
    """Render one workflow: its graph, steps, progress and finalization."""
    flow_id, store, now = workflow_id(request), request.service.store, datetime.now(UTC)
    flow = await request.run(if_visible(request, store.workflows.get_workflow(flow_id)))
    if flow is None:
        raise WorkflowNotFound(flow_id)
    view: WorkflowPageQuery = request.query
    shape, states = await read_shape(request, flow, unfold=bool(view.unfold))
    shown, next_cursor = _table(shape, states, view)
    wanted = _steps_to_read(shape, shown)
    details = await request.run(if_visible(request, store.workflows.step_details(wanted)))
    if len(details.steps) < len(wanted):
        raise WorkflowNotFound(flow_id)  # upkeep pruned the workflow meanwhile
    scene = Scene(details, view.address(flow_id, of=None), now)
    drawn = await asyncio.to_thread(_draw, shape, states, scene)
    steps = [details.steps[each] for each in shown]
    errors = await request.run(
        if_visible(request, store.workflows.step_errors([step.task_id for step in steps if _may_have_failed(step)]))
    )
    context = await request.run(if_visible(request, store.finalization.execution_context(flow_id)))
    return request.render(
        "workflow.html",
        flow=flow,
        view=view,
        shape=shape,
        picture=drawn,
        rows=_rows(steps, shape, details, errors, now),
        next_page=None if next_cursor is None else view.address(flow_id, cursor=next_cursor),
        group=shape.group_with(view.of),
        context=context,
        counts=bar(context.by_state),
        attempts=await request.run(if_visible(request, store.finalization.latest_attempts(flow_id))),
        finalizer=None if flow.finalizer_id is None else details.steps.get(flow.finalizer_id),
        held=_is_held(flow, now),
        duration=_duration(flow),
        may_cancel=not flow.finished and flow.stopping != STOP_CANCELLED and request.may(Scope.ENQUEUE),
        may_retry=_is_retryable(flow) and request.may(Scope.ENQUEUE),
    )


@page("POST", "/workflows/{id:int}/cancel", Scope.ENQUEUE)
async def cancel(request: PageRequest) -> PageResult:
    """Cancel the workflow: no further step is started, and claimed steps are parameters to stop."""
    flow = await change(request, request.service.store.workflows.cancel_workflow(workflow_id(request)))
    notice = "Cancelled." if flow.finished else "No further step is started; claimed steps were parameters to stop."
    return request.redirect_with_notice(f"/workflows/{flow.id}", notice)


@page("POST", "/workflows/{id:int}/retry", Scope.ENQUEUE)
async def retry(request: PageRequest) -> PageResult:
    """Retry the workflow from where it stopped."""
    flow = await change(request, request.service.store.workflows.retry_workflow(workflow_id(request)))
    return request.redirect_with_notice(
        f"/workflows/{flow.id}", "Retried: the workflow continues from where it stopped."
    )


async def _find(request: PageRequest, query: WorkflowQuery) -> tuple[list[Workflow], int | None]:
    """Return a page of matching workflows, or fewer if the search took too long, and the next cursor."""
    found, cursor, ends_at = list[Workflow](), query.cursor, time.monotonic() + MAX_SECONDS
    while True:
        criteria = WorkflowFilter(
            state=query.state, name=query.name, limit=SHOWN - len(found), cursor=cursor, only=request.caller.queues
        )
        more = await request.run(request.service.store.workflows.find_workflows(criteria))
        found, cursor = found + more.workflows, more.cursor
        if cursor is None or len(found) >= SHOWN or time.monotonic() > ends_at:
            return found, cursor


def _counts(flow: Workflow) -> dict[str, int]:
    """Return the number of steps by state, from the row of the workflow."""
    waiting = max(0, flow.steps - flow.ended - flow.active)
    return {
        "completed": flow.ended - flow.failures,
        "failed": flow.failures,
        "claimed": flow.active,
        "blocked": waiting,
    }


def _duration(flow: Workflow) -> float | None:
    return None if flow.finished_at is None else (flow.finished_at - flow.created_at).total_seconds()


def _is_held(flow: Workflow, now: datetime) -> bool:
    return flow.finalization_by is not None and flow.finalization_until is not None and flow.finalization_until > now


def _is_retryable(flow: Workflow) -> bool:
    stopped = flow.state in (WorkflowState.FAILED, WorkflowState.CANCELLED)
    return stopped and flow.step_of is None and flow.stopping != STOP_PRUNED


def _table(shape: GraphShape, states: Sequence[StepGroup], view: WorkflowPageQuery) -> tuple[list[int], int | None]:
    """Return the steps of this page of the table, and the cursor of the next page."""
    group = shape.group_with(view.of)
    ids = shape.ids if group is None else sorted(group.ids)
    ids = ids if view.cursor is None else ids[bisect_right(ids, view.cursor) :]
    if view.state is not None:
        wanted = in_state(states, view.state)
        ids = list(islice((each for each in ids if each in wanted), ROWS + 1))
    return list(ids[:ROWS]), ids[ROWS - 1] if len(ids) > ROWS else None


def _steps_to_read(shape: GraphShape, shown: Sequence[int]) -> list[int]:
    """Return the steps whose details are read: steps in the table, their parents, and steps with their own box."""
    alone = [group.ids[0] for group in shape.groups if not group.folded]
    parents = [parent for each in shown for parent in shape.before(each, PARENTS)[0]]
    return sorted({*shown, *alone, *parents})


def _draw(shape: GraphShape, states: Sequence[StepGroup], scene: Scene) -> Picture:
    return draw(shape.groups, group_statuses(shape, states), scene)


def _may_have_failed(step: Step) -> bool:
    return step.state is not State.COMPLETED and (step.attempts > 0 or step.state in (State.FAILED, State.CANCELLED))


def _rows(
    shown: Sequence[Step], shape: GraphShape, details: StepDetails, errors: Mapping[int, str], now: datetime
) -> list[StepRow]:
    return [_row(step, shape, details, errors.get(step.task_id), now) for step in shown]


def _row(step: Step, shape: GraphShape, details: StepDetails, error: str | None, now: datetime) -> StepRow:
    first, count = shape.before(step.task_id, PARENTS)
    named = [details.steps[each] for each in first]
    return StepRow(
        step, shown_state(step), named, count - len(named), duration(step, now), details.inside.get(step.task_id), error
    )


PAGES = [workflows, workflow, cancel, retry]
