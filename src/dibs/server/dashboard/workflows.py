"""Workflows: a list of them, and each drawn as a graph that tells how far it is.

To a key that is limited to queues, a workflow with a task in any other queue does not exist.
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
from dibs.server.api.workflows import change, seen, workflow_id
from dibs.server.dashboard.page import Content, Visit, page
from dibs.server.dashboard.workflow_picture import Picture, Scene, bar, draw, took
from dibs.server.dashboard.workflow_shapes import Shape, in_state, look, stands
from dibs.workflow.summary import word

SHOWN = 50
"""Workflows on a page."""

ROWS = 100
"""Steps in the table of a page."""

PARENTS = 3
"""Steps that a row of the table names as those before it; of more it says how many."""

ENOUGH = 0.1
"""Seconds after which looking for workflows ends, wherever it is."""


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows somebody wants to see."""

    state: WorkflowState | None = None
    name: str | None = None
    cursor: int | None = None

    def address(self, cursor: int | None) -> str:
        """Where to go on."""
        asked = {"state": self.state, "name": self.name, "cursor": cursor}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return f"/workflows?{query}" if query else "/workflows"


class View(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How somebody looks at a workflow: every step drawn alone; in the table those of one box, those of one state,
    those after another."""

    unfold: Literal["1"] | None = None
    of: int | None = None
    state: State | None = None
    cursor: int | None = None

    def address(self, flow: int, **also: object) -> str:
        """The same view with something changed; None takes it away."""
        asked = {**msgspec.structs.asdict(self), "cursor": None, **also}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return f"/workflows/{flow}?{query}" if query else f"/workflows/{flow}"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table of steps."""

    step: Step
    state: str
    after: Sequence[Step]
    more: int
    took: float | None
    inside: SubWorkflowProgress | None
    error: str | None


@page("GET", "/workflows", Scope.READ, query=Wish)
async def workflows(visit: Visit) -> Content:
    """Workflows, newest first. Those inside others are shown with them."""
    wish: Wish = visit.query
    found, cursor = await _find(visit, wish)
    rows = [(each, bar(_counts(each)), _lasted(each)) for each in found]
    return visit.render(
        "workflows.html",
        asked=wish,
        rows=rows,
        states=list(WorkflowState),
        older=None if cursor is None else wish.address(cursor),
        newest=wish.address(None),
    )


@page("GET", "/workflows/{id:int}", Scope.READ, query=View)
async def workflow(visit: Visit) -> Content:
    """One workflow: its graph, its steps, how far it is and who may finalize it."""
    flow, store, now = workflow_id(visit), visit.service.store, datetime.now(UTC)
    one = await visit.run(seen(visit, store.workflows.get_workflow(flow)))
    if one is None:
        raise WorkflowNotFound(flow)
    view: View = visit.query
    shape, states = await look(visit, one, unfold=bool(view.unfold))
    shown, next_cursor = _table(shape, states, view)
    wanted = _wanted(shape, shown)
    some = await visit.run(seen(visit, store.workflows.step_details(wanted)))
    if len(some.steps) < len(wanted):
        raise WorkflowNotFound(flow)  # it was pruned meanwhile
    scene = Scene(some, view.address(flow, of=None), now)
    drawn = await asyncio.to_thread(_draw, shape, states, scene)
    steps = [some.steps[each] for each in shown]
    errors = await visit.run(
        seen(visit, store.workflows.step_errors([step.task_id for step in steps if _may_have_failed(step)]))
    )
    context = await visit.run(seen(visit, store.finalization.execution_context(flow)))
    return visit.render(
        "workflow.html",
        flow=one,
        view=view,
        shape=shape,
        picture=drawn,
        lines=_lines(steps, shape, some, errors, now),
        next_page=None if next_cursor is None else view.address(flow, cursor=next_cursor),
        group=shape.group_with(view.of),
        context=context,
        counts=bar(context.by_state),
        attempts=await visit.run(seen(visit, store.finalization.latest_attempts(flow))),
        finalizer=None if one.finalizer_id is None else some.steps.get(one.finalizer_id),
        held=_is_held(one, now),
        lasted=_lasted(one),
        may_cancel=not one.finished and one.stopping != STOP_CANCELLED and visit.may(Scope.ENQUEUE),
        may_retry=_can_go_on(one) and visit.may(Scope.ENQUEUE),
    )


@page("POST", "/workflows/{id:int}/cancel", Scope.ENQUEUE)
async def cancel(visit: Visit) -> Content:
    """Begin nothing more, and ask what runs to stop."""
    one = await change(visit, visit.service.store.workflows.cancel_workflow(workflow_id(visit)))
    said = "Cancelled." if one.finished else "Nothing more is begun; running steps have been asked to stop."
    return visit.back(f"/workflows/{one.id}", said)


@page("POST", "/workflows/{id:int}/retry", Scope.ENQUEUE)
async def retry(visit: Visit) -> Content:
    """Go on from where it stopped."""
    one = await change(visit, visit.service.store.workflows.retry_workflow(workflow_id(visit)))
    return visit.back(f"/workflows/{one.id}", "It goes on from where it stopped.")


async def _find(visit: Visit, wish: Wish) -> tuple[list[Workflow], int | None]:
    """A page of what is wished for, or what a moment of looking for it found; and where to go on."""
    found, cursor, ends_at = list[Workflow](), wish.cursor, time.monotonic() + ENOUGH
    while True:
        which = WorkflowFilter(
            state=wish.state, name=wish.name, limit=SHOWN - len(found), cursor=cursor, only=visit.caller.queues
        )
        more = await visit.run(visit.service.store.workflows.find_workflows(which))
        found, cursor = found + more.workflows, more.cursor
        if cursor is None or len(found) >= SHOWN or time.monotonic() > ends_at:
            return found, cursor


def _counts(one: Workflow) -> dict[str, int]:
    """How its steps stand, as far as its own row tells."""
    waiting = max(0, one.steps - one.ended - one.active)
    return {"completed": one.ended - one.failures, "failed": one.failures, "claimed": one.active, "blocked": waiting}


def _lasted(one: Workflow) -> float | None:
    return None if one.finished_at is None else (one.finished_at - one.created_at).total_seconds()


def _is_held(one: Workflow, now: datetime) -> bool:
    return one.finalization_by is not None and one.finalization_until is not None and one.finalization_until > now


def _can_go_on(one: Workflow) -> bool:
    stopped = one.state in (WorkflowState.FAILED, WorkflowState.CANCELLED)
    return stopped and one.step_of is None and one.stopping != STOP_PRUNED


def _table(shape: Shape, states: Sequence[StepGroup], view: View) -> tuple[list[int], int | None]:
    """The steps of this page of the table, and where the next begins."""
    group = shape.group_with(view.of)
    ids = shape.ids if group is None else sorted(group.ids)
    ids = ids if view.cursor is None else ids[bisect_right(ids, view.cursor) :]
    if view.state is not None:
        wanted = in_state(states, view.state)
        ids = list(islice((each for each in ids if each in wanted), ROWS + 1))
    return list(ids[:ROWS]), ids[ROWS - 1] if len(ids) > ROWS else None


def _wanted(shape: Shape, shown: Sequence[int]) -> list[int]:
    """The steps of which more is told than how they stand: those of the table and those before them, and those that
    have a box of their own."""
    alone = [group.ids[0] for group in shape.groups if not group.folded]
    parents = [parent for each in shown for parent in shape.before(each, PARENTS)[0]]
    return sorted({*shown, *alone, *parents})


def _draw(shape: Shape, states: Sequence[StepGroup], scene: Scene) -> Picture:
    return draw(shape.groups, stands(shape, states), scene)


def _may_have_failed(step: Step) -> bool:
    return step.state is not State.COMPLETED and (step.attempts > 0 or step.state in (State.FAILED, State.CANCELLED))


def _lines(
    shown: Sequence[Step], shape: Shape, some: StepDetails, errors: Mapping[int, str], now: datetime
) -> list[Line]:
    return [_line(step, shape, some, errors.get(step.task_id), now) for step in shown]


def _line(step: Step, shape: Shape, some: StepDetails, error: str | None, now: datetime) -> Line:
    first, count = shape.before(step.task_id, PARENTS)
    named = [some.steps[each] for each in first]
    return Line(step, word(step), named, count - len(named), took(step, now), some.inside.get(step.task_id), error)


PAGES = [workflows, workflow, cancel, retry]
