"""Enqueue and claim in SQLite's way: under the write lock many small statements cost less than one clever one.

A recursive query over the lines costs some 200 µs here, a probe 4 µs; no other process can write in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.model.finalization import ClaimReason
from dibs.model.history import HistoryPosition
from dibs.model.statistics import HistoryChanges
from dibs.model.task import State
from dibs.model.workflow import WorkflowState
from dibs.store.operation import Row, Rows, Statement, Steps
from dibs.store.operations import SqlOperations
from dibs.store.operations.claiming import Hands, claim_params
from dibs.store.operations.enqueueing import NewRows, Stored, find_keys
from dibs.store.operations.finalizing import Answered, already_complete, not_found
from dibs.store.operations.newrow import NewRow
from dibs.store.operations.racing import CHUNK, Line, Undrawn
from dibs.store.sql import Words
from dibs.store.sqlite import tallying

_ORDERS = {
    Order.PRIORITY: ("dibs_tasks_by_priority", "priority DESC, id", lambda row: (-row[1], row[0])),
    Order.FIFO: ("dibs_tasks_by_age", "id", lambda row: row[0]),
    Order.LIFO: ("dibs_tasks_by_age", "id DESC", lambda row: -row[0]),
}
_LEVELS = {
    Order.PRIORITY_LIFO: (
        (("beyond", "<"), ("levels", "priority DESC"), ("within", "id DESC")),
        lambda row: (-row[1], -row[0]),
    ),
    Order.PRIORITY_ASC: (
        (("beyond", ">"), ("levels", "priority"), ("within", "id")),
        lambda row: (row[1], row[0]),
    ),
}
"""The way through the priorities of a line, and the order in each."""
_RACES = {
    Order.RANDOM: (("index", "dibs_tasks_by_random"), ("key", "random_key"), ("rate", "1")),
    Order.WEIGHTED: (("index", "dibs_tasks_by_weight"), ("key", "weighted_key"), ("rate", "max(priority + 1, 1)")),
}


BEYOND = 2**32
"""Higher than any priority; and below zero, lower."""


class SqliteOperations(SqlOperations):
    """The operations that SQLite does in its own way."""

    def insert_tasks(self, rows: NewRows) -> Steps[dict[int, Stored]]:
        """See Enqueueing. Ids and states are found here, under the write lock, so that plain values are inserted."""
        free = yield from _without_taken_keys(rows)
        if not free:
            return {}
        [(now, last, racing)] = yield Statement("last_id")
        stored = [_stored(row, task_id, now) for task_id, row in enumerate(free.values(), last + 1)]
        new = {"first": last + 1, "last": last + len(stored)}
        yield Statement("enqueue", values=[_values(each) for each in stored])
        if racing:
            yield Statement("draw_places", new)
        yield Statement("enqueue_history", new)
        return dict(zip(free, stored, strict=True))

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Steps[None]:
        """See Adding."""
        yield Statement("enqueue_steps", rows=rows)
        yield Statement("enqueue_history", {"first": rows[0]["id"], "last": rows[-1]["id"]})

    def hold_roots(self, ids: list[int]) -> Steps[None]:
        """See Advancing. This transaction is the only one that writes."""
        yield from ()

    def leave(self, recovered: Rows) -> Steps[None]:
        """See Tending. RETURNING sees only the new row, so the holder must stay until the history is written."""
        yield Statement("leave_tasks", {"ids": [row[0] for row in recovered if row[3] == State.PENDING]})

    def standing_at(self) -> Steps[HistoryPosition]:
        """See Tallying."""
        return tallying.standing_at()

    def going_on(self, positions: Sequence[HistoryPosition], limit: int) -> Steps[list[HistoryChanges]]:
        """See Tallying."""
        return tallying.going_on(positions, limit)

    def ask_for_finalization(self, workflow_id: int, processor: str, lease: int) -> Steps[Answered]:
        """See Finalizing. Under the write lock nobody can come between the look and the claim: no race is lost."""
        answer = yield from self._answer(workflow_id, processor, lease)
        names = ("claimed", "already_claimed_by", "state", "message", "reason", "token")
        yield Statement(
            "note_finalization",
            {"id": workflow_id, "processor": processor, **dict(zip(names, answer, strict=False))},
        )
        return answer

    def _answer(self, workflow_id: int, processor: str, lease: int) -> Steps[Answered]:
        workflow = yield from self.read_workflow(workflow_id)
        if workflow is None:
            return not_found()
        if workflow.finished:
            return already_complete(workflow)
        if workflow.state is WorkflowState.FINALIZING:
            return (yield from self.held_by_finalizer(workflow))
        status = (yield from self.execution_status(workflow)).value
        if workflow.ended == 0 and workflow.steps > 0:
            return (
                False,
                None,
                status,
                "Workflow has no completed or failed steps",
                ClaimReason.NOT_READY,
                None,
                None,
            )
        given = {"id": workflow_id, "processor": processor, "lease": lease}
        claimed = yield Statement("claim_finalization", given)
        if not claimed:
            by = workflow.finalization_by
            return (
                False,
                by,
                status,
                "Workflow already claimed for finalization",
                ClaimReason.ALREADY_CLAIMED,
                None,
                None,
            )
        token, until = claimed[0]
        if token == workflow.finalization_token:
            return True, processor, status, "Claim extended", ClaimReason.EXTENDED, token, until
        return True, None, status, "Successfully claimed for finalization", ClaimReason.CLAIMED, token, until

    def take(self, request: ClaimRequest, atomic: bool, hands: Hands | None = None) -> Steps[Rows]:
        """See Claiming."""
        lines = yield from _lines(request)
        ids = yield from _pick(lines, request)
        if not ids:
            return []
        by_id: dict[int, Row] = {}
        for whose, some in _dealt(ids, hands):
            rows = yield Statement("claim", {**claim_params(request), **whose, "ids": some}, change=True)
            by_id.update((row[0], row) for row in rows)
        return [by_id[task_id] for task_id in ids]

    def pick(self, filters: Filters) -> Steps[list[int]]:
        """See Claiming."""
        lines = yield from _lines(filters)
        return (yield from _pick(lines, filters, advance=False))

    def draw_some(self, kind: str, line: Line) -> Steps[bool]:
        """See Racing."""
        [(position, drawn_to)] = yield Statement("race", {**line, "kind": kind})
        if drawn_to is None:  # others have done it
            return False
        params = {**line, "kind": kind, "position": position, "drawn_to": drawn_to, "count": CHUNK, "last": CHUNK - 1}
        yield Statement("draw", params, words=_RACES[Order(kind)])
        [(drawn_to,)] = yield Statement("note_drawn", params)
        return drawn_to is not None


def _dealt(ids: list[int], hands: Hands | None) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """The ids for each worker; all for that of the request where no others are named."""
    if hands is None:
        yield {}, ids
        return
    for (worker_id, incarnation), some in groupby(zip(hands, ids, strict=False), key=lambda each: each[0]):
        yield {"worker_id": worker_id, "incarnation": incarnation}, [task_id for _, task_id in some]


def _without_taken_keys(rows: NewRows) -> Steps[NewRows]:
    taken = yield from find_keys(rows.values())
    return {place: row for place, row in rows.items() if row.name not in taken} if taken else rows


def _stored(row: NewRow, task_id: int, now: int) -> Stored:
    return row, task_id, "scheduled" if _due(row, now) > now else "pending", now


def _values(stored: Stored) -> tuple[Any, ...]:
    """The columns of `enqueue`."""
    row, task_id, state, now = stored
    return (
        task_id, row.type, row.type_version, row.queue, state, row.priority, row.params, row.max_attempts, row.timeout,
        row.backoff_base, row.backoff_cap, now, _due(row, now), now, row.key, row.key_content, row.trace
    )  # fmt: skip


def _due(row: NewRow, now: int) -> int:
    return row.run_at if row.run_at is not None else now + (row.delay or 0)


def _lines(filters: Filters) -> Steps[list[Line]]:
    paused = {row[0] for row in (yield Statement("paused"))}
    least = max(filters.max_attempts_remaining or 0, 1)
    lines: list[Line] = []
    for queue in _distinct(filters.queues) or (yield from _chain("next_queue", "", {})):
        if queue in paused:
            continue
        for type_name in _distinct(filters.types) or (yield from _chain("next_type", "", {"queue": queue})):
            line = {"queue": queue, "type": type_name}
            lefts = yield from _chain("next_attempts_left", least - 1, line)
            lines += [{**line, "attempts_left": left} for left in lefts]
    return lines


def _chain(name: str, after: Any, params: Line) -> Steps[list[Any]]:
    values: list[Any] = []
    while True:
        rows = yield Statement(name, {**params, "after": after})
        after = rows[0][0]
        if after is None:
            return values
        values.append(after)


def _pick(lines: list[Line], filters: Filters, advance: bool = True) -> Steps[list[int]]:
    if filters.order in _RACES:
        return (yield from _pick_winners(lines, filters, advance))
    found = []
    if filters.order in _LEVELS:
        words, key = _LEVELS[Order(filters.order)]
        for line in lines:
            found += yield from _pick_levels(line, filters.count, words)
    else:
        index, order, key = _ORDERS[Order(filters.order)]
        for line in lines:
            by = (("index", index), ("order", order))
            found += yield Statement("pick", {**line, "count": filters.count}, words=by)
    if len(lines) > 1:
        found.sort(key=key)
    return _ids(found[: filters.count])


def _pick_levels(line: Line, count: int, words: Words) -> Steps[Rows]:
    """The first tasks of the line, priority after priority."""
    found: Rows = []
    after = BEYOND if ("beyond", "<") in words else -BEYOND
    while len(found) < count:
        rows = yield Statement("pick_level", {**line, "after": after, "count": count - len(found)}, words=words)
        if not rows:
            break
        found += rows
        after = rows[0][1]
    return found


def _pick_winners(lines: list[Line], filters: Filters, advance: bool) -> Steps[list[int]]:
    kind, words = str(filters.order), _RACES[Order(filters.order)]
    races = yield from _races(lines, kind, drawn=advance)
    found = []
    for race in races:
        found += yield Statement("pick_race", {**race, "count": filters.count}, words=words)
    winners = sorted(found, key=lambda row: row[1])[: filters.count]
    if winners and advance:
        distance = max(winners[-1][1], 0.0)
        yield Statement("advance_race", rows=[{**race, "distance": distance} for race in races])
    ids = _ids(winners)
    if len(ids) < filters.count:  # after those that have a number, what has none
        ids += yield from _pick(lines, msgspec.structs.replace(filters, order=Order.FIFO))
    return list(dict.fromkeys(ids))[: filters.count]


def _races(lines: list[Line], kind: str, drawn: bool) -> Steps[list[Line]]:
    """The lines that race, each with its position; Undrawn if they must all have `drawn` their numbers and have not."""
    races, undrawn = [], []
    for line in lines:
        rows = yield Statement("race", {**line, "kind": kind})
        races += [{**line, "kind": kind, "position": position} for position, _ in rows]
        if not rows or rows[0][1] is not None:
            undrawn.append(line)
    if undrawn and drawn:
        raise Undrawn(kind, undrawn)
    return races


def _ids(rows: Iterable[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


def _distinct(names: Iterable[str] | None) -> list[str]:
    return list(dict.fromkeys(names or ()))
