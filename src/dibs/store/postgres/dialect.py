"""The dialect of PostgreSQL: how claims, inserts, finalization and the history differ from SQLite. See Dialect.

A round trip to the server costs more than a query, so each operation is one large statement where SQLite runs many
small ones. The statements are in `postgres/sql/`; the argument why concurrent claims are safe is in the comments of
`claim.sql`, and a change of the locking belongs there. This module only chooses a statement, its parameters and its
words. Words are texts that become a part of the SQL: every word must come from the fixed tables below or be a number,
never from a user. The names of words and parameters must match `claim.sql`; tests/unit/test_sqlfiles.py checks that
each placeholder has a value, and tests/engines/test_plans.py that each order uses its index.
"""

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

EXTRA_CANDIDATES = 32
"""Candidates beyond the requested number. About as many concurrent claims can each find a candidate that no other claim
has locked."""

_CANDIDATES = {
    Order.PRIORITY: ("{{candidates_ordered}}", "priority DESC, id"),
    Order.PRIORITY_LIFO: ("{{candidates_levels}}", "priority DESC, id DESC"),
    Order.PRIORITY_ASC: ("{{candidates_levels}}", "priority, id"),
    Order.FIFO: ("{{candidates_ordered}}", "id"),
    Order.LIFO: ("{{candidates_ordered}}", "id DESC"),
    Order.RANDOM: ("{{candidates_random}}", "random_key"),
    Order.WEIGHTED: ("{{candidates_random}}", "weighted_key"),
}
"""The fragment that finds the candidates of each order, and its ORDER BY."""

_LEVELS: dict[str, Words] = {
    Order.PRIORITY_LIFO: (("beyond", "<"), ("levels", "priority DESC"), ("within", "id DESC")),
    Order.PRIORITY_ASC: (("beyond", ">"), ("levels", "priority"), ("within", "id")),
}
"""For orders by priority without an index of their own: how to step from one priority to the next (`beyond`, `levels`),
and the order within a priority (`within`)."""

_NEAREST_INDEX_ORDER = {
    Order.PRIORITY_LIFO: "priority DESC, id",
    Order.PRIORITY_ASC: "priority, id DESC",
    Order.RANDOM: "id",
    Order.WEIGHTED: "id",
}
"""For orders without an index of their own: the most similar order that an index has. `claim_any` uses it."""

_NUMBER_COLUMNS: dict[str, Words] = {
    Order.RANDOM: (("key", "random_key"), ("rate", "1")),
    Order.WEIGHTED: (("key", "weighted_key"), ("rate", "greatest(task.priority::bigint + 1, 1)")),
}
"""The column of the random-order number in each random order, and the rate of its exponential distribution."""


