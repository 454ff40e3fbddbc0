"""The history follower: a position in the history that moves forward in the order of the ids and misses no entry.

On an engine with many writers (PostgreSQL) an entry gets its id before its transaction commits: entry 8 can be visible
while entry 7 is not. A reader that continued after 8 would never read 7. So the position stops before a gap in the ids
until the gap is filled, or certainly stays empty: until all transactions have ended that were writing to the history
when the gap was seen. The ids of a transaction that was rolled back never appear.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dibs.errors import EventsPruned

if TYPE_CHECKING:  # the command line imports this module for each of its commands
    from dibs.model.history import EventFilter, EventPage, StoreEvent
    from dibs.store.contract import DatabaseStore

PAGE = 1000


class HistoryFollower:
    """A position in the history: all entries up to `position` were visible, or will not appear any more.

    The follower does no I/O: the caller reads the ids, and after a stop before a gap the transactions that write to
    the history. Safe: the transaction of a missing entry took the id before the id behind the gap was visible, and
    holds its lock on the history until its entries are visible. So it is among the writers that are read after the gap
    was seen, or its entries are visible to every later read.
    """

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self.stopped = False  # before a gap
        self._skip_to = 0  # gaps before this id stay empty
        self._seen: tuple[int, frozenset[str]] | None = None  # the newest id, and the writers, when a gap was seen

    def advance(self, ids: Iterable[int]) -> int:
        """Move the position across the visible ids that follow it, in order; return how many of them were passed."""
        passed = 0
        for entry_id in ids:
            if entry_id != self.position + 1 and entry_id > self._skip_to:
                self.stopped = True
                return passed
            self.position = entry_id
            passed += 1
        self.stopped = False
        return passed

    def note_writers(self, newest: int, writers: Iterable[str]) -> bool:
        """Note the transactions that write to the history, read after a stop. `newest`: the newest id that was visible
        then. Return True if gaps are passed from the next read on."""
        writing = frozenset(writers)
        newest, writing = (newest, writing) if self._seen is None else (self._seen[0], self._seen[1] & writing)
        self._seen = (newest, writing) if writing else None
        if not writing:
            self.skip_to(newest)
        return not writing

    def skip_to(self, entry_id: int) -> None:
        """Do not stop before gaps in front of this id any more."""
        self._skip_to = max(self._skip_to, entry_id)


class HistoryReader:
    """Reads the history from a position on, in order, for one consumer or for the subscribers of a server.

    `after`: the id of the last entry that the consumer has; 0 for the beginning of what is kept, None for the end of
    the history. Between two reads nothing is held open: neither a transaction nor a connection.
    """

    def __init__(self, store: DatabaseStore, after: int | None) -> None:
        self._store = store
        self._after = after
        self._pruned: int | None = None  # up to this id, missing entries are expected
        self._follower = HistoryFollower(after or 0)
        self.at_start: frozenset[int] = frozenset()
        """The entries behind the position that were visible at the start: no consumer that starts there wants them."""
        self.at_end = False
        """After a read: True if no other read would find more at once."""

    @property
    def position(self) -> int:
        """All entries up to this id were read, or will not appear any more."""
        return self._follower.position

    def begin(self) -> Generator[Any, Any, None]:
        """Find the position to start from. At the end of the history: before the first missing id near the end."""
        if self._after is not None:
            pruned: int = yield self._store.history.pruned_to()
            self._pruned = 0 if self._after else pruned
            return
        newest: int = yield self._store.history.last_entry()
        self._pruned, self._follower = newest, HistoryFollower(newest)
        if self._store.many_writers and newest:
            first = max(newest - PAGE, 0)
            page: EventPage = yield self._store.history.events_page(first, PAGE)
            recent = [event.id for event in page.events if event.id <= newest]
            self.at_start = frozenset(recent)
            self._follower = HistoryFollower(before_first_gap(first, recent))

    def read(self) -> Generator[Any, Any, list[StoreEvent]]:
        """The next entries, in order, at most PAGE; none if there is no new one, or if it is behind a gap."""
        if self._pruned is None:
            yield from self.begin()
        while True:
            page: EventPage = yield self._store.history.events_page(self.position, PAGE)
            self._check_pruned(page)
            if not self._store.many_writers:  # entries become visible in the order of their ids
                self._follower.skip_to(page.events[-1].id if page.events else 0)
            passed = self._follower.advance(event.id for event in page.events)
            self.at_end = len(page.events) < PAGE and not self._follower.stopped
            if passed or not self._follower.stopped:
                return page.events[:passed]
            writers: list[str] = yield self._store.history.history_writers()
            if not self._follower.note_writers(page.events[-1].id, writers):
                self.at_end = True
                return []

    def _check_pruned(self, page: EventPage) -> None:
        """Raise EventsPruned if entries after the position were deleted before they were read."""
        if page.pruned_to > max(self.position, self._pruned or 0):
            raise EventsPruned(self.position, page.pruned_to)


def wanted(events: Iterable[StoreEvent], reader: HistoryReader, filter: EventFilter) -> list[StoreEvent]:
    """The events for a consumer that has started with this reader."""
    return [event for event in events if event.id not in reader.at_start and filter.include(event)]


def before_first_gap(after: int, ids: Sequence[int]) -> int:
    """Return the last id that follows `after` without a gap; `ids` are the visible ids after it, in order."""
    for expected, entry_id in enumerate(ids, after + 1):
        if entry_id != expected:
            return expected - 1
    return after + len(ids)
