"""Finalization claims of one processor, for programs that finalize their workflows themselves."""

from __future__ import annotations

import os
from typing import Generic, Protocol, TypeVar

from dibs.json_values import check_name
from dibs.model.finalization import DEFAULT_FINALIZATION_LEASE, unique_processor

Claim_co = TypeVar("Claim_co", covariant=True)
"""A FinalizationClaim, or an awaitable."""

Released_co = TypeVar("Released_co", covariant=True)
"""A bool, or an awaitable."""

Finalized_co = TypeVar("Finalized_co", covariant=True)
"""A Finalized, or an awaitable."""


class FinalizationClient(Protocol[Claim_co, Released_co, Finalized_co]):
    """The interface of a client: Dibs or AsyncDibs."""

    def claim_finalization(self, workflow_id: int, processor: str, timeout: float = ...) -> Claim_co:
        """See Dibs."""

    def renew_finalization(self, workflow_id: int, processor: str, token: int, timeout: float = ...) -> Claim_co:
        """See Dibs."""

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Released_co:
        """See Dibs."""

    def finalize(self, workflow_id: int, processor: str, token: int) -> Finalized_co:
        """See Dibs."""


class FinalizationClaimer(Generic[Claim_co, Released_co, Finalized_co]):
    """Claims finalizations for one processor, each for `timeout` seconds. With AsyncDibs the methods return awaitables.

    The processor's name is the given id with a random suffix, because a claim by its holder extends the claim: two
    processes with the same name would share their claims. A forked process gets another suffix. `unique=False` uses the
    id without a suffix; use it only for an id that no other process has.
    """

    def __init__(
        self,
        app: FinalizationClient[Claim_co, Released_co, Finalized_co],
        processor_id: str,
        timeout: float = DEFAULT_FINALIZATION_LEASE,
        *,
        unique: bool = True,
    ) -> None:
        self._app = app
        self._base_id = check_name(processor_id, "The processor's id")
        self.timeout = timeout
        self._unique = unique
        self._unique_id = ""
        self._pid = 0

    @property
    def processor_id(self) -> str:
        """The processor id with which this process claims."""
        if not self._unique:
            return self._base_id
        if self._pid != os.getpid():  # on first use, and after a fork
            self._unique_id, self._pid = unique_processor(self._base_id), os.getpid()
        return self._unique_id

    def claim(self, workflow: int) -> Claim_co:
        """Claim the finalization of the workflow. The result has the token, or the reason of a refusal."""
        return self._app.claim_finalization(workflow, self.processor_id, self.timeout)

    def renew(self, workflow: int, token: int) -> Claim_co:
        """Extend the claim with this token. Never grants a new claim."""
        return self._app.renew_finalization(workflow, self.processor_id, token, self.timeout)

    extend = renew

    def release(self, workflow: int, token: int) -> Released_co:
        """Release the claim with this token. Returns False, and changes nothing, if this processor does not hold it."""
        return self._app.release_finalization(workflow, self.processor_id, token)

    def finalize(self, workflow: int, token: int) -> Finalized_co:
        """Finalize the workflow according to its execution status, under the claim with this token.

        Raises FinalizationLost, and changes nothing, if this processor does not hold the claim.
        """
        return self._app.finalize(workflow, self.processor_id, token)
