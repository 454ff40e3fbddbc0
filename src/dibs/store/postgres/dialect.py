"""What PostgreSQL does in its own way: few clever statements, because a round trip costs more than a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.errors import WorkflowNotFound
from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.model.finalization import ExecutionStatus, FinalizationAction, Finalized
from dibs.model.history import HistoryPosition
from dibs.model.statistics import DatabaseHealth, HistoryChanges
from dibs.model.workflow import WorkflowState
from dibs.store.contract import NumbersMissing, Partition
from dibs.store.operation import Row, Rows, Statement, Statements, limited
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import CHUNK, RANDOM_ORDERS, SWEEPS, Sweeper, claim_params
from dibs.store.operations.dialect import FinalizationStatements, Holders, NewRows, Stored
from dibs.store.operations.finalize import finalization_lost
from dibs.store.postgres import history_gaps
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
"""The way through the priorities of a partition, and the order in each."""

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
"""The column of the random-order number in each order, and the rate of its distribution."""


class PostgresDialect:
    """The statements of PostgreSQL. `measured`: the size of the database is reported. See Dialect."""

    def __init__(self, *, many_writers: bool = True, measured: bool = True) -> None:
        self.many_writers = many_writers
        self._measured = measured

    def insert_tasks(self, rows: NewRows) -> Statements[dict[int, Stored]]:
        """Insert all rows with one statement; the one for tasks without keys is faster."""
        given = list(rows.items())
        if all(row.key is None for row in rows.values()):
            inserted = yield Statement("enqueue_keyless", rows=[row for _, row in given])
            new = zip(given, sorted(inserted), strict=True)  # ids grow in the order of the rows
            return {place: (row, *stored) for (place, row), stored in new}
        inserted = yield Statement("enqueue", rows=[row for _, row in given])
        return {given[nth - 1][0]: (given[nth - 1][1], *stored) for nth, *stored in inserted}

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Statements[None]:
        """Insert the tasks of steps, with their history."""
        yield Statement("enqueue_steps", rows=rows)

    def lock_roots(self, ids: list[int]) -> Statements[None]:
        """Lock the rows of the root workflows."""
        if ids:
            yield Statement("lock_workflows", {"ids": ids})

    def clear_holders(self, recovered: Rows) -> Statements[None]:
        """The statement that recovers tasks has done it."""
        yield from ()

    def finalization(self, advance: Advance) -> FinalizationStatements:
        """Functions of the database, which programs in other languages call as well."""
        return PostgresFinalization(advance)

    def history_position(self) -> Statements[HistoryPosition]:
        """The end of the history, and the gaps before it."""
        return history_gaps.position()

    def history_changes(self, positions: Sequence[HistoryPosition], limit: int) -> Statements[list[HistoryChanges]]:
        """The changes since each position, with those that appeared in its gaps."""
        return history_gaps.changes(positions, limit)

    def database_health(self) -> Statements[DatabaseHealth]:
        """The size of the database, and the age of its oldest transaction, which keeps dead rows."""
        if not self._measured:
            return DatabaseHealth(0)
        [(size, oldest)] = yield Statement("vitals")
        return DatabaseHealth(size, oldest_transaction=oldest)

    def claim(
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None
    ) -> Statements[Rows]:
        """The claim statement itself finds out whether there is anything to sweep. There seldom is, and sweeps that
        find nothing would be two round trips before every claim of a worker that waits for tasks."""
        look = sweeper.is_due
        if look:
            sweeper.postpone()
        claims, overdue = yield from _claim(request, atomic, holders, look)
        if look and overdue:  # then nothing was claimed: the overdue tasks may come first
            yield from sweeper.sweep()
            claims, overdue = yield from _claim(request, atomic, holders)
        for _ in range(
            SWEEPS
        ):  # what a sweep moves may be for other workers: continue while there is something to move
            if claims or not overdue or not (yield from sweeper.sweep()):
                break
            claims, overdue = yield from _claim(request, atomic, holders)
        return claims

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids that a claim would take now."""
        params = {**_filter_params(filters), "undrawn_too": True}
        rows = yield Statement("peek", params, words=_peek_words(filters))
        if filters.order in RANDOM_ORDERS and len(rows) < filters.count:  # tasks without a number come last
            rows += yield Statement("peek", params, words=_peek_words(filters, Order.FIFO))
        return list(dict.fromkeys(row[0] for row in rows))[: filters.count]

    def number_some(self, order: str, partition: Partition) -> Statements[bool]:
        """Number the next CHUNK tasks of the partition."""
        rows = yield Statement("draw", {**partition, "kind": order}, words=(*_KEYS[order], *limited(CHUNK)))
        return any(drawn_to is not None for (drawn_to,) in rows)


