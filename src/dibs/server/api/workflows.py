"""The endpoints `/api/workflows`: start, list, read, extend, cancel and retry workflows.

To an API key that is limited to queues, a workflow with a task in any other queue must look as if it did not exist.
Every endpoint here and every page of the dashboard about one workflow therefore runs its operation through `if_visible`
or `change`, or checks the workflow with `_check_visible` before it answers. The JSON is defined in
`dibs.wire.workflows`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from dibs.errors import InvalidGraph, WorkflowNotFound
from dibs.json_values import encode_params
from dibs.model.key import Scope
from dibs.model.task import DEFAULT_QUEUE, NewTask
from dibs.model.workflow import NewStep, Workflow, WorkflowState, tasks_in
from dibs.observe import tracing
from dibs.server.api.limits import check_new_tasks
from dibs.server.endpoint import TRACEPARENT, Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import workflows as wire
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import Empty

T = TypeVar("T")

TAG = "workflows"
MAX_RENAMES = 100
"""How often names are generated again for steps without names, if concurrent requests have taken the generated
names."""

MISSING = {404: "There is no such workflow."}
STEPS = [
    {"task_type": "fetch", "params": {"url": "https://example.com/orders"}},
    {"task_type": "render", "after": ["fetch"], "params": {"page": 1}},
    {"task_type": "render", "after": ["fetch"], "params": {"page": 2}},
    {"name": "merge", "task_type": "merge", "after": ["render", "render-2"]},
]
EXAMPLE = {"name": "order", "steps": STEPS, "idempotency_key": "order-7"}
NESTED = {
    "name": "order",
    "steps": [STEPS[0], {"workflow": {"name": "pages", "steps": [{"task_type": "render"}]}, "after": ["fetch"]}],
    "finalizer": {"task_type": "report", "params": {"to": "ops"}},
    "deadline_seconds": 3600,
}


@endpoint(
    "POST",
    "/api/workflows",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.WorkflowBody,
    answers={
        201: (wire.StartedWorkflow, "The whole graph is stored durably."),
        200: (wire.StartedWorkflow, "The idempotency key was used before: this is the existing workflow."),
    },
    refuses={409: "The idempotency key belongs to another graph."},
    examples={"fan out and in": EXAMPLE, "with a sub-workflow, a finalizer and a deadline": NESTED},
    headers=(TRACEPARENT,),
)
async def start(call: Call) -> Answer:
    """Start a workflow: store a graph of steps, all or none.

    A step is a task that can be claimed when the steps in `after` have completed. A graph with a cycle, or with an
    unknown step in `after`, is refused. An idempotency key belongs to the set of queues that the graph names.
    """
    new = tracing.workflow_with_trace(call.body.to_model(), call.trace)
    tasks = list(new.tasks())
    await check_new_tasks(call, tasks)
    if not tasks:
        call.caller.check_queue(DEFAULT_QUEUE)  # the queue of a workflow without tasks
    workflow = await call.run(_hide_foreign_workflow(call, call.service.store.workflows.start_workflow(new)))
    _finalize_if_idle(call, workflow)
    return Answer(wire.StartedWorkflow.from_model(workflow), 200 if workflow.deduplicated else 201)


@endpoint(
    "GET",
    "/api/workflows",
    Scope.READ,
    tag=TAG,
    query=wire.WorkflowsQuery,
    answers={200: (wire.WorkflowPage, "A page of workflows.")},
)
async def list_workflows(call: Call) -> Answer:
    """List workflows, newest first, page by page, without sub-workflows."""
    query: wire.WorkflowsQuery = call.query or wire.WorkflowsQuery()
    found = await call.run(call.service.store.workflows.list_workflows(query.to_model(call.caller.queues)))
    return Answer(wire.WorkflowPage.from_models(found, query.limit))


@endpoint(
    "GET",
    "/api/workflows/{id:int}",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.OneWorkflow, "The workflow.")},
    refuses=MISSING,
)
async def get(call: Call) -> Answer:
    """Read a workflow."""
    workflow = await call.run(call.service.store.workflows.get_workflow(workflow_id(call)))
    return Answer(wire.OneWorkflow.from_model(_check_visible(call, workflow_id(call), workflow)))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/steps",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.Steps, "In the order in which the steps were added.")},
    refuses=MISSING,
)
async def steps(call: Call) -> Answer:
    """List the steps of a workflow with their states."""
    found = await call.run(if_visible(call, call.service.store.workflows.steps(workflow_id(call))))
    return Answer(wire.Steps.from_model(found))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/steps",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MoreStepsBody,
    answers={200: (wire.ChangedWorkflow, "All steps are stored.")},
    refuses={**MISSING, 409: "The workflow has ended, or starts no more steps."},
    examples={"one more": {"steps": [{"name": "extra", "task_type": "render", "params": {"page": 3}}]}},
    headers=(TRACEPARENT,),
)
async def add_steps(call: Call) -> Answer:
    """Add steps to a running workflow, all or none. A running step adds steps when it is completed instead."""
    new = await _named_steps(call, call.body)
    await check_new_tasks(call, tasks_in(new))
    for _ in range(MAX_RENAMES):
        try:
            return await _add(call, new)
        except InvalidGraph:  # a concurrent request may have used a generated name
            renamed = await _named_steps(call, call.body)
            if renamed == new:  # the generated names are not the reason
                raise
            new = renamed
    return await _add(call, new)


@endpoint(
    "POST",
    "/api/workflows/{id:int}/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedWorkflow, "No more steps start; running steps are asked to stop.")},
    refuses={**MISSING, 409: "The workflow has completed or failed."},
)
async def cancel(call: Call) -> Answer:
    """Cancel a workflow."""
    return await _answer_with_changed(call, call.service.store.workflows.cancel_workflow(workflow_id(call)))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/retry",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedWorkflow, "The workflow is running again.")},
    refuses={**MISSING, 409: "The workflow is neither failed nor cancelled."},
)
async def retry(call: Call) -> Answer:
    """Retry a failed or cancelled workflow. It continues where it stopped: completed steps are not repeated."""
    return await _answer_with_changed(call, call.service.store.workflows.retry_workflow(workflow_id(call)))


def check_params(tasks: Iterable[NewTask]) -> None:
    """Raise InvalidValue for params that cannot be stored, before the store is called."""
    for task in tasks:
        encode_params(task.params)


def workflow_id(call: Call) -> int:
    """Return the id of the workflow in the path. Raises WorkflowNotFound for an id that the databases cannot store."""
    id: int = call.path["id"]
    if id >= 2**63:
        raise WorkflowNotFound(id)
    return id


def if_visible(call: Call, operation: Operation[T]) -> Operation[T]:
    """Return an operation that first checks that the caller may see the workflow in the path.

    The check and the operation run in one transaction, because between two transactions another client could add steps
    in other queues.
    """
    if call.caller.queues is None:
        return operation
    read = call.service.store.workflows.get_workflow(workflow_id(call))

    def begin() -> Generator[Any, Any, Any]:
        _check_visible(call, workflow_id(call), read.result((yield from read.begin())))
        return (yield from operation.begin())

    return operation.around(begin)


async def change(call: Call, operation: Operation[Workflow]) -> Workflow:
    """Run an operation that changes the workflow in the path, if the caller may see the workflow. Return the
    workflow."""
    workflow = await call.run(if_visible(call, operation))
    _finalize_if_idle(call, workflow)
    return workflow


def _check_visible(call: Call, id: int, workflow: Workflow | None) -> Workflow:
    if workflow is None or not _is_visible(call, workflow):
        raise WorkflowNotFound(id)
    return workflow


def _is_visible(call: Call, workflow: Workflow) -> bool:
    return all(call.caller.serves(queue) for queue in workflow.queues)


def _hide_foreign_workflow(call: Call, starting: Operation[Workflow]) -> Operation[Workflow]:
    """Return the operation with a check of its result: an idempotency key is refused if it belongs to a workflow that
    the caller may not see.

    A workflow that was started in queues of the caller may have got steps in other queues later.
    """
    if call.caller.queues is None:
        return starting

    def begin() -> Generator[Any, Any, Any]:
        result = yield from starting.begin()
        workflow = starting.result(result)
        if not _is_visible(call, workflow):
            message = f"The idempotency key {workflow.key!r} belongs to another workflow."
            raise RequestRefused("key_conflict", message, hint="Use another idempotency key.")
        return result

    return starting.around(begin)


async def _named_steps(call: Call, body: wire.MoreStepsBody) -> list[NewStep]:
    """Return the steps of the request, with a generated name for each step without a name.

    The names of the existing steps are read only if a name is missing.
    """
    if all(step.name is not None for step in body.steps):
        return body.to_model()
    known = await call.run(if_visible(call, call.service.store.workflows.steps(workflow_id(call))))
    return body.to_model({step.name for step in known})


async def _add(call: Call, new: list[NewStep]) -> Answer:
    steps = tracing.steps_with_trace(new, call.trace)
    return await _answer_with_changed(call, call.service.store.workflows.add_steps(workflow_id(call), steps))


async def _answer_with_changed(call: Call, operation: Operation[Workflow]) -> Answer:
    return Answer(wire.ChangedWorkflow.from_model(await change(call, operation)))


def _finalize_if_idle(call: Call, workflow: Workflow) -> None:
    """Finalize a workflow that has no open steps, because it is cancelled or empty. The next upkeep would do it
    later."""
    if workflow.state is WorkflowState.RUNNING and not workflow.active:
        call.service.finalize(workflow.id)


ENDPOINTS = [start, list_workflows, get, steps, add_steps, cancel, retry]
