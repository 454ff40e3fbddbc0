"""Workflows over HTTP: whole graphs in one request, and finalizations claimed from afar.

A graph is stored all or none, so one that does not fit a request is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.codec import check_name, encode
from dibs.errors import InvalidValue
from dibs.model.checks import check_integer
from dibs.model.claim import MAX_BATCH, Claim, ClaimRef, check_claims
from dibs.model.finalization import ExecutionContext, FinalizationAttempt, FinalizationClaim, Finalized
from dibs.model.upkeep import BATCH
from dibs.model.workflow import NewStep, NewWorkflow, OnFailure, Step, StepResult, Workflow, WorkflowFilter
from dibs.store.operation import Operation
from dibs.store.remote import wire_workflows as wire
from dibs.store.remote.call import LIMIT, Call, asking, get, looking, place, post, without_nones
from dibs.store.remote.tasks import in_utc, task_body
from dibs.store.remote.wire import read_count

REFUSALS = frozenset({404, 409})
"""What the server answers to a wish to finalize that it does not grant: an answer, not an error."""


class RemoteWorkflows:
    """Start, add, look, finalize."""

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing. Safe twice with a key."""
        body = msgspec.json.encode(workflow_body(new))
        _check_fits(f"The workflow {new.name!r}", len(body))
        call = Call("POST", "/api/workflows", body, safe=new.key is not None)
        return asking("start_workflow", call, wire.read_workflow, wakes=True)

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """Add steps to a workflow that still runs. Not safe twice: their names would be taken."""
        if not steps:
            raise InvalidValue("There are no steps to add.", hint="Name at least one.")
        body = msgspec.json.encode({"steps": [step_body(step) for step in steps]})
        _check_fits("What is added to the workflow", len(body), len(steps))
        call = Call("POST", place("workflows", workflow_id, "steps"), body, safe=False)
        return asking("add_steps", call, wire.read_workflow, wakes=True)

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""
        call = get(place("workflows", workflow_id), or_none="workflow_not_found")
        return looking("get_workflow", call, lambda said: None if said is None else wire.read_workflow(said))

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""
        query = {
            "status": None if which.state is None else str(which.state),
            "name": which.name,
            "limit": which.limit,
            "cursor": which.cursor,
        }
        return looking("list_workflows", get("/api/workflows", query), wire.read_workflows)

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps, or WorkflowNotFound."""
        return looking("steps", get(place("workflows", workflow_id, "steps")), wire.read_steps)

    def results(self, task_id: int) -> Operation[list[StepResult]]:
        """What the parents of this step came to."""
        call = get(place("tasks", task_id, "results"), or_none="task_not_found")
        return looking("results", call, lambda said: [] if said is None else wire.read_results(said))

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Begin nothing more, and ask running steps to stop."""
        call = post(place("workflows", workflow_id, "cancel"))
        return asking("cancel_workflow", call, wire.read_workflow, wakes=True)

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Go on from where it stopped. Not safe twice: it may have failed again in between."""
        call = post(place("workflows", workflow_id, "retry"), safe=False)
        return asking("retry_workflow", call, wire.read_workflow, wakes=True)

    def expire_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Stop workflows past their deadline."""
        call = post("/api/upkeep/expire-workflows", {"limit": limit})
        return asking("expire_workflows", call, read_count, wakes=True)

    def mend_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Make up for steps whose workflow was not told."""
        call = post("/api/upkeep/mend-workflows", {"limit": limit})
        return asking("mend_workflows", call, read_count, wakes=True)

    # Finalize

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """How the workflow's steps stand, or WorkflowNotFound."""
        return looking("execution_context", get(place("workflows", workflow_id, "context")), wire.read_context)

    def due_finalizations(self, limit: int = BATCH) -> Operation[list[int]]:
        """Workflows that wait for their finalization; only a look."""
        return looking("due_finalizations", get("/api/finalizations/due", {"limit": limit}), wire.read_due_workflows)

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """Ask for the right to finalize. Safe twice: who has it gets it again."""
        call = _wish(workflow_id, "claim", {"processor_id": processor, "timeout_seconds": lease / 1e6})
        return asking("claim_finalization", call, wire.read_finalization_claim)

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extend the claim that this processor has under this token. Safe twice."""
        call = _wish(workflow_id, "renew", {**_holder(processor, token), "timeout_seconds": lease / 1e6})
        return asking("renew_finalization", call, wire.read_finalization_claim)

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Give the claim up. Not safe twice: the second time nobody has it, and the answer is False."""
        path = place("workflows", workflow_id, "finalization", "release")
        call = post(path, _holder(processor, token), safe=False, or_none="workflow_not_found")
        return asking("release_finalization", call, lambda said: said is not None and wire.read_released(said))

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """Act on how the workflow stands. Not safe twice: the claim ends with it."""
        call = post(place("workflows", workflow_id, "finalize"), _holder(processor, token), safe=False)
        return asking("finalize", call, wire.read_finalized, wakes=True)

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded wish to finalize the workflow, in order."""
        call = get(place("workflows", workflow_id, "attempts"), or_none="workflow_not_found")
        return looking("finalization_attempts", call, lambda said: [] if said is None else wire.read_attempts(said))

    # Checkpoints

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """What earlier attempts of the task have kept."""
        call = get(place("tasks", task_id, "checkpoints"), or_none="task_not_found")
        return looking("checkpoints", call, lambda said: {} if said is None else wire.read_checkpoints(said))

    def keep_checkpoint(self, claim: Claim | ClaimRef, name: str, value: Any) -> Operation[Any]:
        """Keep a value for later attempts. Safe twice: an earlier value stays."""
        check_claims([claim])
        given = {
            "worker_id": claim.worker_id,
            "token": claim.token,
            "name": check_name(name, "The name of a checkpoint"),
            "value": msgspec.Raw(encode(value, "value")),
        }
        body = msgspec.json.encode(given)
        _check_fits(f"The checkpoint {name!r}", len(body))
        call = Call("POST", place("tasks", claim.task_id, "checkpoints"), body)
        return asking("keep_checkpoint", call, wire.read_kept)


def workflow_body(new: NewWorkflow) -> dict[str, Any]:
    """A workflow in the words of the API, those inside it included."""
    moment = new.deadline if isinstance(new.deadline, datetime) else None
    given = {
        "name": new.name,
        "steps": [step_body(step) for step in new.steps],
        "finalizer": None if new.finalizer is None else msgspec.Raw(task_body(new.finalizer)),
        "idempotency_key": new.key,
        "on_failure": None if new.on_failure == OnFailure.FAIL else str(new.on_failure),
        "deadline_seconds": None if moment is not None else new.deadline,
        "deadline_at": in_utc(moment),
    }
    return without_nones(given)


def step_body(step: NewStep) -> msgspec.Raw:
    """A step in the words of the API."""
    about = {
        "name": step.name,
        "after": list(step.after) or None,
        "on_failure": None if step.on_failure is None else str(step.on_failure),
        "workflow": None if step.workflow is None else workflow_body(step.workflow),
    }
    body = msgspec.json.encode(without_nones(about))
    return msgspec.Raw(body if step.task is None else body[:-1] + b"," + task_body(step.task)[1:])


def _wish(workflow_id: int, verb: str, given: dict[str, Any]) -> Call:
    place_of = place("workflows", workflow_id, "finalization", verb)
    return Call("POST", place_of, msgspec.json.encode(given), answers=REFUSALS)


def _holder(processor: str, token: int) -> dict[str, Any]:
    """The processor and the token of a claim, checked: the server would refuse a bad token as bad JSON."""
    check_name(processor, "The processor's id")
    return {"processor_id": processor, "token": check_integer(token, "token", 0, 2**63 - 1)}


def _check_fits(what: str, size: int, count: int = 1) -> None:
    if count <= MAX_BATCH and size <= LIMIT:
        return
    raise InvalidValue(
        f"{what} does not fit one request: {size:,} bytes, where the server takes {LIMIT:,} and {MAX_BATCH:,} steps "
        "to add.",
        hint="It is stored all or none, so dibs does not split it: add steps while it runs, or keep large data "
        "elsewhere and send a reference to it.",
    )
