"""Positions in the history of PostgreSQL: entries of concurrent transactions become visible out of order, so gaps in
the ids are read again.

The statistics do not use `dibs.history_follower`, for two reasons. A count of all tasks contains exactly the entries
that its snapshot sees, so a position must name the gaps of that snapshot, also old ones. And the transitions are
counted in the database: at thousands of tasks a second, reading every entry would cost more than the statistics may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dibs.model.history import HistoryGap, HistoryPosition
from dibs.model.statistics import HistoryChanges
from dibs.store.operation import Statement, Statements, limited
from dibs.store.operations.statistics import read_changes

LOOK_BACK = 50_000
"""Entries before the newest among which gaps are looked for. A change whose commit takes longer than others take to
write so many entries is missing until all tasks are counted again."""

MANY = 1000
"""Gaps that are remembered, the newest: those of transactions that were rolled back are never filled."""

LATE = 100_000
"""Entries that may come late, all at once."""


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
        made += [(yield from _go_on(position, limit))]
    return made


def _go_on(position: HistoryPosition, limit: int) -> Statements[HistoryChanges]:
    rows = yield Statement("moves", {"after": position.last}, words=limited(limit))
    on = read_changes(position, rows, limit)
    opened = yield Statement("gaps", {"after": position.last}, words=limited(limit))
    late = (yield from _come_late(position)) if position.gaps else on
    gaps = _newest([*late.position.gaps, *((first, last) for first, last in opened)])
    moves = [*late.moves, *on.moves] if late is not on else on.moves
    return HistoryChanges(HistoryPosition(on.position.last, gaps), moves, on.whole and late.whole)


def _come_late(position: HistoryPosition) -> Statements[HistoryChanges]:
    """What appeared in the gaps, and the gaps that are left."""
    gaps = {"firsts": [first for first, _ in position.gaps], "lasts": [last for _, last in position.gaps]}
    filled = [row[0] for row in (yield Statement("filled", gaps, words=limited(LATE)))]
    if not filled:
        return HistoryChanges(position, [])
    rows = yield Statement("late_moves", gaps, words=limited(LATE))
    late = read_changes(position, rows, LATE)
    return msgspec.structs.replace(late, position=HistoryPosition(position.last, tuple(_left(position.gaps, filled))))


def _left(gaps: Sequence[HistoryGap], filled: Sequence[int]) -> Iterator[HistoryGap]:
    """The gaps without the ids that have come; both are in order."""
    come = iter([*filled, gaps[-1][1] + 1])
    next_come = next(come)
    for first, last in gaps:
        missing = first
        while next_come <= last:
            if missing < next_come:
                yield missing, next_come - 1
            missing, next_come = next_come + 1, next(come)
        if missing <= last:
            yield missing, last


def _newest(gaps: Sequence[Sequence[int]]) -> tuple[HistoryGap, ...]:
    return tuple((first, last) for first, last in gaps[-MANY:])
