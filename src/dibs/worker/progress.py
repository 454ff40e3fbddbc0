"""Progress reports of handlers that are not written yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from dibs.errors import DibsError, StoreError, StoreRefused
from dibs.model.claim import MAX_BATCH, AnyClaim, Claim, ProgressReport
from dibs.worker.store_access import StoreAccess

logger = logging.getLogger("dibs.worker")

ClaimKey = tuple[int, int]
"""Task id and token of a claim."""


class ProgressReports:
    """The latest progress report of each attempt.

    The lease keeper writes all reports periodically. The finisher writes the report of an attempt before its outcome:
    the outcome ends the claim, and a later progress report would be refused.
    """

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._latest: dict[ClaimKey, ProgressReport] = {}
        self._writing = threading.Lock()
        """Held from before a report is removed from `_latest` until it is written. So a report that is neither in
        `_latest` nor being written is in the store, and an older report is never written after a newer one."""

    def add(self, claim: Claim, percent: int, message: str | None) -> None:
        """Add a report, which replaces an earlier one of the same attempt."""
        self._latest[_key(claim)] = (claim, percent, message)

    def clear(self) -> None:
        """Drop all reports: the worker holds no attempt."""
        self._latest.clear()

    def write_all(self) -> None:
        """Write all reports."""
        while self._latest:
            with self._writing:
                self._write(list(self._latest)[:MAX_BATCH])

    def write_for(self, claims: Iterable[Claim]) -> None:
        """Write the reports of these claims. Takes no time while no handler has reported progress."""
        if not self._latest and not self._writing.locked():
            return
        with self._writing:
            self._write([_key(claim) for claim in claims])

    def _write(self, keys: Iterable[ClaimKey]) -> None:
        reports = [report for key in keys if (report := self._latest.pop(key, None)) is not None]
        if not reports:
            return
        try:
            self._access.run(self._access.store.queue.progress(reports))
        except DibsError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                for report in reports:  # unless the handler has added a newer report in the meantime
                    self._latest.setdefault(_key(report[0]), report)
                raise
            self._write_one_by_one(reports, error)

    def _write_one_by_one(self, reports: list[ProgressReport], error: DibsError) -> None:
        """Write each report on its own, after the store has refused one of them; drop the refused one."""
        if len(reports) == 1:
            logger.warning("the progress of task %d could not be stored: %s", reports[0][0].task_id, error.message)
            return
        for report in reports:
            key = _key(report[0])
            self._latest.setdefault(key, report)
            self._write([key])


def _key(claim: AnyClaim) -> ClaimKey:
    return claim.task_id, claim.token
