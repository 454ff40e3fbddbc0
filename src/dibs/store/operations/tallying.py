"""Counts: every task counted, with the position in the history up to which the count is true, so that what moved
since can be added to it: a count is dear, the moves of a second are not.

Both are read from one snapshot of the database. Where several write at once (PostgreSQL) a snapshot does not end with
an id: 8 can be in it while 7 is still on its way. So a position is the last id that was seen, and the gaps before it;
what appears in a gap later has moved since.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.history import HistoryPosition
from dibs.model.statistics import ChangesSince, HistoryChanges, TaskCounts, WorkersAndPauses
from dibs.store.operation import Operation, Row, Statement, Steps
from dibs.store.operations.filters import conditions
from dibs.store.operations.registering import list_workers
from dibs.store.operations.sampling import read_counts, read_move

FAR = 2_000_000
"""Entries that are counted at most in one go: those of a minute at ten thousand tasks a second. Who is further behind
is better served by a new tally."""


class Tallying(ABC):
    """Counting, and following what moves."""

    @abstractmethod
    def standing_at(self) -> Steps[HistoryPosition]:
        """Where the history stands, in the snapshot from which everything after it is read."""

    @abstractmethod
    def going_on(self, positions: Sequence[HistoryPosition], limit: int) -> Steps[list[HistoryChanges]]:
        """What happened since each of the positions, up to `limit` entries, all in one snapshot."""

    def tally(self) -> Operation[TaskCounts]:
        """Every task counted, and the position in the history at which that is true. This reads all of them."""
        return Operation("tally", self._tally, writes=False, atomic=True)

    def moves_since(self, positions: Sequence[HistoryPosition], limit: int = FAR) -> Operation[ChangesSince]:
        """What happened since these positions, counted; each ends at the same moment."""
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("moves_since", lambda: self._since(positions, limit), writes=False, atomic=True)

    def roll(self) -> Operation[WorkersAndPauses]:
        """The workers and the paused queues. This reads no tasks."""
        return Operation("roll", _roll, writes=False)

    def finished_within(self, window: int, queues: Sequence[str] | None = None) -> Operation[dict[str, int]]:
        """How many tasks (of these queues) reached each final state in the last `window` microseconds."""
        check_names(queues, "queues", "The queue")
        return Operation("finished_within", lambda: _finished(window, queues), writes=False)

    def _tally(self) -> Steps[TaskCounts]:
        position = yield from self.standing_at()
        [(at,)] = yield Statement("clock")
        return TaskCounts(at, position, read_counts((yield Statement("counts"))))

    def _since(self, positions: Sequence[HistoryPosition], limit: int) -> Steps[ChangesSince]:
        progress = yield from self.going_on(positions, limit)
        [(at,)] = yield Statement("clock")
        return ChangesSince(at, progress)


def moved(position: HistoryPosition, rows: Sequence[Row], limit: int) -> HistoryChanges:
    """The progress that rows of `moves` tell of; the gaps are as before."""
    last = max((row[-1] for row in rows), default=position.last)
    whole = sum(row[-2] for row in rows) < limit
    return HistoryChanges(HistoryPosition(last, position.gaps), [read_move(row) for row in rows], whole)


def _finished(window: int, queues: Sequence[str] | None) -> Steps[dict[str, int]]:
    given = {"window": window, "queues": None if queues is None else list(queues)}
    return dict((yield Statement("throughput", given, words=(conditions(given, ("queues",)),))))


def _roll() -> Steps[WorkersAndPauses]:
    workers = yield Statement("workers")
    queues = yield Statement("queues")
    paused = {name: from_micros(at) for name, at in queues if at is not None}
    return WorkersAndPauses(list_workers(workers), paused)
