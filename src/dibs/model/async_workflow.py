"""The workflow as AsyncDibs returns it. Programs that use Dibs do not import this module."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.model.workflow import WorkflowRecord


class AsyncWorkflow(WorkflowRecord, frozen=True, dict=True):
    """A workflow as returned by AsyncDibs: a Workflow whose methods are awaited."""

    async def wait(self, timeout: float | None = None) -> AsyncWorkflow:
        """Wait until the workflow has ended, and return it. Raises WaitTimeout."""
        ended: AsyncWorkflow = await self._client("wait_workflow").wait_workflow(self.id, timeout)
        return ended

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until the workflow has ended. Returns the result of its finalizer, or the results of its steps by name,
        as `app.workflow_result` does. Raises WorkflowFailed and WaitTimeout."""
        return await self._client("workflow_result").workflow_result(self.id, timeout)

    @classmethod
    def from_record(cls, record: WorkflowRecord) -> AsyncWorkflow:
        """The workflow of this record, which the store has read."""
        return cls(*msgspec.structs.astuple(record))
