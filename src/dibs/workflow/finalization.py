"""The finalization claims of one processor: for programs that decide themselves when their workflows end."""

from __future__ import annotations

import os
from typing import Generic, Protocol, TypeVar

from dibs.codec import check_name
from dibs.model.finalization import DEFAULT_FINALIZATION_LEASE, unique_processor

Answer_co = TypeVar("Answer_co", covariant=True)
"""A FinalizationClaim, or something to await."""

Given_co = TypeVar("Given_co", covariant=True)
"""A bool, or something to await."""

Done_co = TypeVar("Done_co", covariant=True)
"""A Finalized, or something to await."""


class Finalizing(Protocol[Answer_co, Given_co, Done_co]):
    """A client: Dibs, or AsyncDibs."""

    def claim_finalization(self, workflow_id: int, processor: str, timeout: float = ...) -> Answer_co:
        """See Dibs."""

    def renew_finalization(self, workflow_id: int, processor: str, token: int, timeout: float = ...) -> Answer_co:
        """See Dibs."""

    def release_finalization(self, workflow_id: int, processor: str, token: int) -> Given_co:
        """See Dibs."""

    def finalize(self, workflow_id: int, processor: str, token: int) -> Done_co:
        """See Dibs."""


class FinalizationClaimer(Generic[Answer_co, Given_co, Done_co]):
    """Claims finalizations for one processor, each for `timeout` seconds. With AsyncDibs the answers are awaited.

    The processor's name is the given one with a random part, because a claim under the name of its holder is an
    extension: two processes of one name would share their claims. A forked process has a name of its own.
    `unique=False` keeps the name as it is given; use that only for a name that no other process has.
    """

    def __init__(
        self,
        app: Finalizing[Answer_co, Given_co, Done_co],
        processor_id: str,
        timeout: float = DEFAULT_FINALIZATION_LEASE,
        *,
        unique: bool = True,
    ) -> None:
        self._app = app
        self._given = check_name(processor_id, "The processor's id")
        self.timeout = timeout
        self._unique = unique
        self._named = ""
        self._process = 0

    @property
    def processor_id(self) -> str:
        """The name under which this process claims."""
        if not self._unique:
            return self._given
        if self._process != os.getpid():  # also after a fork
            self._named, self._process = unique_processor(self._given), os.getpid()
        return self._named

    def claim(self, workflow: int) -> Answer_co:
        """Ask for the right to finalize the workflow. The answer has the token, or says why the claim was refused."""
        return self._app.claim_finalization(workflow, self.processor_id, self.timeout)

    def renew(self, workflow: int, token: int) -> Answer_co:
        """Extend the claim with this token; grants no new claim."""
        return self._app.renew_finalization(workflow, self.processor_id, token, self.timeout)

    extend = renew

    def release(self, workflow: int, token: int) -> Given_co:
        """Give up the claim with this token. False, and nothing changes, where this processor does not have it."""
        return self._app.release_finalization(workflow, self.processor_id, token)

    def finalize(self, workflow: int, token: int) -> Done_co:
        """Act on how the workflow stands, under the claim with this token. Where this processor does not have it,
        FinalizationLost is raised and nothing changes."""
        return self._app.finalize(workflow, self.processor_id, token)
