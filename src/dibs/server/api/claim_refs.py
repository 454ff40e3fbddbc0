"""Fencing over HTTP: the claims that a request names, and the answer to each of them, which may be a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dibs.errors import DibsError, TaskNotFound
from dibs.model.claim import ClaimRef
from dibs.server.endpoint import Call
from dibs.store.operation import Operation
from dibs.wire.claims import ClaimFields, ClaimHolder
from dibs.wire.errors import Refusal, RequestRefused

TAG = "claims"
FENCED = {
    403: "Another worker holds the task.",
    404: "",
    409: "The token is stale: the lease ran out or the task was taken back. Nothing was changed.",
}
HELD = {"worker_id": "worker-youtube-01", "token": 1}
Write = Callable[[list[ClaimRef]], Operation[Any]]
WORKFLOW_AS_WORKER = re.compile("workflow-[0-9]+")


def ref_of(call: Call, body: ClaimHolder) -> ClaimRef:
    """Return the claim of the task in the path."""
    check_worker(body.worker_id)
    return body.ref(call.task_id)


def refs_of(worker_id: str, claims: Sequence[ClaimFields]) -> list[ClaimRef]:
    """Return the claims of a worker."""
    check_worker(worker_id)
    return [each.ref(worker_id) for each in claims]


def check_worker(worker_id: str) -> str:
    """Return the worker id. Refuse an id under which a workflow holds its own step in another workflow."""
    if WORKFLOW_AS_WORKER.fullmatch(worker_id):
        hint = "Choose a worker id that does not have the form workflow-NUMBER."
        message = f"The worker id {worker_id} is reserved: only the workflow itself finishes its step."
        raise RequestRefused("forbidden", message, hint=hint)
    return worker_id


async def fenced(call: Call, refs: list[ClaimRef], write: Write) -> list[Any]:
    """Run the operation for the claims whose tasks the caller may see; return the answer to each claim."""
    allowed, visible = await visible_refs(call, refs)
    return with_hidden(refs, visible, await call.run(write(allowed)))


async def visible_refs(call: Call, refs: list[ClaimRef]) -> tuple[list[ClaimRef], frozenset[int] | None]:
    """Return the claims whose tasks the caller may see, and the ids of these tasks; None for all."""
    visible = await call.visible([ref.task_id for ref in refs])
    return (refs if visible is None else [ref for ref in refs if ref.task_id in visible]), visible


def with_hidden(refs: list[ClaimRef], visible: frozenset[int] | None, answers: list[Any]) -> list[Any]:
    """Add an answer for each claim that is not visible: for this caller, its task does not exist."""
    if visible is None:
        return answers
    remaining = iter(answers)
    return [next(remaining) if ref.task_id in visible else TaskNotFound(ref.task_id) for ref in refs]


def or_raise(answer: Any) -> Any:
    """Return the answer to a claim; raise it if it is a refusal."""
    if isinstance(answer, DibsError):
        raise answer
    return answer


def or_refusal(answer: Any, convert: Callable[[Any], Any]) -> Any | Refusal:
    """Return the answer to one of many claims as a wire struct."""
    return Refusal.from_model(answer) if isinstance(answer, DibsError) else convert(answer)
