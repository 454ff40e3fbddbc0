"""Workflows over HTTP: whole graphs in one request, and finalizations claimed from afar.

A graph is stored all or none, so one that does not fit a request is refused here, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.errors import InvalidValue
from dibs.model.claim import MAX_BATCH, Claim, ClaimRef, check_claims
from dibs.model.finalization import ExecutionContext, FinalizationAttempt, FinalizationClaim, Finalized
from dibs.model.upkeep import BATCH
from dibs.model.workflow import NewStep, NewWorkflow, Step, StepResult, Workflow, WorkflowFilter
from dibs.store.operation import Operation
from dibs.store.remote.call import LIMIT, Call, asking, encode, get, looking, place, post
from dibs.store.remote.decode import reader, reader_or
from dibs.wire import finalization, workflows
from dibs.wire.admin import LimitBody
from dibs.wire.claims import CheckpointBody, Checkpoints, KeptCheckpoint
from dibs.wire.fields import Counted, RequestBody

_read_started = reader(workflows.StartedWorkflow)
_read_changed = reader(workflows.ChangedWorkflow)
_read_workflow = reader_or(workflows.OneWorkflow, None)
_read_page = reader(workflows.WorkflowPage)
_read_steps = reader(workflows.Steps)
_read_results = reader_or(workflows.Results, [])
_read_count = reader(Counted)
_read_context = reader(finalization.OneContext)
_read_due = reader(finalization.DueWorkflows)
_read_claim = reader(finalization.FinalizationClaim)
_read_released = reader_or(finalization.FinalizationReleased, False)
_read_finalized = reader(finalization.Finalized)
_read_attempts = reader_or(finalization.Attempts, [])
_read_checkpoints = reader_or(Checkpoints, {})
_read_kept = reader(KeptCheckpoint)

REFUSALS = frozenset({404, 409})
"""What the server answers to a wish to finalize that it does not grant: an answer, not an error."""


class RemoteWorkflows:
    """Start, add, look, finalize."""

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing. Safe twice with a key."""
        body = encode(workflows.WorkflowBody.from_model(new))
        _check_fits(f"The workflow {new.name!r}", len(body))
        call = Call("POST", "/api/workflows", body, safe=new.key is not None)
        return asking("start_workflow", call, _read_started, wakes=True)

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """Add steps to a workflow that still runs. Not safe twice: their names would be taken."""
        if not steps:
            raise InvalidValue("There are no steps to add.", hint="Name at least one.")
        body = encode(workflows.MoreStepsBody.from_model(steps))
        _check_fits("What is added to the workflow", len(body), len(steps))
        call = Call("POST", place("workflows", workflow_id, "steps"), body, safe=False)
        return asking("add_steps", call, _read_changed, wakes=True)

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""
        call = get(place("workflows", workflow_id), or_none="workflow_not_found")
        return looking("get_workflow", call, _read_workflow)

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""
        return looking("list_workflows", get("/api/workflows", workflows.WorkflowsQuery.from_model(which)), _read_page)

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps, or WorkflowNotFound."""
        return looking("steps", get(place("workflows", workflow_id, "steps")), _read_steps)

    def results(self, task_id: int) -> Operation[list[StepResult]]:
        """What the parents of this step came to."""
        call = get(place("tasks", task_id, "results"), or_none="task_not_found")
        return looking("results", call, _read_results)

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Begin nothing more, and ask running steps to stop."""
        call = post(place("workflows", workflow_id, "cancel"))
        return asking("cancel_workflow", call, _read_changed, wakes=True)

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Go on from where it stopped. Not safe twice: it may have failed again in between."""
        call = post(place("workflows", workflow_id, "retry"), safe=False)
        return asking("retry_workflow", call, _read_changed, wakes=True)

    def expire_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Stop workflows past their deadline."""
        call = post("/api/upkeep/expire-workflows", LimitBody(limit=limit))
        return asking("expire_workflows", call, _read_count, wakes=True)

    def mend_workflows(self, limit: int = BATCH) -> Operation[int]:
        """Make up for steps whose workflow was not told."""
        call = post("/api/upkeep/mend-workflows", LimitBody(limit=limit))
        return asking("mend_workflows", call, _read_count, wakes=True)

    # Finalize

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """How the workflow's steps stand, or WorkflowNotFound."""
        return looking("execution_context", get(place("workflows", workflow_id, "context")), _read_context)

    def due_finalizations(self, limit: int = BATCH) -> Operation[list[int]]:
        """Workflows that wait for their finalization; only a look."""
        call = get("/api/finalizations/due", finalization.DueQuery(limit=limit))
        return looking("due_finalizations", call, _read_due)

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """Ask for the right to finalize. Safe twice: who has it gets it again."""
        call = _finalization_call(
            workflow_id, "claim", finalization.ClaimFinalizationBody(processor=processor, lease=lease / 1e6)
        )
        return asking("claim_finalization", call, _read_claim)

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extend the claim that this processor has under this token. Safe twice."""
        call = _finalization_call(
            workflow_id, "renew", finalization.ExtendBody.from_model(processor, token, lease=lease / 1e6)
        )
        return asking("renew_finalization", call, _read_claim)

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Give the claim up. Not safe twice: the second time nobody has it, and the answer is False."""
        path = place("workflows", workflow_id, "finalization", "release")
        call = post(
            path, finalization.HolderBody.from_model(processor, token), safe=False, or_none="workflow_not_found"
        )
        return asking("release_finalization", call, _read_released)

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """Act on how the workflow stands. Not safe twice: the claim ends with it."""
        call = post(
            place("workflows", workflow_id, "finalize"),
            finalization.HolderBody.from_model(processor, token),
            safe=False,
        )
        return asking("finalize", call, _read_finalized, wakes=True)

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded wish to finalize the workflow, in order."""
        call = get(place("workflows", workflow_id, "attempts"), or_none="workflow_not_found")
        return looking("finalization_attempts", call, _read_attempts)

    # Checkpoints

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """What earlier attempts of the task have kept."""
        call = get(place("tasks", task_id, "checkpoints"), or_none="task_not_found")
        return looking("checkpoints", call, _read_checkpoints)

    def keep_checkpoint(self, claim: Claim | ClaimRef, name: str, value: Any) -> Operation[Any]:
        """Keep a value for later attempts. Safe twice: an earlier value stays."""
        check_claims([claim])
        body = encode(CheckpointBody.from_model(claim, name, value))
        _check_fits(f"The checkpoint {name!r}", len(body))
        call = Call("POST", place("tasks", claim.task_id, "checkpoints"), body)
        return asking("keep_checkpoint", call, _read_kept)


def _finalization_call(workflow_id: int, verb: str, body: RequestBody) -> Call:
    path = place("workflows", workflow_id, "finalization", verb)
    return Call("POST", path, encode(body), answers=REFUSALS)


def _check_fits(what: str, size: int, count: int = 1) -> None:
    if count <= MAX_BATCH and size <= LIMIT:
        return
    raise InvalidValue(
        f"{what} does not fit one request: {size:,} bytes, where the server takes {LIMIT:,} and {MAX_BATCH:,} steps "
        "to add.",
        hint="It is stored all or none, so dibs does not split it: add steps while it runs, or keep large data "
        "elsewhere and send a reference to it.",
    )
