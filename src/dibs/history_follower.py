"""The history follower: a position in the history that moves forward in the order of the ids and misses no entry.

On an engine with many writers (PostgreSQL) an entry gets its id before its transaction commits: entry 8 can be visible
while entry 7 is not. A reader that continued after 8 would never read 7. So the position stops before a gap in the ids
until the gap is filled, or until the entry behind the gap has been visible for `gap_timeout` seconds: the ids of a
transaction that was rolled back never appear.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence


class HistoryFollower:
    """A position in the history: all entries up to `position` were visible, or will not appear any more.

    The follower does no I/O: the caller reads the ids and passes them to `advance`. `gap_timeout`: seconds to wait for
    a gap to be filled; 0 for an engine with a single writer, where entries become visible in the order of their ids.
    Waiting uses the monotonic clock of this machine, because the times of entries come from other clocks.
    """

    def __init__(self, position: int = 0, *, gap_timeout: float) -> None:
        self.position = position
        self._gap_timeout = gap_timeout
        self._visible: deque[tuple[float, int]] = deque()  # since when the ids up to this one have been visible
        self._skip_to = 0  # gaps before this id are not waited for any more

    def advance(self, ids: Iterable[int], newest: int) -> int:
        """Move the position across the visible ids that follow it, in order; return how many of them were passed.

        `newest`: the newest visible id, which may be beyond `ids`. All visible ids age together, not page by page.
        """
        self._record(newest)
        passed = 0
        for entry_id in ids:
            if entry_id != self.position + 1 and entry_id > self._skip_to:
                break
            self.position = entry_id
            passed += 1
        return passed

    def _record(self, newest: int) -> None:
        now = time.monotonic()
        if not self._visible or self._visible[-1][1] < newest:
            self._visible.append((now, newest))
        while self._visible and now - self._visible[0][0] >= self._gap_timeout:
            self._skip_to = self._visible.popleft()[1]


def before_first_gap(after: int, ids: Sequence[int]) -> int:
    """Return the last id that follows `after` without a gap; `ids` are the visible ids after it, in order."""
    for expected, entry_id in enumerate(ids, after + 1):
        if entry_id != expected:
            return expected - 1
    return after + len(ids)
