"""The two sides of a measurement do the same work behind the same few methods; this one is dibs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dibs import Claim, Completed, Dibs, DibsError, NewTask

TYPE = "bench"


class Side(Protocol):
    """One process's way into the queue and out of it. `prepare` and `prepare_claims` are not timed."""

    def prepare(self, numbers: Sequence[int]) -> Any:
        """What `enqueue` will be called with to store these tasks."""

    def enqueue(self, call: Any) -> None:
        """Store the tasks, durably, in one transaction."""

    def prepare_claims(self) -> None:
        """Get ready to claim."""

    def claim(self) -> list[Any]:
        """Claim a batch; empty when nothing is left."""

    def finish(self, claims: list[Any]) -> None:
        """Complete what was claimed, in one transaction."""

    def close(self) -> None:
        """Let go of the database."""


class DibsSide:
    """dibs as its users call it: values are checked, rows become tasks and claims."""

    def __init__(self, url: str, worker: str, batch: int) -> None:
        self._app = Dibs(url)
        self._worker = worker
        self._batch = batch
        self._app.promote()  # opens the database

    def prepare(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """See Side."""
        return [params(number) for number in numbers]

    def enqueue(self, call: list[dict[str, Any]]) -> None:
        """See Side."""
        if self._batch == 1:
            self._app.enqueue(TYPE, call[0])
        else:
            self._app.enqueue_many([NewTask(TYPE, each) for each in call])

    def prepare_claims(self) -> None:
        """See Side."""

    def claim(self) -> list[Claim]:
        """See Side."""
        return self._app.claim_many(self._worker, self._batch)

    def finish(self, claims: list[Claim]) -> None:
        """See Side."""
        for answer in self._app.finish([(claim, Completed()) for claim in claims]):
            if isinstance(answer, DibsError):
                raise answer

    def close(self) -> None:
        """See Side."""
        self._app.close()


def params(number: int) -> dict[str, Any]:
    """The params of a task: small, as most are."""
    return {"number": number}
