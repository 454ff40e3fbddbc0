"""The list of workflows, and the page of a workflow with its steps: retry and cancel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dibs.client import Dibs
from dibs.django.admin.base import ROWS, StoreAdmin
from dibs.django.admin.html import Html, badge, link, listed, moment, object_url, soft, text
from dibs.django.admin.parts import ListColumn, ListPage, ListTable, ObjectPage, PageSection, StoreAction
from dibs.django.admin.tasks import encoded, filter_links, given, number_in
from dibs.django.models import Task, Workflow
from dibs.errors import WorkflowNotFound
from dibs.model import workflow as model
from dibs.model.workflow import STOP_CANCELLED, STOP_PRUNED, Step, WorkflowState
from dibs.server.dashboard.texts import str_of
from dibs.workflow.summary import shown_state

MAX_PARENTS = 5

_Row = tuple["WorkflowAdmin", model.Workflow]


def _can_be_retried(flow: model.Workflow) -> bool:
    stopped = flow.state in (WorkflowState.FAILED, WorkflowState.CANCELLED)
    return stopped and flow.step_of is None and flow.stopping != STOP_PRUNED


ACTIONS = (
    StoreAction("retry", "Retry", "Retried", "change", Dibs.retry_workflow, applies=_can_be_retried),
    StoreAction(
        "cancel",
        "Cancel",
        "Cancelled",
        "change",
        Dibs.cancel_workflow,
        applies=lambda flow: not flow.finished and flow.stopping != STOP_CANCELLED,
        confirm="No further step starts, and running steps are asked to stop.",
    ),
)


def _progress(flow: model.Workflow) -> str:
    failed = f", {flow.failures:,} failed" if flow.failures else ""
    return f"{flow.ended:,} of {flow.steps:,} steps{failed}"


class WorkflowAdmin(StoreAdmin):
    """The workflows."""

    columns = (
        ListColumn("Workflow", lambda row: link(row[0].address(Workflow, row[1].id), row[1].id)),
        ListColumn("Name", lambda row: text(row[1].name)),
        ListColumn("State", lambda row: badge(row[1].state)),
        ListColumn("Ended", lambda row: text(_progress(row[1]))),
        ListColumn("Created", lambda row: moment(row[1].created_at)),
        ListColumn("Finished", lambda row: moment(row[1].finished_at)),
    )
    store_actions = ACTIONS

    def parse_key(self, key: str) -> int:
        """Return the id of a workflow."""
        found = number_in(key, "The id of a workflow")
        assert found is not None
        return found

    def key_of_row(self, row: _Row) -> int:
        """Return the id of a workflow."""
        return row[1].id

    def read_list(self, request: Any, app: Dibs) -> ListPage:
        """Return a page of workflows, newest first."""
        filters = given(request, ("state", "name"))
        cursor = number_in(request.GET.get("cursor"), "The cursor")
        found = app.list_workflows(state=filters.get("state"), name=filters.get("name"), limit=ROWS, cursor=cursor)
        states = {state.value: state.value.capitalize() for state in WorkflowState}
        return ListPage(
            rows=[(self, flow) for flow in found],
            older="?" + encoded(request, cursor=str(found[-1].id)) if len(found) == ROWS else None,
            newer="?" + encoded(request, cursor=None) if cursor is not None else None,
            links=[filter_links(request, "state", "state", states)],
            fields=[("name", "Name", filters.get("name", ""))],
            kept=filters,
        )

    def read_object(self, request: Any, app: Dibs, key: int) -> ObjectPage:
        """Return the page of a workflow with a page of its steps."""
        flow = app.get_workflow(key)
        if flow is None:
            raise WorkflowNotFound(key)
        steps, site = app.steps(key), self.admin_site.name
        after = number_in(request.GET.get("after"), "The step") or 0
        names = {step.task_id: step.name for step in steps}
        following = [step for step in steps if step.task_id > after]
        rows = [_row(step, names, site) for step in following[:ROWS]]
        table = ListTable(("Step", "Task", "Type", "Queue", "State", "Attempts", "After", "Error"), rows)
        more = link(f"?after={following[ROWS - 1].task_id}", "More steps") if len(following) > ROWS else ""
        sections = [
            PageSection("Workflow", facts=list(_facts(flow, site))),
            PageSection("Steps", table=table, note=more),
        ]
        return ObjectPage(f"Workflow {flow.id}", flow, sections)


def _facts(flow: model.Workflow, site: str) -> Iterator[tuple[str, Html]]:
    yield "Name", text(flow.name, 255)
    yield "State", badge(flow.state)
    yield "Ended", text(_progress(flow))
    if flow.stopping is not None:
        yield "Stopping", text(flow.stopping)
    if flow.error is not None:
        yield "Error", text(str_of(flow.error), 600)
    yield "Created", moment(flow.created_at)
    for label, at in {"Deadline": flow.deadline, "Finished": flow.finished_at}.items():
        if at is not None:
            yield label, moment(at)
    if flow.key is not None:
        yield "Key", text(flow.key, 255)
    yield "Queues", listed(text(queue) for queue in flow.queues)
    if flow.step_of is not None:
        yield "Step of", link(object_url(site, Workflow, flow.root_id), f"workflow {flow.root_id}")
    if flow.finalizer_id is not None:
        yield "Finalizer", link(object_url(site, Task, flow.finalizer_id), f"task {flow.finalizer_id}")


def _row(step: Step, names: dict[int, str], site: str) -> list[Html]:
    parents = ", ".join(names.get(each, str(each)) for each in step.after[:MAX_PARENTS])
    left_out = f" and {len(step.after) - MAX_PARENTS} more" if len(step.after) > MAX_PARENTS else ""
    state = shown_state(step)
    inside = link(object_url(site, Workflow, step.workflow_id), step.name) if step.workflow_id else text(step.name)
    return [
        inside,
        link(object_url(site, Task, step.task_id), step.task_id),
        text(step.type),
        text(step.queue),
        badge(step.state, state),
        text(f"{step.attempts} of {step.max_attempts}"),
        text(parents + left_out, 200) if step.after else soft(""),
        text(str_of(step.error), 200) if step.error is not None else soft(""),
    ]
