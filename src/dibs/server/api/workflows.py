"""Workflows: start graphs of steps, look at them, add to them, stop them, let them go on.

To a key that is limited to queues, a workflow with a task in any other queue does not exist.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from dibs.codec import encode_params
from dibs.errors import InvalidGraph, WorkflowNotFound
from dibs.model.key import Scope
from dibs.model.task import DEFAULT_QUEUE, NewTask
from dibs.model.workflow import NewStep, Workflow, WorkflowState, tasks_in
from dibs.observe import tracing
from dibs.server.endpoint import TRACEPARENT, Answer, Call, endpoint
from dibs.store.operation import Operation
from dibs.wire import workflows as wire
from dibs.wire.errors import RequestRefused
from dibs.wire.fields import Empty

T = TypeVar("T")

TAG = "workflows"
RENAMINGS = 100
"""Times that steps without names are named anew, because others took these names meanwhile."""

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
        201: (wire.StartedWorkflow, "The whole graph is stored, durably."),
        200: (wire.StartedWorkflow, "The key was used before: this is it."),
    },
    refuses={409: "The idempotency key belongs to another graph."},
    examples={"fan out and in": EXAMPLE, "with a workflow in it, a finalizer and a deadline": NESTED},
    headers=(TRACEPARENT,),
)
async def start(call: Call) -> Answer:
    """Start a workflow: store a graph of steps, all or none.

    A step is a task that can be claimed once the steps in `after` are done. A graph whose steps wait for each other, or
    for one that does not exist, is refused. An idempotency key belongs to the set of queues that the graph names.
    """
    new = tracing.workflow_with_trace(call.body.to_model(), call.trace)
    tasks = list(new.tasks())
    check_queues(call, tasks)
    if not tasks:
        call.caller.check_queue(DEFAULT_QUEUE)  # a workflow without tasks belongs there
    workflow = await call.run(_if_seen(call, call.service.store.workflows.start_workflow(new)))
    _see_to(call, workflow)
    return Answer(wire.StartedWorkflow.from_model(workflow), 200 if workflow.deduplicated else 201)


@endpoint(
    "GET",
    "/api/workflows",
    Scope.READ,
    tag=TAG,
    query=wire.WorkflowsQuery,
    answers={200: (wire.WorkflowPage, "A page.")},
)
async def list_workflows(call: Call) -> Answer:
    """Workflows, newest first, page by page. Those inside others are left out."""
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
    """One workflow."""
    workflow = await call.run(call.service.store.workflows.get_workflow(workflow_id(call)))
    return Answer(wire.OneWorkflow.from_model(_check_seen(call, workflow_id(call), workflow)))


@endpoint(
    "GET",
    "/api/workflows/{id:int}/steps",
    Scope.READ,
    tag=TAG,
    answers={200: (wire.Steps, "In the order in which they were added.")},
    refuses=MISSING,
)
async def steps(call: Call) -> Answer:
    """The steps of a workflow, and how each stands."""
    found = await call.run(seen(call, call.service.store.workflows.steps(workflow_id(call))))
    return Answer(wire.Steps.from_model(found))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/steps",
    Scope.ENQUEUE,
    tag=TAG,
    body=wire.MoreStepsBody,
    answers={200: (wire.ChangedWorkflow, "All are stored.")},
    refuses={**MISSING, 409: "It has ended, or begins nothing more."},
    examples={"one more": {"steps": [{"name": "extra", "task_type": "render", "params": {"page": 3}}]}},
    headers=(TRACEPARENT,),
)
async def add_steps(call: Call) -> Answer:
    """Add steps to a workflow that still runs, all or none. A running step adds its own when it completes."""
    new = await _named_steps(call, call.body)
    check_queues(call, tasks_in(new))
    for _ in range(RENAMINGS):
        try:
            return await _add(call, new)
        except InvalidGraph:  # somebody may have been faster with a name that was made up here
            again = await _named_steps(call, call.body)
            if again == new:
                raise
            new = again
    return await _add(call, new)


@endpoint(
    "POST",
    "/api/workflows/{id:int}/cancel",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedWorkflow, "Nothing more is begun; running steps are asked to stop.")},
    refuses={**MISSING, 409: "It has ended otherwise."},
)
async def cancel(call: Call) -> Answer:
    """Cancel a workflow."""
    return await _changed(call, call.service.store.workflows.cancel_workflow(workflow_id(call)))


@endpoint(
    "POST",
    "/api/workflows/{id:int}/retry",
    Scope.ENQUEUE,
    tag=TAG,
    body=Empty,
    body_optional=True,
    answers={200: (wire.ChangedWorkflow, "It runs.")},
    refuses={**MISSING, 409: "It is neither failed nor cancelled."},
)
async def retry(call: Call) -> Answer:
    """Let a failed or cancelled workflow go on from where it stopped: what was completed stays."""
    return await _changed(call, call.service.store.workflows.retry_workflow(workflow_id(call)))


def check_queues(call: Call, tasks: Iterable[NewTask]) -> None:
    """Refuse tasks in queues that the caller must not name."""
    if call.caller.queues is not None:
        for task in tasks:
            call.caller.check_queue(task.queue)


def check_params(tasks: Iterable[NewTask]) -> None:
    """Refuse params that dibs does not store, before a store is asked."""
    for task in tasks:
        encode_params(task.params)


def workflow_id(call: Call) -> int:
    """The workflow in the path. A number that none can have is that of one that does not exist."""
    found: int = call.path["id"]
    if found >= 2**63:
        raise WorkflowNotFound(found)
    return found


def seen(call: Call, verb: Operation[T]) -> Operation[T]:
    """The verb, for a limited key in one transaction with a look at whose workflow it is: steps may be added."""
    if call.caller.queues is None:
        return verb
    look = call.service.store.workflows.get_workflow(workflow_id(call))

    def begin() -> Generator[Any, Any, Any]:
        _check_seen(call, workflow_id(call), look.result((yield from look.begin())))
        return (yield from verb.begin())

    return verb.around(begin)


async def change(call: Call, verb: Operation[Workflow]) -> Workflow:
    """The workflow in the path after the verb, if the caller may see it."""
    workflow = await call.run(seen(call, verb))
    _see_to(call, workflow)
    return workflow


def _check_seen(call: Call, found_at: int, workflow: Workflow | None) -> Workflow:
    if workflow is None or not _is_ours(call, workflow):
        raise WorkflowNotFound(found_at)
    return workflow


def _is_ours(call: Call, workflow: Workflow) -> bool:
    return all(call.caller.serves(queue) for queue in workflow.queues)


def _if_seen(call: Call, starting: Operation[Workflow]) -> Operation[Workflow]:
    """The operation, which shows nothing if the workflow that has the key uses foreign queues by now: a workflow that
    was started in the caller's queues can get steps in others."""
    if call.caller.queues is None:
        return starting

    def begin() -> Generator[Any, Any, Any]:
        told = yield from starting.begin()
        workflow = starting.result(told)
        if not _is_ours(call, workflow):
            message = f"The key {workflow.key!r} is taken."
            raise RequestRefused("key_conflict", message, hint="Use another idempotency key.")
        return told

    return starting.around(begin)


async def _named_steps(call: Call, body: wire.MoreStepsBody) -> list[NewStep]:
    """The steps, checked; whoever names all of them spares the look at the names that there are."""
    if all(step.name is not None for step in body.steps):
        return body.to_model()
    known = await call.run(seen(call, call.service.store.workflows.steps(workflow_id(call))))
    return body.to_model({step.name for step in known})


async def _add(call: Call, new: list[NewStep]) -> Answer:
    steps = tracing.steps_with_trace(new, call.trace)
    return await _changed(call, call.service.store.workflows.add_steps(workflow_id(call), steps))


async def _changed(call: Call, verb: Operation[Workflow]) -> Answer:
    return Answer(wire.ChangedWorkflow.from_model(await change(call, verb)))


def _see_to(call: Call, workflow: Workflow) -> None:
    """One that has nothing to run, because it is cancelled or empty, is finalized now, not with the next upkeep."""
    if workflow.state is WorkflowState.RUNNING and not workflow.active:
        call.service.finalize(workflow.id)


ENDPOINTS = [start, list_workflows, get, steps, add_steps, cancel, retry]
