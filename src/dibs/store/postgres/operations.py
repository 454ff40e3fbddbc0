"""Enqueue and claim in PostgreSQL's way: one statement each, because a round trip costs more than a clever query."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.model.finalization import ExecutionStatus, FinalizationAction, Finalized
from dibs.model.history import HistoryPosition
from dibs.model.statistics import DatabaseHealth, HistoryChanges
from dibs.model.workflow import WorkflowState
from dibs.store.operation import Operation, Row, Rows, Statement, Steps, limited
from dibs.store.operations import SqlOperations
from dibs.store.operations.claiming import SWEEPS, Hands, claim_params
from dibs.store.operations.enqueueing import NewRows, Stored
from dibs.store.operations.finalizing import finalization_lost
from dibs.store.operations.racing import CHUNK, RACES, Line, Undrawn
from dibs.store.postgres import tallying
from dibs.store.sql import Words

SLACK = 32
"""Candidates beyond what is asked for: about as many claims at the same moment find each their own."""

_ORDERS = {
    Order.PRIORITY: ("{{candidates_ordered}}", "priority DESC, id"),
    Order.PRIORITY_LIFO: ("{{candidates_levels}}", "priority DESC, id DESC"),
    Order.PRIORITY_ASC: ("{{candidates_levels}}", "priority, id"),
    Order.FIFO: ("{{candidates_ordered}}", "id"),
    Order.LIFO: ("{{candidates_ordered}}", "id DESC"),
    Order.RANDOM: ("{{candidates_race}}", "random_key"),
    Order.WEIGHTED: ("{{candidates_race}}", "weighted_key"),
}

_LEVELS: dict[str, Words] = {
    Order.PRIORITY_LIFO: (("beyond", "<"), ("levels", "priority DESC"), ("within", "id DESC")),
    Order.PRIORITY_ASC: (("beyond", ">"), ("levels", "priority"), ("within", "id")),
}
"""The way through the priorities of a line, and the order in each."""

_AT_HAND = {
    Order.PRIORITY_LIFO: "priority DESC, id",
    Order.PRIORITY_ASC: "priority, id DESC",
    Order.RANDOM: "id",
    Order.WEIGHTED: "id",
}
"""The order of an index that comes nearest, where the order itself is that of none (for `claim_any`)."""

_KEYS: dict[str, Words] = {
    Order.RANDOM: (("key", "random_key"), ("rate", "1")),
    Order.WEIGHTED: (("key", "weighted_key"), ("rate", "greatest(task.priority::bigint + 1, 1)")),
}
"""The number of a task in each race, and the rate of its draw."""


class PostgresOperations(SqlOperations):
    """The operations that PostgreSQL does in its own way."""

    def insert_tasks(self, rows: NewRows) -> Steps[dict[int, Stored]]:
        """See Enqueueing."""
        given = list(rows.items())
        if all(row.key is None for row in rows.values()):
            inserted = yield Statement("enqueue_keyless", rows=[row for _, row in given])
            new = zip(given, sorted(inserted), strict=True)  # ids grow in the order of the rows
            return {place: (row, *stored) for (place, row), stored in new}
        inserted = yield Statement("enqueue", rows=[row for _, row in given])
        return {given[nth - 1][0]: (given[nth - 1][1], *stored) for nth, *stored in inserted}

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Steps[None]:
        """See Adding."""
        yield Statement("enqueue_steps", rows=rows)

    def hold_roots(self, ids: list[int]) -> Steps[None]:
        """See Advancing."""
        if ids:
            yield Statement("hold_workflows", {"ids": ids})

    def standing_at(self) -> Steps[HistoryPosition]:
        """See Tallying."""
        return tallying.standing_at()

    def going_on(self, positions: Sequence[HistoryPosition], limit: int) -> Steps[list[HistoryChanges]]:
        """See Tallying."""
        return tallying.going_on(positions, limit)

    def ask_for_finalization(self, workflow_id: int, processor: str, lease: int) -> Steps[Row]:
        """See Finalizing. A function of the database does it, which programs in other languages call as well."""
        given = {"id": workflow_id, "processor": processor, "lease": lease}
        rows = yield Statement("claim_finalization", given)
        return rows[0]

    def extend_finalization(self, workflow_id: int, processor: str, token: int, lease: int) -> Steps[Row]:
        """See Finalizing. A function, as for the claim."""
        given = {"id": workflow_id, "processor": processor, "token": token, "lease": lease}
        rows = yield Statement("renew_finalization", given)
        return rows[0]

    def finalize_held(self, workflow_id: int, processor: str, token: int) -> Steps[Finalized]:
        """See Finalizing. A function, as for the claim."""
        given = {"id": workflow_id, "processor": processor, "token": token}
        [(reason, state, status, action, due)] = yield Statement("finalize", given)
        if reason != "finalized":
            workflow = yield from self.read_workflow(workflow_id)  # it is locked: it is as the function saw it
            raise WorkflowNotFound(workflow_id) if workflow is None else finalization_lost(workflow, processor, token)
        return Finalized(workflow_id, WorkflowState(state), ExecutionStatus(status), FinalizationAction(action), due)

    def sweep_and_take(self, request: ClaimRequest, atomic: bool, hands: Hands | None = None) -> Steps[Rows]:
        """See Claiming. The claim itself looks whether there is anything to sweep: there seldom is, and to sweep for
        nothing would be two round trips before every claim of a worker that waits for tasks."""
        look = time.monotonic() >= self.next_sweep
        if look:
            self.next_sweep = time.monotonic() + self.sweep_every
        claims, overdue = yield from self._take(request, atomic, hands, look)
        if look and overdue:  # then nothing was claimed: what is due may come first
            yield from self.sweep()
            claims, overdue = yield from self._take(request, atomic, hands)
        for _ in range(SWEEPS):  # what a sweep moves may be for others: go on while there is something to move
            if claims or not overdue or not (yield from self.sweep()):
                break
            claims, overdue = yield from self._take(request, atomic, hands)
        return claims

    def take(self, request: ClaimRequest, atomic: bool, hands: Hands | None = None) -> Steps[Rows]:
        """See Claiming."""
        return (yield from self._take(request, atomic, hands))[0]

    def _take(
        self, request: ClaimRequest, atomic: bool, hands: Hands | None, look: bool = False
    ) -> Steps[tuple[Rows, bool]]:
        """The claimed rows, and whether something is overdue. With `look` nothing is claimed where something is."""
        params = {**_filter_params(request), **claim_params(request), "look": look}
        rows = yield _claim("claim", params, request, request.count, hands)
        (seen, overdue), claimed = rows[0][:2], [row for row in rows if row[2] is not None]
        if look and overdue:
            return [], True
        if seen == 0 and request.order in RACES:
            yield from _check_drawn(request)
        missing = request.count - len(claimed)
        try:
            # Not for want of tasks: others are claiming the same ones right now, or some have no number in their race.
            if missing and (seen > len(claimed) or (seen == 0 and request.order in RACES)):
                claimed += yield _claim("claim_any", params, request, missing, hands and hands[len(claimed) :])
            if claimed and request.order in RACES:
                yield from _advance(request, claimed)
        except Exception:
            if atomic or not claimed:
                raise
            # What is claimed is claimed, and must reach its worker; the rest comes with the next claim.
        return [row[3:] for row in claimed], overdue

    def pick(self, filters: Filters) -> Steps[list[int]]:
        """See Claiming."""
        params = {**_filter_params(filters), "undrawn_too": True}
        rows = yield Statement("peek", params, words=_peek_words(filters))
        if filters.order in RACES and len(rows) < filters.count:  # those that have no number yet, after those that have
            rows += yield Statement("peek", params, words=_peek_words(filters, Order.FIFO))
        return list(dict.fromkeys(row[0] for row in rows))[: filters.count]

    def draw_some(self, kind: str, line: Line) -> Steps[bool]:
        """See Racing."""
        rows = yield Statement("draw", {**line, "kind": kind}, words=(*_KEYS[kind], *limited(CHUNK)))
        return any(drawn_to is not None for (drawn_to,) in rows)

    def vitals(self) -> Operation[DatabaseHealth]:
        """See Measuring."""
        return Operation("vitals", _vitals, writes=False)


def _vitals() -> Steps[DatabaseHealth]:
    [(size, oldest)] = yield Statement("vitals")
    return DatabaseHealth(size, oldest_transaction=oldest)


def _check_drawn(filters: Filters) -> Steps[None]:
    lines = yield Statement("undrawn_lines", _filter_params(filters), words=_choice(filters))
    if lines:
        names = ("queue", "type", "attempts_left")
        raise Undrawn(str(filters.order), [dict(zip(names, line, strict=True)) for line in lines])


def _claim(name: str, params: dict[str, Any], request: ClaimRequest, count: int, hands: Hands | None) -> Statement:
    words = (*_words(request, _rounded_up(count)), ("only", "{{if_several}}"))
    params = {**params, "exactly": count}
    if hands is None:
        return Statement(name, params, words=(*words, ("hands", "{{for_one_worker}}")))
    workers, incarnations = [list(each) for each in zip(*hands, strict=True)]
    return Statement(
        name,
        {**params, "workers": workers, "incarnations": incarnations},
        words=(*words, ("hands", "{{for_each_worker}}")),
    )


def _rounded_up(count: int) -> int:
    """A statement for each power of four, instead of one for each number of tasks that a worker happens to have room
    for, or of workers that happen to ask together: each is planned on its own."""
    size = 1
    while size < count:
        size *= 4
    return size


def _words(filters: Filters, count: int, order: Order | None = None) -> Words:
    order = order or Order(filters.order)
    candidates, by = _ORDERS[order]
    alone = "{{from_one_line}}" if candidates == "{{candidates_ordered}}" else ""
    return (
        *_choice(filters), ("candidates", candidates), ("alone", alone), ("order", by),
        ("at_hand", _AT_HAND.get(order, by)), *_LEVELS.get(order, ()), ("reach", str(count + SLACK)),
        ("count", str(count))
    )  # fmt: skip


def _peek_words(filters: Filters, order: Order | None = None) -> Words:
    return (*_words(filters, filters.count, order), ("only", ""))


def _choice(filters: Filters) -> Words:
    """How the lines are chosen: what the filters name need not be looked for."""
    return (
        ("open_queues", "{{queues_found}}" if filters.queues is None else "{{queues_named}}"),
        ("kinds", "{{types_found}}" if filters.types is None else "{{types_named}}"),
    )


def _filter_params(filters: Filters) -> dict[str, Any]:
    return {
        "queues": None if filters.queues is None else list(dict.fromkeys(filters.queues)),
        "types": None if filters.types is None else list(dict.fromkeys(filters.types)),
        "least": max(filters.max_attempts_remaining or 0, 1),
        "kind": str(filters.order),
        "undrawn_too": False,
    }


def _advance(request: ClaimRequest, claimed: list[Row]) -> Steps[None]:
    distance = max(0.0, *(row[2] for row in claimed))
    params = {**_filter_params(request), "distance": distance}
    yield Statement("advance_race", params, words=(*_choice(request), *_KEYS[str(request.order)]))
