"""Progress that handlers have reported and that is not written yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from dibs.errors import DibsError, StoreError, StoreRefused
from dibs.model.claim import MAX_BATCH, Claim
from dibs.worker.store_access import Contact

logger = logging.getLogger("dibs.worker")

Note = tuple[Claim, int, str | None]
Key = tuple[int, int]


class Notes:
    """The latest progress of each attempt.

    The lease keeper writes all notes now and then. The finisher writes those of an attempt before its outcome: the
    outcome ends the claim, and progress after that would be refused.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact = contact
        self._latest: dict[Key, Note] = {}
        self._writing = threading.Lock()
        """Held from before a note is taken until it is written. So a note that is neither in `_latest` nor being
        written is in the store, and an older note never arrives after a newer one."""

    def note(self, claim: Claim, percent: int, message: str | None) -> None:
        """The handler is this far; only its latest note is written."""
        self._latest[claim.task_id, claim.token] = (claim, percent, message)

    def clear(self) -> None:
        """Forget all notes: no attempt is held any more."""
        self._latest.clear()

    def write_all(self) -> None:
        """Write every note."""
        while self._latest:
            with self._writing:
                self._write(list(self._latest)[:MAX_BATCH])

    def write_of(self, claims: Iterable[Claim]) -> None:
        """Write the notes of these claims. Costs nothing while no handler has reported progress."""
        if not self._latest and not self._writing.locked():
            return
        with self._writing:
            self._write([(claim.task_id, claim.token) for claim in claims])

    def _write(self, keys: Iterable[Key]) -> None:
        notes = [note for key in keys if (note := self._latest.pop(key, None)) is not None]
        if not notes:
            return
        try:
            self._contact.run(self._contact.store.queue.progress(notes))
        except DibsError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                for claim, percent, message in notes:  # unless the handler has reported a newer one meanwhile
                    self._latest.setdefault((claim.task_id, claim.token), (claim, percent, message))
                raise
            self._write_one_by_one(notes, error)

    def _write_one_by_one(self, notes: list[Note], error: DibsError) -> None:
        """The store refused one of the notes: find out which, and drop it."""
        if len(notes) == 1:
            logger.warning("the progress of task %d could not be stored: %s", notes[0][0].task_id, error.message)
            return
        for note in notes:
            self._latest.setdefault((note[0].task_id, note[0].token), note)
            self._write([(note[0].task_id, note[0].token)])
