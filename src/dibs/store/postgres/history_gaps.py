"""Positions in the history of PostgreSQL for the statistics: entries of concurrent transactions become visible out of
order, so a position names the gaps before it, and the gaps are read again.

The statistics do not use `dibs.history_follower`, for two reasons. A count of all tasks contains exactly the entries
that its snapshot sees, so a position must name the gaps of that snapshot, also old ones. And the transitions are
counted in the database: at thousands of tasks a second, reading every entry would cost more than the statistics may.

Keep every statement bounded (LOOK_BACK, MANY, LATE), and all statements of one operation in one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dibs.model.history import HistoryGap, HistoryPosition
from dibs.model.statistics import HistoryChanges
from dibs.store.operation import Statement, Statements, limited
from dibs.store.operations.statistics import read_changes

LOOK_BACK = 50_000
"""The number of newest entries that are searched for gaps. A transaction that is still open after others have written
this number of entries is missing from the statistics until all tasks are counted again."""

MANY = 1000
"""The number of newest gaps that a position names. Gaps of transactions that were rolled back are never filled."""

LATE = 100_000
"""The largest number of entries in filled gaps that one call counts."""


def position() -> Statements[HistoryPosition]:
    """The end of the history in one snapshot, and the gaps before it."""
    yield Statement("one_snapshot")
    [(last,)] = yield Statement("last_entry")
    gaps = yield Statement("gaps", {"after": max(last - LOOK_BACK, 0)}, words=limited(LOOK_BACK))
    return HistoryPosition(last, _newest(gaps))


def changes(positions: Sequence[HistoryPosition], limit: int) -> Statements[list[HistoryChanges]]:
    """The changes since each of the positions, all in one snapshot."""
    yield Statement("one_snapshot")
    made: list[HistoryChanges] = []
    for position in positions:
        made += [(yield from _changes_after(position, limit))]
    return made


def _changes_after(position: HistoryPosition, limit: int) -> Statements[HistoryChanges]:
    """The changes after the position and within its gaps, and the new position."""
    rows = yield Statement("moves", {"after": position.last}, words=limited(limit))
    new = read_changes(position, rows, limit)
    opened = yield Statement("gaps", {"after": position.last}, words=limited(limit))
    late = (yield from _changes_in_gaps(position)) if position.gaps else new
    gaps = _newest([*late.position.gaps, *((first, last) for first, last in opened)])
    moves = [*late.moves, *new.moves] if late is not new else new.moves
    return HistoryChanges(HistoryPosition(new.position.last, gaps), moves, new.whole and late.whole)


def _changes_in_gaps(position: HistoryPosition) -> Statements[HistoryChanges]:
    """The changes within the gaps of the position, and the gaps that remain."""
    gaps = {"firsts": [first for first, _ in position.gaps], "lasts": [last for _, last in position.gaps]}
    filled = [row[0] for row in (yield Statement("filled", gaps, words=limited(LATE)))]
    if not filled:
        return HistoryChanges(position, [])
    rows = yield Statement("late_moves", gaps, words=limited(LATE))
    late = read_changes(position, rows, LATE)
    return msgspec.structs.replace(
        late, position=HistoryPosition(position.last, tuple(_remaining_gaps(position.gaps, filled)))
    )


def _remaining_gaps(gaps: Sequence[HistoryGap], filled: Sequence[int]) -> Iterator[HistoryGap]:
    """The gaps without the ids that are visible now; both are in order."""
    visible = iter([*filled, gaps[-1][1] + 1])
    next_visible = next(visible)
    for first, last in gaps:
        missing = first
        while next_visible <= last:
            if missing < next_visible:
                yield missing, next_visible - 1
            missing, next_visible = next_visible + 1, next(visible)
        if missing <= last:
            yield missing, last


def _newest(gaps: Sequence[Sequence[int]]) -> tuple[HistoryGap, ...]:
    return tuple((first, last) for first, last in gaps[-MANY:])
