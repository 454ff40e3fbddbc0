"""How a claim on SQLite chooses its tasks: a scan of the first tasks of the store, or a merge of streams.

The scan reads a bounded number of the first claimable tasks and keeps those that pass the filters. That is enough
unless other tasks come first: of types or queues that the claim does not name, or with too few attempts left. Then the
claim reads streams: the tasks of each named type, of each named queue, of each pair of both, or with each number of
attempts left, in order, and takes the first tasks of all. So the cost of a claim does not depend on the number of
queues and types in the store. Streams need an index, which is created when claims need it (see StreamIndexes); until
then the claim goes on with the scan to the end of the store. Every operation that writes holds the lock of the file, so
that many small statements cost less than one large statement (a probe takes 4 µs), and no other process can change a
task between two of them.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from math import inf, isqrt
from typing import Any

import msgspec

from dibs.model.claim import Filters, Order
from dibs.store.contract import NumbersMissing
from dibs.store.operation import Row, Rows, Statement, Statements
from dibs.store.operations.claim import CHUNK, RANDOM_ORDERS, SCANNED, TierMemory, is_cut_by_attempts, pairs_of
from dibs.store.operations.stream_indexes import (
    ATTEMPTS,
    FAMILIES,
    PAIR,
    QUEUE,
    RANDOM_INDEXES,
    TYPE,
    StreamFamily,
    StreamIndexes,
    stream_index,
)
from dibs.store.sql import Words

UNBOUNDED = 2**62
"""As a bound: read to the end."""

SCAN_LEVELS = 16
"""Priorities that a scan reads, if the order needs a statement for each priority."""

STREAM_LEVELS = 8
"""The same for each stream, if the first tasks of many streams are read."""

NEAR, FAR = 64, 2048
"""Tasks of a stream that are read, beyond eight for each requested task, before the other kind of stream is tried, if
many queues and types are named: first few tasks of both kinds of streams, then more."""

REDRAWN = 256
"""Tasks that one claim gives a new random-order number."""

PROBED_STREAMS = 16
"""If a claim names more types or queues, it looks for tasks to redraw in the whole store only."""

BEYOND = 2**32
"""Higher than any priority; and below zero, lower."""

_Key = Callable[[Row], Any]
"""The place of a row (id, priority or random-order number) in the order."""

_ORDERED: dict[str, tuple[str, str, _Key]] = {
    Order.PRIORITY: ("dibs_tasks_by_priority", "priority DESC, id", lambda row: (-row[1], row[0])),
    Order.FIFO: ("dibs_tasks_by_age", "id", lambda row: row[0]),
    Order.LIFO: ("dibs_tasks_by_age", "id DESC", lambda row: -row[0]),
}
"""The orders that an index of the whole store has: the index, its order, and the place of a row."""

_LEVELS: dict[str, tuple[str, str, str, _Key]] = {
    Order.PRIORITY_LIFO: ("<", "priority DESC", "id DESC", lambda row: (-row[1], -row[0])),
    Order.PRIORITY_ASC: (">", "priority", "id", lambda row: (row[1], row[0])),
}
"""The orders that are read priority by priority: how to step from one priority to the next, the order within one."""

_NUMBERS: dict[str, tuple[str, str]] = {
    Order.RANDOM: ("random_key", "1"),
    Order.WEIGHTED: ("weighted_key", "max(priority + 1, 1)"),
}
"""The random orders: the column of the random-order number, and the rate of its distribution."""

_COVERING = "id, state, parked, backlog, expires_at"
"""The last columns of an index of streams. SQLite would otherwise look up each task, to see that it is claimable."""

_NOT_EXPIRED = "{{not_expired}}"


def _columns(family: StreamFamily, *others: str) -> str:
    return ", ".join((*family.columns, *others))


DEFINITIONS: dict[str, tuple[str, str | None]] = {
    **{stream_index(each, Order.PRIORITY): (_columns(each, "priority DESC", _COVERING), None) for each in FAMILIES},
    **{stream_index(each, Order.FIFO): (_columns(each, _COVERING, "priority"), None) for each in FAMILIES},
    **{
        stream_index(each, order): (_columns(each, key), key)
        for order, (key, _) in _NUMBERS.items()
        for each in (TYPE, QUEUE)
    },
}
"""The columns of each index of streams, and the column of the random-order number, which its tasks have."""


def pick(
    filters: Filters, memory: TierMemory, indexes: StreamIndexes, *, advance: bool = True
) -> Statements[list[int]]:
    """The ids of the tasks that the claim takes, in order. `advance`: the tasks are claimed in this transaction, so the
    position of a random order advances, and a missing index is provided first."""
    if advance:
        indexes.refuse_if_missing()
    try:
        return (yield from _pick(filters, memory, indexes, advance))
    except sqlite3.OperationalError as error:
        if "no such index" not in str(error):
            raise
        indexes.forget()  # somebody has dropped it
        return (yield from _pick(filters, memory, indexes, advance))


def _pick(filters: Filters, memory: TierMemory, indexes: StreamIndexes, advance: bool) -> Statements[list[int]]:
    if filters.order in RANDOM_ORDERS:
        return (yield from _pick_random(filters, indexes, advance))
    for tier in memory.in_turn(filters, _tiers(filters)):
        rows = yield from tier(filters, indexes)
        if rows is not None:
            return _ids(rows)
    raise AssertionError("The last tier reads to the end.")


_Tier = Callable[[Filters, StreamIndexes], Statements[Rows | None]]
"""A way to choose tasks: the first `count` matching tasks in order; None if they are not certain to be the first."""


def _tiers(filters: Filters) -> list[_Tier]:
    if filters.queues is None and filters.types is None:
        return [_scan, _merge_attempts if is_cut_by_attempts(filters) else _merge_all_queues]
    if filters.queues is None:
        return [_scan, _merge_types]
    if filters.types is None:
        return [_scan, _merge_queues]
    if pairs_of(filters) is not None:
        return [_scan, _merge_pairs]
    bounded = [partial(merge, bound=8 * filters.count + bound) for bound in (NEAR, FAR) for merge in _BOUNDED]
    return [_scan, *bounded, _merge_queues]


# The scan


def _scan(filters: Filters, indexes: StreamIndexes) -> Statements[Rows | None]:
    return (yield from _scan_to(filters, 8 * filters.count + SCANNED, SCAN_LEVELS))


def _walk(filters: Filters) -> Statements[Rows]:
    """Scan the store to its end: for streams without an index."""
    rows = yield from _scan_to(filters, UNBOUNDED, BEYOND)
    assert rows is not None
    return rows


def _scan_to(filters: Filters, bound: int, most_levels: int) -> Statements[Rows | None]:
    if filters.order in _LEVELS:
        return (yield from _scan_levels(filters, bound, most_levels))
    index, order, _ = _ORDERED[filters.order]
    words = (("index", index), ("order", order), ("where", ""), _passes(filters))
    rows = yield Statement("scan", {**_params(filters), "bound": bound, "count": filters.count}, words=words)
    if len(rows) < filters.count and (yield from _is_cut(words, {"bound": bound})):
        return None
    return rows


def _scan_levels(filters: Filters, bound: int, most_levels: int) -> Statements[Rows | None]:
    found: Rows = []
    beyond, levels, within, _ = _LEVELS[filters.order]
    index = ("index", "dibs_tasks_by_priority")
    level = -BEYOND if beyond == ">" else BEYOND
    for _ in range(most_levels):
        next_level = (index, ("beyond", beyond), ("order", levels), ("where", ""))
        rows = yield Statement("next_level", {"after": level}, words=next_level)
        if not rows:
            return found
        [(level,)] = rows
        words = (index, ("order", within), ("where", "AND priority = :level"), _passes(filters))
        missing = filters.count - len(found)
        found += yield Statement(
            "scan", {**_params(filters), "level": level, "bound": bound, "count": missing}, words=words
        )
        if len(found) == filters.count:
            return found
        if (yield from _is_cut(words, {"level": level, "bound": bound})):
            return None
    return None


def _is_cut(words: Words, params: dict[str, Any]) -> Statements[bool]:
    """True if there are more tasks beyond the bound."""
    return params["bound"] < UNBOUNDED and bool((yield Statement("beyond_bound", params, words=words)))


# Streams


_Values = tuple[Any, ...]
"""The values of a stream in the columns of its family."""


class _Streams(msgspec.Struct, frozen=True):
    """The streams of a family that a claim reads, in its order: their values, and the words that read them. `passes`: a
    condition on each task."""

    family: StreamFamily
    values: list[_Values]
    filters: Filters
    passes: str = _NOT_EXPIRED
    bound: int = UNBOUNDED

    @property
    def index(self) -> tuple[str, str]:
        """The index of the family in this order."""
        return "index", stream_index(self.family, self.filters.order)


class _Cut(Exception):
    """A bounded read of a stream found too few tasks, and more follow."""


def _merge_types(filters: Filters, indexes: StreamIndexes, bound: int = UNBOUNDED) -> Statements[Rows | None]:
    if not (yield from indexes.find(stream_index(TYPE, filters.order))):
        return (yield from _without_index(filters, bound))
    values = [(name,) for name in (yield from _open("type", filters.types))]
    streams = _Streams(TYPE, values, filters, (yield from _passes_in(TYPE, filters)), bound)
    return (yield from _merge_or_none(streams))


def _merge_queues(filters: Filters, indexes: StreamIndexes, bound: int = UNBOUNDED) -> Statements[Rows | None]:
    if not (yield from indexes.find(stream_index(QUEUE, filters.order))):
        return (yield from _without_index(filters, bound))
    values = [(name,) for name in (yield from _open("queue", filters.queues))]
    streams = _Streams(QUEUE, values, filters, (yield from _passes_in(QUEUE, filters)), bound)
    return (yield from _merge_or_none(streams))


_BOUNDED = (_merge_queues, _merge_types)


def _merge_pairs(filters: Filters, indexes: StreamIndexes) -> Statements[Rows | None]:
    if not (yield from indexes.find(stream_index(PAIR, filters.order))):
        return (yield from _walk(filters))
    queues = yield from _open("queue", filters.queues)
    types = yield from _open("type", filters.types)
    values = [(queue, type_name) for queue in queues for type_name in types]
    return (yield from _merge(_Streams(PAIR, values, filters, (yield from _passes_in(PAIR, filters)))))


def _merge_attempts(filters: Filters, indexes: StreamIndexes) -> Statements[Rows | None]:
    index = stream_index(ATTEMPTS, filters.order)
    if not (yield from indexes.find(index)):
        return (yield from _walk(filters))
    values: list[_Values] = []
    attempts = _params(filters)["min_attempts_left"] - 1
    while True:
        [(attempts,)] = yield Statement("next_attempts", {"after": attempts}, words=(("index", index),))
        if attempts is None:
            break
        values.append((attempts,))
    return (yield from _merge(_Streams(ATTEMPTS, values, filters, (yield from _passes_in(ATTEMPTS, filters)))))


def _merge_all_queues(filters: Filters, indexes: StreamIndexes) -> Statements[Rows | None]:
    index = stream_index(QUEUE, filters.order)
    if not (yield from indexes.find(index)):
        return (yield from _walk(filters))
    names, after = [], ""
    while True:
        [(after,)] = yield Statement("next_queue", {"after": after}, words=(("index", index),))
        if after is None:
            break
        names.append(after)
    values = [(name,) for name in (yield from _open("queue", names))]
    return (yield from _merge(_Streams(QUEUE, values, filters, (yield from _passes_in(QUEUE, filters)))))


def _without_index(filters: Filters, bound: int) -> Statements[Rows | None]:
    return (yield from _walk(filters)) if bound == UNBOUNDED else None


def _open(scope: str, names: Iterable[str] | None) -> Statements[list[str]]:
    """The queues or types that are not paused. The tasks of a paused one may not be parked yet."""
    names = _distinct(names)
    paused = {row[0] for row in (yield Statement("paused_of", {"scope": scope, "names": names}))}
    return [name for name in names if name not in paused]


def _passes_in(family: StreamFamily, filters: Filters) -> Statements[str]:
    """The condition on the tasks of the streams. A condition on a column that the index does not have is dear, so
    whether any queue or type is paused is looked up once, and not for each task."""
    is_open = family is not PAIR and bool((yield Statement("scopes_paused")))
    return _conditions(filters, family.columns, is_open=is_open)


def _merge_or_none(streams: _Streams) -> Statements[Rows | None]:
    try:
        return (yield from _merge(streams))
    except _Cut:
        return None


def _merge(streams: _Streams) -> Statements[Rows]:
    """The first `count` tasks of the streams. Of many streams, one statement reads the first task of each, and a second
    one some tasks of the streams that come first; of a stream whose tasks come next, more are read."""
    count, key = streams.filters.count, _key(streams.filters)
    if len(streams.values) > count:
        heads = yield from _read_streams(streams, 1)
        found = [(key(rows[0]), number) for number, (rows, _) in enumerate(heads) if rows]
        nearest = [number for _, number in heapq.nsmallest(count, found)]
        if count == 1:
            return [heads[number][0][0] for number in nearest]
        streams = msgspec.structs.replace(streams, values=[streams.values[number] for number in nearest])
    parts = yield from _read_streams(streams, _share(count, len(streams.values)))
    return (yield from _merge_parts(streams, parts, key))


def _share(count: int, streams: int) -> int:
    """How many tasks to read of each stream, so that few streams must be read again if the tasks are evenly spread."""
    mean = count // max(streams, 1) + 1
    return min(mean + 2 * isqrt(mean) + 1, count)


def _key(filters: Filters) -> _Key:
    return (_ORDERED.get(filters.order) or _LEVELS[filters.order])[-1]


_Part = tuple[Rows, bool]
"""The first matching tasks of a stream, and whether there are no others."""


def _merge_parts(streams: _Streams, parts: list[_Part], key: _Key) -> Statements[Rows]:
    queue = [(key(rows[0]), number, 0) for number, (rows, _) in enumerate(parts) if rows]
    heapq.heapify(queue)
    found: Rows = []
    count = streams.filters.count
    while queue and len(found) < count:
        _, number, place = heapq.heappop(queue)
        rows, complete = parts[number]
        found.append(rows[place])
        place += 1
        if place == len(rows) and not complete and len(found) < count:
            parts[number] = yield from _read_stream(streams, streams.values[number], 8 * place)
        if place < len(parts[number][0]):
            heapq.heappush(queue, (key(parts[number][0][place]), number, place))
    return found


def _read_streams(streams: _Streams, count: int) -> Statements[list[_Part]]:
    """The first `count` matching tasks of each stream, with one statement. In an order by levels, fewer than `count`
    may be read of a stream that has more."""
    if not streams.values:
        return []
    if streams.filters.order in _LEVELS:
        return (yield from _read_first_levels(streams, count))
    words, params = _streams_words(streams, _ORDERED[streams.filters.order][1]), _streams_params(streams, count)
    rows = yield Statement("read_streams", params, words=words)
    found: list[Rows] = _from_json(rows)
    if streams.bound < UNBOUNDED and any(len(rows) < count for rows in found):
        short = [values for values, rows in zip(streams.values, found, strict=True) if len(rows) < count]
        if (yield Statement("cut_streams", {**params, "streams": short}, words=words)):
            raise _Cut
    return [(rows, len(rows) < count) for rows in found]


def _read_first_levels(streams: _Streams, count: int) -> Statements[list[_Part]]:
    """The tasks of the first levels of each stream. A stream without a matching task in these is read to its end."""
    beyond, order, within, _ = _LEVELS[streams.filters.order]
    most = min(count, STREAM_LEVELS)
    cut = "{{level_is_cut}}" if streams.bound < UNBOUNDED else "0"
    words = (*_streams_words(streams, within, "AND priority = level.priority"),
             ("beyond", beyond), ("levels", order), ("cut", cut))  # fmt: skip
    rows = yield Statement("read_levels", {**_streams_params(streams, count), "levels": most}, words=words)
    parts: list[_Part] = []
    for values, levels in zip(streams.values, _from_json(rows), strict=True):
        part = _whole_levels(levels, most, count)
        parts.append(part if part[0] or part[1] else (yield from _read_stream(streams, values, count)))
    return parts


def _whole_levels(levels: list[tuple[Rows, int]], most: int, count: int) -> _Part:
    """The tasks of a stream that were read up to the first one that is missing, and whether none is missing."""
    found: Rows = []
    for rows, is_cut in levels:
        found += rows
        if is_cut or len(rows) == count:
            return found, False
    return found, len(levels) < most


def _from_json(rows: Rows) -> list[Any]:
    decoded: list[Any] = msgspec.json.decode(f"[{','.join(row[0] for row in rows)}]")
    return decoded


def _streams_params(streams: _Streams, count: int) -> dict[str, Any]:
    return {**_params(streams.filters), "streams": streams.values, "bound": streams.bound, "count": count}


def _streams_words(streams: _Streams, order: str, level: str = "") -> Words:
    in_stream = " ".join(
        f"AND {column} = stream.value ->> {place}" for place, column in enumerate(streams.family.columns)
    )
    is_filtered = streams.passes != _NOT_EXPIRED or streams.bound < UNBOUNDED
    part = "filtered_part_of_stream" if is_filtered else "part_of_stream"
    return (
        streams.index, ("part", f"{{{{{part}}}}}"), ("where", f"{in_stream} {level}"), ("in_stream", in_stream),
        ("order", order), ("passes", streams.passes)
    )  # fmt: skip


def _read_stream(streams: _Streams, values: _Values, count: int) -> Statements[_Part]:
    """The first `count` tasks of the stream that pass the filters. Raises _Cut if the bound prevents that."""
    order = streams.filters.order
    if order in _LEVELS:
        rows = yield from _read_levels(streams, values, count)
    else:
        rows = yield from _read(streams, values, count, _ORDERED[order][1])
    return rows, len(rows) < count


def _read_levels(streams: _Streams, values: _Values, count: int) -> Statements[Rows]:
    beyond, levels, within, _ = _LEVELS[streams.filters.order]
    level = -BEYOND if beyond == ">" else BEYOND
    words = (streams.index, ("where", _in_stream(streams.family)), ("beyond", beyond), ("order", levels))
    found: Rows = []
    while len(found) < count:
        rows = yield Statement("next_level", {"after": level, **_named(values)}, words=words)
        if not rows:
            break
        [(level,)] = rows
        found += yield from _read(streams, values, count - len(found), within, level)
    return found


def _read(streams: _Streams, values: _Values, count: int, order: str, level: int | None = None) -> Statements[Rows]:
    where = _in_stream(streams.family) + ("" if level is None else " AND priority = :level")
    words = (streams.index, ("where", where), ("order", order), ("passes", streams.passes))
    params = {**_named(values), "level": level, "bound": streams.bound}
    rows = yield Statement("scan", {**_params(streams.filters), **params, "count": count}, words=words)
    if len(rows) < count and (yield from _is_cut(words, params)):
        raise _Cut
    return rows


def _in_stream(family: StreamFamily) -> str:
    return " ".join(f"AND {column} = :{name}" for column, name in zip(family.columns, _VALUES, strict=False))


def _named(values: _Values) -> dict[str, Any]:
    return dict(zip(_VALUES, values, strict=False))


_VALUES = ("first", "second")
"""The parameters with the values of a stream."""


# Random orders


def _pick_random(filters: Filters, indexes: StreamIndexes, advance: bool) -> Statements[list[int]]:
    """The tasks with the smallest numbers. Numbers below the position are drawn again first: see `scan_random`."""
    position = yield from _position(filters.order, advance)
    if position is not None and advance:
        yield from _redraw(filters, indexes, position)
    rows = [] if position is None else (yield from _scan_numbers(filters, indexes, position))
    if rows and advance:
        yield Statement("advance_random_order", {"kind": filters.order, "position": rows[-1][1]})
    ids = _ids(rows)
    if len(ids) < filters.count:  # tasks without a number, or with one below the position, come last
        fifo = msgspec.structs.replace(filters, order=Order.FIFO)
        others = yield from _pick(fifo, TierMemory(), indexes, advance)
        ids = list(dict.fromkeys([*ids, *others]))
    return ids[: filters.count]


def _position(order: str, advance: bool) -> Statements[float | None]:
    rows = yield Statement("random_order", {"kind": order})
    if advance and (not rows or rows[0][1] is not None or rows[0][2]):
        raise NumbersMissing(order)
    return rows[0][0] if rows else None


def _scan_numbers(filters: Filters, indexes: StreamIndexes, position: float) -> Statements[Rows]:
    bound = 8 * filters.count + SCANNED
    params = {**_params(filters), "position": position, "count": filters.count}
    words = (*_number_words(filters.order), _passes(filters))
    rows = yield Statement("scan_random", {**params, "bound": bound}, words=words)
    if len(rows) == filters.count or not (yield Statement("beyond_numbers", {**params, "bound": bound}, words=words)):
        return rows
    family = _number_family(filters)
    if family is None or not (yield from indexes.find(stream_index(family, filters.order))):
        return (yield Statement("scan_random", {**params, "bound": UNBOUNDED}, words=words))
    names = yield from _number_streams(filters, family)
    words = (*_number_words(filters.order, family), _passes(filters, family))
    share = _share(filters.count, len(names))
    rows = yield Statement("read_numbers", {**params, "names": names, "count": share}, words=words)
    found = sorted((row[:2] for row in rows), key=lambda row: row[1])[: filters.count]
    last = found[-1][1] if len(found) == filters.count else inf
    longer = {number for number, some in _by_stream(rows).items() if len(some) == share and some[-1] < last}
    if longer:  # these streams may have more of the smallest numbers
        params = {**params, "names": [names[number] for number in longer]}
        more = yield Statement("read_numbers", params, words=words)
        found = sorted({*found, *(row[:2] for row in more)}, key=lambda row: row[1])[: filters.count]
    return found


def _by_stream(rows: Rows) -> dict[int, list[float]]:
    """The numbers of the tasks of each stream, in order."""
    numbers: dict[int, list[float]] = {}
    for _, number, stream in sorted(rows, key=lambda row: row[1]):
        numbers.setdefault(stream, []).append(number)
    return numbers


def _redraw(filters: Filters, indexes: StreamIndexes, position: float) -> Statements[None]:
    """Draw new numbers for matching tasks below the position: claims with other filters have passed them over."""
    rate = ("rate", _NUMBERS[filters.order][1])
    params = {**_params(filters), "position": position, "bound": 4 * REDRAWN, "count": REDRAWN}
    yield Statement("redraw", params, words=(*_number_words(filters.order), _passes(filters), rate))
    family = _number_family(filters)
    if family is None or not indexes.is_known(stream_index(family, filters.order)):
        return
    names = yield from _number_streams(filters, family)
    if len(names) <= PROBED_STREAMS:
        words = (*_number_words(filters.order, family), _passes(filters, family), rate)
        for name in names:
            yield Statement("redraw", {**params, "name": name}, words=words)


def _number_family(filters: Filters) -> StreamFamily | None:
    """The family whose index has the tasks of the claim in random order."""
    if filters.queues is None and filters.types is None:
        return None
    if filters.types is None or (filters.queues is not None and len(filters.queues) <= len(filters.types)):
        return QUEUE
    return TYPE


def _number_streams(filters: Filters, family: StreamFamily) -> Statements[list[str]]:
    if family is QUEUE:
        return (yield from _open("queue", filters.queues))
    return (yield from _open("type", filters.types))


def _number_words(order: str, family: StreamFamily | None = None) -> Words:
    key = ("key", _NUMBERS[order][0])
    if family is None:
        return (("index", RANDOM_INDEXES[Order(order)]), key, ("where", ""))
    column = family.name
    return (("index", stream_index(family, order)), key, ("column", column), ("where", f"AND {column} = :name"))


def number_some(order: str) -> Statements[bool]:
    """Begin the random order if it has not begun, and number the next CHUNK tasks; True if there may be more."""
    key, rate = _NUMBERS[order]
    if not (yield Statement("random_order", {"kind": order})):
        index = ("index", RANDOM_INDEXES[Order(order)])
        yield Statement("create_random_index", words=(index, ("key", key)))
    yield Statement("begin_random_order", {"kind": order})
    [(position, numbered_to, _)] = yield Statement("random_order", {"kind": order})
    if numbered_to is None:  # another process has numbered the rest
        return False
    params = {"kind": order, "position": position, "numbered_to": numbered_to, "count": CHUNK, "last": CHUNK - 1}
    yield Statement("number_tasks", params, words=(("key", key), ("rate", rate)))
    [(numbered_to,)] = yield Statement("note_numbered", params)
    return numbered_to is not None


def create_stream_index(name: str) -> Statements[None]:
    """Create an index of streams."""
    columns, number = DEFINITIONS[name]
    condition = "{{claimable}}" + (f" AND {number} IS NOT NULL" if number else "")
    yield Statement("create_stream_index", words=(("index", name), ("columns", columns), ("condition", condition)))


# Filters


def _passes(filters: Filters, family: StreamFamily | None = None) -> tuple[str, str]:
    """The conditions on a task that was read. `family`: that of the streams, whose columns need no condition."""
    return "passes", _conditions(filters, () if family is None else family.columns)


def _conditions(filters: Filters, columns: tuple[str, ...], *, is_open: bool = True) -> str:
    conditions = (
        ("{{in_named_queues}}", filters.queues is not None and "queue" not in columns),
        ("{{of_named_types}}", filters.types is not None and "type" not in columns),
        ("{{with_attempts_left}}", is_cut_by_attempts(filters) and "attempts_left" not in columns),
        ("{{queue_is_open}}", is_open and "queue" not in columns),
        ("{{type_is_open}}", is_open and "type" not in columns),
        (_NOT_EXPIRED, True),
    )
    return " ".join(fragment for fragment, needed in conditions if needed)


def _params(filters: Filters) -> dict[str, Any]:
    return {
        "queues": None if filters.queues is None else _distinct(filters.queues),
        "types": None if filters.types is None else _distinct(filters.types),
        "min_attempts_left": max(filters.max_attempts_remaining or 0, 1),
    }


def _ids(rows: Iterable[Row]) -> list[int]:
    return [row[0] for row in rows]


def _distinct(names: Iterable[str] | None) -> list[str]:
    return list(dict.fromkeys(names or ()))