class PostgresDialect:
    """The dialect of PostgreSQL. `measured`: `database_health` reads the size of the database. See Dialect."""

    def __init__(self, *, many_writers: bool = True, measured: bool = True) -> None:
        self.many_writers = many_writers
        self._measured = measured

    def insert_tasks(self, rows: NewRows) -> Statements[dict[int, Stored]]:
        """Insert all rows with one statement. The statement for tasks without idempotency keys is faster."""
        placed = list(rows.items())
        if all(row.key is None for row in rows.values()):
            inserted = yield Statement("enqueue_keyless", rows=[row for _, row in placed])
            new = zip(placed, sorted(inserted), strict=True)  # the order of the ids is the order of the rows
            return {place: (row, *stored) for (place, row), stored in new}
        inserted = yield Statement("enqueue", rows=[row for _, row in placed])
        return {placed[nth - 1][0]: (placed[nth - 1][1], *stored) for nth, *stored in inserted}

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Statements[None]:
        """Insert the tasks of steps, with their history."""
        yield Statement("enqueue_steps", rows=rows)

    def lock_roots(self, ids: list[int]) -> Statements[None]:
        """Lock the rows of the root workflows."""
        if ids:
            yield Statement("lock_workflows", {"ids": ids})

    def clear_holders(self, recovered: Rows) -> Statements[None]:
        """Do nothing: the statement that recovers tasks clears their holders."""
        yield from ()

    def finalization(self, advance: Advance) -> FinalizationStatements:
        """The statements call functions of the database, because programs in other languages call the same
        functions."""
        return PostgresFinalization(advance)

    def history_position(self) -> Statements[HistoryPosition]:
        """The end of the history, and the gaps in its ids before the end."""
        return history_gaps.position()

    def history_changes(self, positions: Sequence[HistoryPosition], limit: int) -> Statements[list[HistoryChanges]]:
        """The changes since each position, and the changes that have appeared in the gaps of the position."""
        return history_gaps.changes(positions, limit)

    def database_health(self) -> Statements[DatabaseHealth]:
        """The size of the database, and the age of its oldest transaction, which keeps VACUUM from removing dead
        rows."""
        if not self._measured:
            return DatabaseHealth(0)
        [(size, oldest)] = yield Statement("database_health")
        return DatabaseHealth(size, oldest_transaction=oldest)

    def claim(
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None
    ) -> Statements[Rows]:
        """Claim with one statement, which also finds out whether a sweep is needed. A sweep is seldom needed, and
        without this check a worker that waits for tasks would spend two more round trips on each claim."""
        check_overdue = sweeper.is_due
        if check_overdue:
            sweeper.postpone()
        claims, overdue = yield from _claim(request, atomic, holders, check_overdue)
        if check_overdue and overdue:  # nothing was claimed, because an overdue task may come first
            yield from sweeper.sweep()
            claims, overdue = yield from _claim(request, atomic, holders)
        for _ in range(SWEEPS):  # the tasks that a sweep moves may not pass the filters: sweep until nothing is overdue
            if claims or not overdue or not (yield from sweeper.sweep()):
                break
            claims, overdue = yield from _claim(request, atomic, holders)
        return claims

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids of the tasks that a claim would take now."""
        params = {**_filter_params(filters), "include_unnumbered": True}
        rows = yield Statement("peek", params, words=_peek_words(filters))
        if filters.order in RANDOM_ORDERS and len(rows) < filters.count:  # tasks without a number come last
            rows += yield Statement("peek", params, words=_peek_words(filters, Order.FIFO))
        return list(dict.fromkeys(row[0] for row in rows))[: filters.count]

    def number_some(self, order: str, partition: Partition) -> Statements[bool]:
        """Give the next CHUNK tasks of the partition their random-order numbers."""
        rows = yield Statement("draw", {**partition, "kind": order}, words=(*_NUMBER_COLUMNS[order], *limited(CHUNK)))
        return any(numbered_to is not None for (numbered_to,) in rows)


class PostgresFinalization:
    """Finalization with the functions of the database. See FinalizationStatements."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def claim(self, workflow_id: int, processor: str, lease: int) -> Statements[Row]:
        """Claim the finalization, or return the reason why not, and record the attempt."""
        params = {"id": workflow_id, "processor": processor, "lease": lease}
        rows = yield Statement("claim_finalization", params)
        return rows[0]

    def renew(self, workflow_id: int, processor: str, token: int, lease: int) -> Statements[Row]:
        """Renew the claim, or return the reason why not."""
        params = {"id": workflow_id, "processor": processor, "token": token, "lease": lease}
        rows = yield Statement("renew_finalization", params)
        return rows[0]

    def act(self, workflow_id: int, processor: str, token: int) -> Statements[Finalized]:
        """Check the claim and act on the state of the steps."""
        params = {"id": workflow_id, "processor": processor, "token": token}
        [(reason, state, status, action, due)] = yield Statement("finalize", params)
        if reason != "finalized":
            workflow = yield from self._advance.read_workflow(workflow_id)  # still locked, so unchanged
            raise WorkflowNotFound(workflow_id) if workflow is None else finalization_lost(workflow, processor, token)
        return Finalized(workflow_id, WorkflowState(state), ExecutionStatus(status), FinalizationAction(action), due)


