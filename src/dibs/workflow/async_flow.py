"""The workflow builder of AsyncDibs. Programs that use Dibs do not import this module."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dibs.errors import InvalidValue
from dibs.model.async_workflow import AsyncWorkflow
from dibs.workflow.builder import FlowBase


class AsyncFlow(FlowBase[AsyncWorkflow]):
    """Builds a workflow in a block, `async with app.workflow(…) as flow:`, and stores it at the end of the block."""

    async def wait(self, timeout: float | None = None) -> AsyncWorkflow:
        """Wait until the stored workflow has ended, and return it. Raises WaitTimeout; the workflow continues."""
        return await self.stored.wait(timeout)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until the stored workflow has ended. Returns the result of its finalizer, or the results of its steps by
        name. Raises WorkflowFailed, whose `execution` tells what failed, and WaitTimeout."""
        return await self.stored.result(timeout)

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._stored = await self._start(self.new())

    if not TYPE_CHECKING:  # type checkers refuse `with` by themselves

        def __enter__(self) -> Self:
            raise InvalidValue(
                "A workflow of AsyncDibs needs `async with`.", hint="Write `async with app.workflow(…)`."
            )

        def __exit__(self, *_: object) -> None:
            """Python looks for this method before it calls __enter__."""
