"""Exchange: the last tasks' outcomes in, the next tasks out, in one transaction."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from dibs.model.claim import Claim, ClaimRequest, FinishResult, OutcomeReport
from dibs.store.operation import Mode, Operation, Rows, Statements
from dibs.store.operations.claim import Claiming
from dibs.store.operations.finish import Finishing, Prepared, prepare, validation_of
from dibs.store.operations.rows import read_claims
from dibs.store.operations.validation import TaskValidation


class Exchanging(Claiming, Finishing, ABC):
    """Finish and claim at once."""

    def exchange(
        self, reports: Sequence[OutcomeReport], request: ClaimRequest
    ) -> Operation[tuple[list[FinishResult], list[Claim]]]:
        """Write the outcomes, each fenced and answered on its own, and claim: both or neither."""
        prepared, validation = prepare(reports), validation_of(reports)
        return Operation(
            "exchange",
            lambda: self._exchange(reports, prepared, validation, request),
            wakes=True,
            mode=Mode.TRANSACTION,
            decode=_read,
            request=(reports, request),
            validation=validation,
            item_by_item=lambda: self._exchange_apart(reports, validation, request),
        )

    def _exchange(
        self,
        reports: Sequence[OutcomeReport],
        prepared: Prepared,
        validation: TaskValidation | None,
        request: ClaimRequest,
    ) -> Statements[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish(reports, *prepared, validation)
        rows = yield from self._claim(request, atomic=True)
        return answers, rows

    def _exchange_apart(
        self, reports: Sequence[OutcomeReport], validation: TaskValidation | None, request: ClaimRequest
    ) -> Statements[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish_apart(reports, validation)
        rows = yield from self._claim(request, atomic=True)
        return answers, rows


def _read(done: tuple[list[FinishResult], Rows]) -> tuple[list[FinishResult], list[Claim]]:
    answers, rows = done
    return answers, read_claims(rows)
