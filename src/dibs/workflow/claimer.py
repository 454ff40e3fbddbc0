"""The finalization claims of one processor: for programs that decide themselves how their workflows end."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dibs.step import DEFAULT_FINALIZATION_LEASE

Answer_co = TypeVar("Answer_co", covariant=True)
"""A FinalizationClaim, or something to await."""

Given_co = TypeVar("Given_co", covariant=True)
"""A bool, or something to await."""


class Finalizing(Protocol[Answer_co, Given_co]):
    """A client: Dibs, or AsyncDibs."""

    def claim_finalization(self, workflow_id: int, processor: str, timeout: float = ...) -> Answer_co:
        """See Dibs."""

    def renew_finalization(self, workflow_id: int, processor: str, timeout: float = ...) -> Answer_co:
        """See Dibs."""

    def release_finalization(self, workflow_id: int, processor: str) -> Given_co:
        """See Dibs."""


class FinalizationClaimer(Generic[Answer_co, Given_co]):
    """Claims finalizations for one processor, each for `timeout` seconds. With AsyncDibs the answers are awaited."""

    def __init__(
        self, app: Finalizing[Answer_co, Given_co], processor_id: str, timeout: float = DEFAULT_FINALIZATION_LEASE
    ) -> None:
        self.processor_id = processor_id
        self.timeout = timeout
        self._app = app

    def claim(self, workflow: int) -> Answer_co:
        """Ask for the right to finalize the workflow. The answer says whether it was granted, and else why not."""
        return self._app.claim_finalization(workflow, self.processor_id, self.timeout)

    def renew(self, workflow: int) -> Answer_co:
        """Extend the claim; nobody gets a new one by this."""
        return self._app.renew_finalization(workflow, self.processor_id, self.timeout)

    extend = renew

    def release(self, workflow: int) -> Given_co:
        """Give the claim up. False, and nothing changes, where it is not this processor's."""
        return self._app.release_finalization(workflow, self.processor_id)
