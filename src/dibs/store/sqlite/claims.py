"""How a claim on SQLite chooses its tasks: a scan of the first tasks of the store, or a merge of streams.

The scan reads a bounded number of the first claimable tasks and keeps those that pass the filters. That is enough
unless other tasks come first: of types or queues that the claim does not name, or with too few attempts left. Then the
claim reads streams: the tasks of each named type or of each named queue, in order, and takes the first tasks of all.
So the cost of a claim does not depend on the number of queues and types in the store. Every operation that writes
holds the lock of the file, so that many small statements cost less than one large statement (a probe takes 4 µs), and
no other process can change a task between two of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Any

import msgspec

from dibs.model.claim import Filters, Order
from dibs.store.contract import NumbersMissing
from dibs.store.operation import Row, Rows, Statement, Statements
from dibs.store.operations.claim import CHUNK, RANDOM_ORDERS, TierMemory
from dibs.store.sql import Words

UNBOUNDED = 2**62
"""As a bound: read a stream to its end."""

SCAN_LEVELS = 16
"""Priorities that a scan reads, if the order needs a statement for each priority."""

NEAR, FAR = 64, 2048
"""Tasks of a stream that are read, beyond eight for each requested task, before the other kind of stream is tried, if
queues and types are named: first few tasks of both kinds of streams, then more."""

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

_NUMBERS: dict[str, tuple[str, str, str]] = {
    Order.RANDOM: ("dibs_tasks_by_random", "random_key", "1"),
    Order.WEIGHTED: ("dibs_tasks_by_weight", "weighted_key", "max(priority + 1, 1)"),
}
"""The random orders: the index, the column of the random-order number, and the rate of its distribution."""


def pick(filters: Filters, memory: TierMemory, *, advance: bool = True) -> Statements[list[int]]:
    """The ids of the tasks that the claim takes, in order. `advance`: the tasks are claimed in this transaction, so the
    position of a random order advances."""
    if filters.order in RANDOM_ORDERS:
        return (yield from _pick_random(filters, advance))
    for tier in memory.in_turn(filters, _tiers(filters)):
        rows = yield from tier(filters)
        if rows is not None:
            return _ids(rows)
    raise AssertionError("The last tier reads its streams to the end.")


_Tier = Callable[[Filters], Statements[Rows | None]]
"""A way to choose tasks: the first `count` matching tasks in order; None if they are not certain to be the first."""


def _tiers(filters: Filters) -> list[_Tier]:
    if filters.queues is None and filters.types is None:
        return [_scan, _merge_all_queues]
    if filters.queues is None:
        return [_scan, _merge_types]
    if filters.types is None:
        return [_scan, _merge_queues]
    bounded = [partial(merge, bound=8 * filters.count + bound) for bound in (NEAR, FAR) for merge in _BOUNDED]
    return [_scan, *bounded, _merge_queues]


# The scan


def _scan(filters: Filters) -> Statements[Rows | None]:
    bound = 8 * filters.count + 512
    if filters.order in _LEVELS:
        return (yield from _scan_levels(filters, bound))
    index, order, _ = _ORDERED[filters.order]
    words = (("index", index), ("order", order), ("where", ""), *_filter_words(filters))
    rows = yield Statement("scan", {**_params(filters), "bound": bound, "count": filters.count}, words=words)
    if len(rows) < filters.count and (yield from _is_cut(words, {"bound": bound})):
        return None
    return rows


def _scan_levels(filters: Filters, bound: int) -> Statements[Rows | None]:
    found: Rows = []
    beyond, levels, within, _ = _LEVELS[filters.order]
    index = ("index", "dibs_tasks_by_priority")
    level = -BEYOND if beyond == ">" else BEYOND
    for _ in range(SCAN_LEVELS):
        next_level = (index, ("beyond", beyond), ("order", levels), ("where", ""))
        rows = yield Statement("next_level", {"after": level}, words=next_level)
        if not rows:
            return found
        [(level,)] = rows
        words = (index, ("order", within), ("where", "AND priority = :level"), *_filter_words(filters))
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
    return bool((yield Statement("beyond_bound", params, words=words)))


# Streams


class _Stream(msgspec.Struct, frozen=True):
    """The claimable tasks with one value of a column; in the orders by age, only those of one priority."""

    column: str
    name: str
    level: int | None = None


class _Cut(Exception):
    """A bounded read of a stream found too few tasks, and more follow."""


def _merge_types(filters: Filters) -> Statements[Rows | None]:
    return (yield from _merge(_type_streams(filters), filters))


def _merge_types_bounded(filters: Filters, bound: int) -> Statements[Rows | None]:
    return (yield from _merge_or_none(_type_streams(filters), filters, bound))


def _type_streams(filters: Filters) -> list[_Stream]:
    return [_Stream("type", name) for name in _distinct(filters.types)]


def _merge_queues(filters: Filters) -> Statements[Rows | None]:
    streams = yield from _open_queues(_distinct(filters.queues))
    return (yield from _merge(streams, filters))


def _merge_queues_bounded(filters: Filters, bound: int) -> Statements[Rows | None]:
    streams = yield from _open_queues(_distinct(filters.queues))
    return (yield from _merge_or_none(streams, filters, bound))


_BOUNDED = (_merge_queues_bounded, _merge_types_bounded)


def _merge_all_queues(filters: Filters) -> Statements[Rows | None]:
    names, after = [], ""
    while True:
        [(after,)] = yield Statement("next_queue", {"after": after})
        if after is None:
            break
        names.append(after)
    streams = yield from _open_queues(names)
    return (yield from _merge(streams, filters))


def _open_queues(names: list[str]) -> Statements[list[_Stream]]:
    """The streams of the queues that are not paused. The tasks of a paused queue may not be parked yet."""
    paused = {row[0] for row in (yield Statement("paused_of", {"queues": names}))}
    return [_Stream("queue", name) for name in names if name not in paused]


def _merge_or_none(streams: list[_Stream], filters: Filters, bound: int) -> Statements[Rows | None]:
    try:
        return (yield from _merge(streams, filters, bound))
    except _Cut:
        return None


def _merge(streams: list[_Stream], filters: Filters, bound: int = UNBOUNDED) -> Statements[Rows]:
    """The first `count` tasks of the streams. One statement reads the first task of every stream, a second one some
    tasks of the streams that come first; of a stream whose tasks come next, more are read."""
    if filters.order in (Order.FIFO, Order.LIFO):
        streams = yield from _by_level(streams)
    key = _key(filters)
    heads = yield from _read_streams(streams, filters, 1, bound)
    found = [(key(rows[0]), number) for number, (rows, _) in enumerate(heads) if rows]
    nearest = [number for _, number in heapq.nsmallest(filters.count, found)]
    if filters.count == 1:
        return [heads[number][0][0] for number in nearest]
    first = [streams[number] for number in nearest]
    share = 2 * filters.count // max(len(first), 1) + 4
    parts = yield from _read_streams(first, filters, min(share, filters.count), bound)
    return (yield from _merge_parts(first, parts, filters, bound, key))


def _key(filters: Filters) -> _Key:
    return (_ORDERED.get(filters.order) or _LEVELS[filters.order])[-1]


_Part = tuple[Rows, bool]
"""The first matching tasks of a stream, and whether there are no others."""


def _merge_parts(
    streams: list[_Stream], parts: list[_Part], filters: Filters, bound: int, key: _Key
) -> Statements[Rows]:
    queue = [(key(rows[0]), number, 0) for number, (rows, _) in enumerate(parts) if rows]
    heapq.heapify(queue)
    found: Rows = []
    while queue and len(found) < filters.count:
        _, number, place = heapq.heappop(queue)
        rows, complete = parts[number]
        found.append(rows[place])
        place += 1
        if place == len(rows) and not complete and len(found) < filters.count:
            parts[number] = yield from _read_stream(streams[number], filters, 8 * place, bound)
        if place < len(parts[number][0]):
            heapq.heappush(queue, (key(parts[number][0][place]), number, place))
    return found


def _read_streams(streams: list[_Stream], filters: Filters, count: int, bound: int) -> Statements[list[_Part]]:
    """The first `count` matching tasks of each stream, with one statement. In an order by levels, the statement reads
    the first level only: streams without a matching task there are read one by one."""
    if not streams:
        return []
    column, by_level = streams[0].column, filters.order in _LEVELS
    order = _LEVELS[filters.order][2] if by_level else _ORDERED[filters.order][1]
    words = (*_streams_words(streams, filters), ("order", order), *_filter_words(filters, column))
    params = {"streams": [[each.name, each.level] for each in streams], "bound": bound, "count": count}
    found: list[Rows] = [[] for _ in streams]
    for number, *row in (yield Statement("read_streams", {**_params(filters), **params}, words=words)):
        found[number].append(tuple(row))
    for rows in found:
        rows.sort(key=_key(filters))  # the statement returns the tasks of a stream in the order of their ids
    if by_level:
        return (yield from _with_other_levels(streams, found, filters, count, bound))
    if bound < UNBOUNDED and any(len(rows) < count for rows in found):
        short = [[each.name, each.level] for each, rows in zip(streams, found, strict=True) if len(rows) < count]
        if (yield Statement("cut_streams", {**params, "streams": short}, words=words)):
            raise _Cut
    return [(rows, len(rows) < count) for rows in found]


def _with_other_levels(
    streams: list[_Stream], found: list[Rows], filters: Filters, count: int, bound: int
) -> Statements[list[_Part]]:
    parts: list[_Part] = []
    for stream, rows in zip(streams, found, strict=True):
        if rows:
            parts.append((rows, False))
        else:
            parts.append((yield from _read_stream(stream, filters, count, bound)))
    return parts


def _streams_words(streams: list[_Stream], filters: Filters) -> Words:
    column = streams[0].column
    level = "" if streams[0].level is None else "AND priority = stream.value ->> 1"
    if filters.order in _LEVELS:
        level = "AND priority = {{first_level}}"
    levels = ("levels", _LEVELS[filters.order][1] if filters.order in _LEVELS else "")
    where = ("where", f"AND {column} = stream.value ->> 0 {level}")
    return (("index", f"dibs_tasks_by_{column}"), ("column", column), levels, where)


def _by_level(streams: list[_Stream]) -> Statements[list[_Stream]]:
    """A stream for each priority: the indexes of streams have the order of ids within a priority only."""
    if not streams:
        return []
    column = streams[0].column
    words = (("index", f"dibs_tasks_by_{column}"), ("column", column))
    rows = yield Statement("stream_levels", {"names": [stream.name for stream in streams]}, words=words)
    return [_Stream(column, name, level) for name, level in rows]


def _next_level(stream: _Stream, level: int, beyond: str, order: str) -> Statements[Rows]:
    words = (*_stream_words(stream), ("beyond", beyond), ("order", order))
    return (yield Statement("next_level", {"after": level, "name": stream.name}, words=words))


def _read_stream(stream: _Stream, filters: Filters, count: int, bound: int) -> Statements[_Part]:
    """The first `count` tasks of the stream that pass the filters. Raises _Cut if the bound prevents that."""
    if filters.order in _LEVELS:
        rows = yield from _read_levels(stream, filters, count, bound)
    else:
        rows = yield from _read(stream, filters, count, bound, _ORDERED[filters.order][1])
    return rows, len(rows) < count


def _read_levels(stream: _Stream, filters: Filters, count: int, bound: int) -> Statements[Rows]:
    beyond, levels, within, _ = _LEVELS[filters.order]
    level = -BEYOND if beyond == ">" else BEYOND
    found: Rows = []
    while len(found) < count and (rows := (yield from _next_level(stream, level, beyond, levels))):
        [(level,)] = rows
        part = _Stream(stream.column, stream.name, level)
        found += yield from _read(part, filters, count - len(found), bound, within)
    return found


def _read(stream: _Stream, filters: Filters, count: int, bound: int, order: str) -> Statements[Rows]:
    words = (*_stream_words(stream), ("order", order), *_filter_words(filters, stream.column))
    params = {"name": stream.name, "level": stream.level, "bound": bound}
    rows = yield Statement("scan", {**_params(filters), **params, "count": count}, words=words)
    if bound < UNBOUNDED and len(rows) < count and (yield from _is_cut(words, params)):
        raise _Cut
    return rows


def _stream_words(stream: _Stream) -> Words:
    level = "" if stream.level is None else "AND priority = :level"
    return (("index", f"dibs_tasks_by_{stream.column}"), ("where", f"AND {stream.column} = :name {level}"))


# Random orders


def _pick_random(filters: Filters, advance: bool) -> Statements[list[int]]:
    """The tasks with the smallest numbers. Numbers below the position are drawn again first: see `scan_random`."""
    position = yield from _position(filters.order, advance)
    if position is not None and advance:
        yield from _redraw(filters, position)
    rows = [] if position is None else (yield from _scan_numbers(filters, position))
    if rows and advance:
        yield Statement("advance_random_order", {"kind": filters.order, "position": rows[-1][1]})
    ids = _ids(rows)
    if len(ids) < filters.count:  # tasks without a number, or with one below the position, come last
        others = yield from pick(msgspec.structs.replace(filters, order=Order.FIFO), TierMemory(), advance=advance)
        ids = list(dict.fromkeys([*ids, *others]))
    return ids[: filters.count]


def _position(order: str, advance: bool) -> Statements[float | None]:
    rows = yield Statement("random_order", {"kind": order})
    if advance and (not rows or rows[0][1] is not None or rows[0][2]):
        raise NumbersMissing(order)
    return rows[0][0] if rows else None


def _scan_numbers(filters: Filters, position: float) -> Statements[Rows]:
    index, key, _ = _NUMBERS[filters.order]
    bound = 8 * filters.count + 512
    params = {**_params(filters), "position": position, "count": filters.count}
    words = (*_number_words(index, key), *_filter_words(filters))
    rows = yield Statement("scan_random", {**params, "bound": bound}, words=words)
    if len(rows) == filters.count or not (yield Statement("beyond_numbers", {**params, "bound": bound}, words=words)):
        return rows
    column, names = yield from _number_streams(filters)
    if column is None:
        return (yield Statement("scan_random", {**params, "bound": UNBOUNDED}, words=words))
    words = (*_number_words(index, key, column), *_filter_words(filters, column))
    share = min(2 * filters.count // max(len(names), 1) + 4, filters.count)
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


def _redraw(filters: Filters, position: float) -> Statements[None]:
    """Draw new numbers for matching tasks below the position: claims with other filters have passed them over."""
    index, key, rate = _NUMBERS[filters.order]
    params = {**_params(filters), "position": position, "bound": 4 * REDRAWN, "count": REDRAWN}
    words = (*_number_words(index, key), *_filter_words(filters), ("rate", rate))
    yield Statement("redraw", params, words=words)
    column, names = yield from _number_streams(filters)
    if column is not None and len(names) <= PROBED_STREAMS:
        words = (*_number_words(index, key, column), *_filter_words(filters, column), ("rate", rate))
        for name in names:
            yield Statement("redraw", {**params, "name": name}, words=words)


def _number_streams(filters: Filters) -> Statements[tuple[str | None, list[str]]]:
    """The column whose index has the tasks of the claim in random order, and its values."""
    queues, types = _distinct(filters.queues), _distinct(filters.types)
    if filters.queues is None and filters.types is None:
        return None, []
    if filters.types is None or (filters.queues is not None and len(queues) <= len(types)):
        return "queue", [stream.name for stream in (yield from _open_queues(queues))]
    return "type", types


def _number_words(index: str, key: str, column: str | None = None) -> Words:
    if column is None:
        return (("index", index), ("key", key), ("where", ""))
    return (("index", f"{index}_{column}"), ("key", key), ("column", column), ("where", f"AND {column} = :name"))


def number_some(order: str) -> Statements[bool]:
    """Begin the random order if it has not begun, and number the next CHUNK tasks; True if there may be more."""
    if not (yield Statement("random_order", {"kind": order})):
        yield from _create_indexes(order)
    yield Statement("begin_random_order", {"kind": order})
    [(position, numbered_to, _)] = yield Statement("random_order", {"kind": order})
    if numbered_to is None:  # another process has numbered the rest
        return False
    _, key, rate = _NUMBERS[order]
    params = {"kind": order, "position": position, "numbered_to": numbered_to, "count": CHUNK, "last": CHUNK - 1}
    yield Statement("number_tasks", params, words=(("key", key), ("rate", rate)))
    [(numbered_to,)] = yield Statement("note_numbered", params)
    return numbered_to is not None


def _create_indexes(order: str) -> Statements[None]:
    index, key, _ = _NUMBERS[order]
    for name, columns in ((index, key), (f"{index}_type", f"type, {key}"), (f"{index}_queue", f"queue, {key}")):
        yield Statement("create_random_index", words=(("index", name), ("columns", columns), ("key", key)))


# Filters


def _filter_words(filters: Filters, column: str | None = None) -> Words:
    """The conditions on a task that was read. `column`: the column of the stream, which needs no condition."""
    queues = filters.queues is not None and column != "queue"
    types = filters.types is not None and column != "type"
    return (
        ("in_queues", "AND queue IN (SELECT value FROM json_each(:queues))" if queues else ""),
        ("in_types", "AND type IN (SELECT value FROM json_each(:types))" if types else ""),
        ("not_paused", "" if column == "queue" else "{{queue_is_open}}"),
    )


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
