"""Workflows and finalizations over HTTP.

A graph is stored all or none, so a graph that does not fit one request is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from dibs.errors import InvalidValue
from dibs.model.execution import Execution
from dibs.model.finalization import ExecutionContext, FinalizationAttempt, FinalizationClaim, Finalized
from dibs.model.upkeep import BATCH
from dibs.model.workflow import NewStep, NewWorkflow, Step, StepResult, Workflow, WorkflowFilter
from dibs.store.operation import Operation
from dibs.store.remote.decode import reader, reader_or
from dibs.store.remote.request import HttpCall, api_path, check_fits, encode, get, post, read_operation, write_operation
from dibs.wire import finalization, workflows
from dibs.wire.fields import RequestBody

_read_started = reader(workflows.StartedWorkflow)
_read_changed = reader(workflows.ChangedWorkflow)
_read_workflow = reader_or(workflows.OneWorkflow, None)
_read_page = reader(workflows.WorkflowPage)
_read_steps = reader(workflows.Steps)
_read_results = reader_or(workflows.Results, [])
_read_execution = reader(workflows.OneExecution)
_read_context = reader(finalization.OneContext)
_read_due = reader(finalization.DueWorkflows)
_read_claim = reader(finalization.FinalizationClaim)
_read_released = reader_or(finalization.FinalizationReleased, False)
_read_finalized = reader(finalization.Finalized)
_read_attempts = reader_or(finalization.FinalizationAttempts, [])

REFUSALS = frozenset({404, 409})
"""Statuses of a finalization claim that is not granted. The body is a FinalizationClaim, not an error."""


class RemoteWorkflows:
    """Start workflows, add steps, cancel, retry and look at workflows. See WorkflowOperations."""

    def start_workflow(self, new: NewWorkflow) -> Operation[Workflow]:
        """Store the whole graph, or nothing. Safe twice with a key."""
        body = encode(workflows.WorkflowBody.from_model(new))
        check_fits(f"The workflow {new.name!r} does", len(body))
        call = HttpCall("POST", "/api/workflows", body, safe=new.key is not None)
        return write_operation("start_workflow", call, _read_started, wakes=True)

    def add_steps(self, workflow_id: int, steps: Sequence[NewStep]) -> Operation[Workflow]:
        """Add steps to a workflow that still runs. Must not be repeated: the names of the steps would be taken."""
        if not steps:
            raise InvalidValue("There are no steps to add.", hint="Give at least one step.")
        body = encode(workflows.MoreStepsBody.from_model(steps))
        check_fits(f"These {len(steps):,} steps do", len(body), len(steps))
        call = HttpCall("POST", api_path("workflows", workflow_id, "steps"), body, safe=False)
        return write_operation("add_steps", call, _read_changed, wakes=True)

    def get_workflow(self, workflow_id: int) -> Operation[Workflow | None]:
        """The workflow, or None."""
        call = get(api_path("workflows", workflow_id), or_none="workflow_not_found")
        return read_operation("get_workflow", call, _read_workflow)

    def list_workflows(self, which: WorkflowFilter) -> Operation[list[Workflow]]:
        """A page of workflows, newest first."""
        return read_operation(
            "list_workflows", get("/api/workflows", workflows.WorkflowsQuery.from_model(which)), _read_page
        )

    def steps(self, workflow_id: int) -> Operation[list[Step]]:
        """The workflow's steps, or WorkflowNotFound."""
        return read_operation("steps", get(api_path("workflows", workflow_id, "steps")), _read_steps)

    def results(self, task_id: int) -> Operation[list[StepResult]]:
        """The results of the parents of this step."""
        call = get(api_path("tasks", task_id, "results"), or_none="task_not_found")
        return read_operation("results", call, _read_results)

    def execution(self, task_id: int) -> Operation[Execution]:
        """How the steps of the task's workflow ended."""
        return read_operation("execution", get(api_path("tasks", task_id, "execution")), _read_execution)

    def cancel_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Start no more steps, and ask running steps to stop."""
        call = post(api_path("workflows", workflow_id, "cancel"))
        return write_operation("cancel_workflow", call, _read_changed, wakes=True)

    def retry_workflow(self, workflow_id: int) -> Operation[Workflow]:
        """Run the failed and cancelled steps again. Must not be repeated: the workflow may have failed again."""
        call = post(api_path("workflows", workflow_id, "retry"), safe=False)
        return write_operation("retry_workflow", call, _read_changed, wakes=True)


class RemoteFinalization:
    """Finalize workflows, under a claim. See FinalizationOperations."""

    def execution_context(self, workflow_id: int) -> Operation[ExecutionContext]:
        """The state of the workflow's steps, or WorkflowNotFound."""
        return read_operation("execution_context", get(api_path("workflows", workflow_id, "context")), _read_context)

    def due_finalizations(self, limit: int = BATCH) -> Operation[list[int]]:
        """Workflows that wait for their finalization. Advisory."""
        call = get("/api/finalizations/due", finalization.DueQuery(limit=limit))
        return read_operation("due_finalizations", call, _read_due)

    def claim_finalization(self, workflow_id: int, processor: str, lease: int) -> Operation[FinalizationClaim]:
        """Claim the right to finalize. Safe twice: the holder of the claim gets it again."""
        call = _finalization_call(
            workflow_id, "claim", finalization.ClaimFinalizationBody(processor=processor, lease=lease / 1e6)
        )
        return write_operation("claim_finalization", call, _read_claim)

    def renew_finalization(
        self, workflow_id: int, processor: str, token: int, lease: int
    ) -> Operation[FinalizationClaim]:
        """Extend the claim that this processor has under this token. Safe twice."""
        call = _finalization_call(
            workflow_id, "renew", finalization.ExtendBody.from_model(processor, token, lease=lease / 1e6)
        )
        return write_operation("renew_finalization", call, _read_claim)

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Operation[bool]:
        """Give up the claim. Must not be repeated: the second answer would be False."""
        path = api_path("workflows", workflow_id, "finalization", "release")
        call = post(
            path, finalization.HolderBody.from_model(processor, token), safe=False, or_none="workflow_not_found"
        )
        return write_operation("release_finalization", call, _read_released)

    def finalize(self, workflow_id: int, processor: str, token: int) -> Operation[Finalized]:
        """Act on the execution context. Must not be repeated: the claim ends with it."""
        call = post(
            api_path("workflows", workflow_id, "finalize"),
            finalization.HolderBody.from_model(processor, token),
            safe=False,
        )
        return write_operation("finalize", call, _read_finalized, wakes=True)

    def finalization_attempts(self, workflow_id: int) -> Operation[list[FinalizationAttempt]]:
        """Every recorded attempt to claim the finalization of the workflow, in order."""
        call = get(api_path("workflows", workflow_id, "attempts"), or_none="workflow_not_found")
        return read_operation("finalization_attempts", call, _read_attempts)


def _finalization_call(workflow_id: int, verb: str, body: RequestBody) -> HttpCall:
    path = api_path("workflows", workflow_id, "finalization", verb)
    return HttpCall("POST", path, encode(body), answers=REFUSALS)
