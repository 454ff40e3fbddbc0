"""Exchange: the last tasks' outcomes in, the next tasks out, in one transaction."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from dibs.model.claim import Claim, ClaimRequest, FinishResult, OutcomeReport
from dibs.store.operation import Operation, Rows, Steps
from dibs.store.operations.checking import Checks
from dibs.store.operations.claiming import Claiming
from dibs.store.operations.finishing import Finishing, Prepared, checks_of, prepare
from dibs.store.operations.rows import read_claims


class Exchanging(Claiming, Finishing, ABC):
    """Finish and claim at once."""

    def exchange(
        self, reports: Sequence[OutcomeReport], request: ClaimRequest
    ) -> Operation[tuple[list[FinishResult], list[Claim]]]:
        """Write the outcomes, each fenced and answered on its own, and claim: both or neither."""
        prepared, checks = prepare(reports), checks_of(reports)
        return Operation(
            "exchange",
            lambda: self._exchange(reports, prepared, checks, request),
            wakes=True,
            atomic=True,
            read=_read,
            about=(reports, request),
            checks=checks,
            apart=lambda: self._exchange_apart(reports, checks, request),
        )

    def _exchange(
        self, reports: Sequence[OutcomeReport], prepared: Prepared, checks: Checks | None, request: ClaimRequest
    ) -> Steps[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish(reports, *prepared, checks)
        rows = yield from self._claim(request, atomic=True)
        return answers, rows

    def _exchange_apart(
        self, reports: Sequence[OutcomeReport], checks: Checks | None, request: ClaimRequest
    ) -> Steps[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish_apart(reports, checks)
        rows = yield from self._claim(request, atomic=True)
        return answers, rows


def _read(done: tuple[list[FinishResult], Rows]) -> tuple[list[FinishResult], list[Claim]]:
    answers, rows = done
    return answers, read_claims(rows)