class PostgresFinalization:
    """Finalization by functions of the database. See FinalizationStatements."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def claim(self, workflow_id: int, processor: str, lease: int) -> Statements[Row]:
        """Claim the finalization, or find the reason why not, and record the attempt."""
        given = {"id": workflow_id, "processor": processor, "lease": lease}
        rows = yield Statement("claim_finalization", given)
        return rows[0]

    def renew(self, workflow_id: int, processor: str, token: int, lease: int) -> Statements[Row]:
        """Extend the claim, or find the reason why not."""
        given = {"id": workflow_id, "processor": processor, "token": token, "lease": lease}
        rows = yield Statement("renew_finalization", given)
        return rows[0]

    def act(self, workflow_id: int, processor: str, token: int) -> Statements[Finalized]:
        """Check the claim and act on the state of the steps."""
        given = {"id": workflow_id, "processor": processor, "token": token}
        [(reason, state, status, action, due)] = yield Statement("finalize", given)
        if reason != "finalized":
            workflow = yield from self._advance.read_workflow(workflow_id)  # locked: as the function read it
            raise WorkflowNotFound(workflow_id) if workflow is None else finalization_lost(workflow, processor, token)
        return Finalized(workflow_id, WorkflowState(state), ExecutionStatus(status), FinalizationAction(action), due)


def _claim(
    request: ClaimRequest, atomic: bool, holders: Holders | None, look: bool = False
) -> Statements[tuple[Rows, bool]]:
    """The claimed rows, and whether something is overdue. With `look` nothing is claimed where something is."""
    params = {**_filter_params(request), **claim_params(request), "look": look}
    rows = yield _claim_statement("claim", params, request, request.count, holders)
    (seen, overdue), claimed = rows[0][:2], [row for row in rows if row[2] is not None]
    if look and overdue:
        return [], True
    if seen == 0 and request.order in RANDOM_ORDERS:
        yield from _check_numbered(request)
    missing = request.count - len(claimed)
    try:
        # There are tasks: other claims are taking the same ones right now, or some have no random-order number.
        if missing and (seen > len(claimed) or (seen == 0 and request.order in RANDOM_ORDERS)):
            rest = holders and holders[len(claimed) :]
            claimed += yield _claim_statement("claim_any", params, request, missing, rest)
        if claimed and request.order in RANDOM_ORDERS:
            yield from _advance(request, claimed)
    except Exception:
        if atomic or not claimed:
            raise
        # What is claimed is claimed, and must reach its worker; the rest comes with the next claim.
    return [row[3:] for row in claimed], overdue


def _check_numbered(filters: Filters) -> Statements[None]:
    partitions = yield Statement("undrawn_lines", _filter_params(filters), words=_choice(filters))
    if partitions:
        names = ("queue", "type", "attempts_left")
        raise NumbersMissing(str(filters.order), [dict(zip(names, each, strict=True)) for each in partitions])


def _claim_statement(
    name: str, params: dict[str, Any], request: ClaimRequest, count: int, holders: Holders | None
) -> Statement:
    words = (*_words(request, _rounded_up(count)), ("only", "{{if_several}}"))
    params = {**params, "exactly": count}
    if holders is None:
        return Statement(name, params, words=(*words, ("hands", "{{for_one_worker}}")))
    workers, incarnations = [list(each) for each in zip(*holders, strict=True)]
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
    """How the partitions are selected: what the filters name need not be looked for."""
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


def _advance(request: ClaimRequest, claimed: list[Row]) -> Statements[None]:
    distance = max(0.0, *(row[2] for row in claimed))
    params = {**_filter_params(request), "distance": distance}
    yield Statement("advance_race", params, words=(*_choice(request), *_KEYS[str(request.order)]))
