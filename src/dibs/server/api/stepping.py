"""What a running step needs: what its parents came to, and what earlier attempts of its own have kept."""

from __future__ import annotations

from collections.abc import Sized

from dibs.errors import TaskNotFound
from dibs.model.key import Scope
from dibs.server.api.fencing import FENCED, HELD, TAG, ref_of
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.claims import CheckpointBody, Checkpoints, Kept
from dibs.wire.workflows import Results


@endpoint(
    "GET",
    "/api/tasks/{id:int}/results",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Results, "In the order in which the parents were added; none for a task that is no step.")},
    refuses={404: ""},
)
async def results(call: Call) -> Answer:
    """The results of this step's parents. For a finalizer: the results of the last steps of its workflow.

    A key that is limited to queues gets the results of parents in these queues only.
    """
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.workflows.results(call.task_id, call.caller.queues))
    await _check_there(call, found)
    return Answer(Results.from_model(found))


@endpoint(
    "GET",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    Scope.READ,
    tag=TAG,
    answers={200: (Checkpoints, "What is kept, by name.")},
    refuses={404: ""},
)
async def checkpoints(call: Call) -> Answer:
    """What earlier attempts of this task have kept."""
    await call.check_visible(call.task_id)
    found = await call.run(call.service.store.queue.checkpoints(call.task_id))
    await _check_there(call, found)
    return Answer(Checkpoints(found))


@endpoint(
    "POST",
    "/api/tasks/{id:int}/checkpoints",
    Scope.WORK,
    tag=TAG,
    body=CheckpointBody,
    answers={200: (Kept, "The value that is kept: an earlier one under this name stays.")},
    refuses=FENCED,
    examples={"downloaded": {**HELD, "name": "downloaded", "value": {"path": "videos/abc123"}}},
)
async def keep_checkpoint(call: Call) -> Answer:
    """Keep a value for later attempts, so that what is done once is not done again."""
    body: CheckpointBody = call.body
    await call.check_visible(call.task_id)
    value = await call.run(call.service.store.queue.keep_checkpoint(ref_of(call, body), body.name, body.value))
    return Answer(Kept(True, value))


async def _check_there(call: Call, found: Sized) -> None:
    """Nothing was found: is that because there is no such task?"""
    if not found and not await call.run(call.service.store.tasks.queues_of([call.task_id])):
        raise TaskNotFound(call.task_id)


ENDPOINTS = [results, checkpoints, keep_checkpoint]