def _claim(
    request: ClaimRequest, atomic: bool, holders: Holders | None, check_overdue: bool = False
) -> Statements[tuple[Rows, bool]]:
    """Return the claimed rows, and whether something is overdue. `check_overdue`: claim nothing if something is
    overdue."""
    params = {**_filter_params(request), **claim_params(request), "check_overdue": check_overdue}
    rows = yield _claim_statement("claim", params, request, request.count, holders)
    (candidates, overdue), claimed = rows[0][:2], [row for row in rows if row[2] is not None]
    if check_overdue and overdue:
        return [], True
    if candidates == 0 and request.order in RANDOM_ORDERS:
        yield from _check_numbered(request)
    missing = request.count - len(claimed)
    try:
        # Other claims are taking the same candidates right now, or some tasks have no random-order number.
        if missing and (candidates > len(claimed) or (candidates == 0 and request.order in RANDOM_ORDERS)):
            other_holders = holders and holders[len(claimed) :]
            claimed += yield _claim_statement("claim_any", params, request, missing, other_holders)
        if claimed and request.order in RANDOM_ORDERS:
            yield from _advance_position(request, claimed)
    except Exception:
        if atomic or not claimed:
            raise
        # The claim has committed: its tasks must reach the worker, whatever has failed afterwards.
    return [row[3:] for row in claimed], overdue


def _check_numbered(filters: Filters) -> Statements[None]:
    """Raise NumbersMissing if tasks that pass the filters may have no random-order number."""
    partitions = yield Statement("unnumbered_partitions", _filter_params(filters), words=_partition_words(filters))
    if partitions:
        names = ("queue", "type", "attempts_left")
        raise NumbersMissing(str(filters.order), [dict(zip(names, each, strict=True)) for each in partitions])


def _claim_statement(
    name: str, params: dict[str, Any], request: ClaimRequest, count: int, holders: Holders | None
) -> Statement:
    words = (*_claim_words(request, _rounded_up(count)), ("partition_condition", "{{if_several_partitions}}"))
    params = {**params, "exact_count": count}
    if holders is None:
        return Statement(name, params, words=(*words, ("holder_columns", "{{for_one_worker}}")))
    workers, incarnations = [list(each) for each in zip(*holders, strict=True)]
    return Statement(
        name,
        {**params, "workers": workers, "incarnations": incarnations},
        words=(*words, ("holder_columns", "{{for_each_worker}}")),
    )


def _rounded_up(count: int) -> int:
    """Return the next power of four. The number is a part of the SQL, and PostgreSQL plans each text of a statement on
    its own: rounding up leaves few texts."""
    size = 1
    while size < count:
        size *= 4
    return size


def _claim_words(filters: Filters, count: int, order: Order | None = None) -> Words:
    order = order or Order(filters.order)
    candidates, order_by = _CANDIDATES[order]
    single_partition = "{{from_one_partition}}" if candidates == "{{candidates_ordered}}" else ""
    return (
        *_partition_words(filters), ("candidates", candidates), ("single_partition", single_partition),
        ("order", order_by), ("index_order", _NEAREST_INDEX_ORDER.get(order, order_by)), *_LEVELS.get(order, ()),
        ("candidate_limit", str(count + EXTRA_CANDIDATES)), ("count", str(count))
    )  # fmt: skip


def _peek_words(filters: Filters, order: Order | None = None) -> Words:
    return (*_claim_words(filters, filters.count, order), ("partition_condition", ""))


def _partition_words(filters: Filters) -> Words:
    """Return the words that select the partitions: queues and types are named by the filters, or found in the table."""
    return (
        ("open_queues", "{{queues_found}}" if filters.queues is None else "{{queues_named}}"),
        ("queue_types", "{{types_found}}" if filters.types is None else "{{types_named}}"),
    )


def _filter_params(filters: Filters) -> dict[str, Any]:
    return {
        "queues": None if filters.queues is None else list(dict.fromkeys(filters.queues)),
        "types": None if filters.types is None else list(dict.fromkeys(filters.types)),
        "min_attempts_left": max(filters.max_attempts_remaining or 0, 1),
        "kind": str(filters.order),
        "include_unnumbered": False,
    }


def _advance_position(request: ClaimRequest, claimed: list[Row]) -> Statements[None]:
    """Advance the positions of the random order to the number of the last claimed task (see `candidates_random`)."""
    distance = max(0.0, *(row[2] for row in claimed))
    params = {**_filter_params(request), "distance": distance}
    yield Statement("advance_race", params, words=(*_partition_words(request), *_NUMBER_COLUMNS[str(request.order)]))
