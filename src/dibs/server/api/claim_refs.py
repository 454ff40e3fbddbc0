"""Fencing over HTTP: which claims a request names, and an answer to each of them, refused or not."""

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
OF_WORKFLOW = re.compile("workflow-[0-9]+")


def ref_of(call: Call, body: ClaimHolder) -> ClaimRef:
    """The claim of the task in the path."""
    check_worker(body.worker_id)
    return body.ref(call.task_id)


def refs_of(worker_id: str, claims: Sequence[ClaimFields]) -> list[ClaimRef]:
    """The claims of a worker."""
    check_worker(worker_id)
    return [each.ref(worker_id) for each in claims]


def check_worker(worker_id: str) -> str:
    """A worker, and not the name under which a workflow holds the step that it is."""
    if OF_WORKFLOW.fullmatch(worker_id):
        hint = f"Call your worker something else than {worker_id}."
        raise RequestRefused("forbidden", "Workflows end their own steps.", hint=hint)
    return worker_id


async def fenced(call: Call, refs: list[ClaimRef], write: Write) -> list[Any]:
    """What the store answers to each claim."""
    seen, visible = await seen_of(call, refs)
    return with_unseen(refs, visible, await call.run(write(seen)))


async def seen_of(call: Call, refs: list[ClaimRef]) -> tuple[list[ClaimRef], frozenset[int] | None]:
    """The claims of tasks that the caller may see, and which tasks these are."""
    visible = await call.visible([ref.task_id for ref in refs])
    return (refs if visible is None else [ref for ref in refs if ref.task_id in visible]), visible


def with_unseen(refs: list[ClaimRef], visible: frozenset[int] | None, answers: list[Any]) -> list[Any]:
    """An answer to every claim: a task of a foreign queue is one that does not exist."""
    if visible is None:
        return answers
    told = iter(answers)
    return [next(told) if ref.task_id in visible else TaskNotFound(ref.task_id) for ref in refs]


def or_raise(answer: Any) -> Any:
    """The answer to one claim, raised where it is a refusal."""
    if isinstance(answer, DibsError):
        raise answer
    return answer


def or_refusal(answer: Any, shaped: Callable[[Any], Any]) -> Any | Refusal:
    """The answer to one of many claims, for JSON."""
    return Refusal.from_model(answer) if isinstance(answer, DibsError) else shaped(answer)
