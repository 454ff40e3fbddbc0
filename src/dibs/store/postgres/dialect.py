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
from typing import Any, NamedTuple

import msgspec

from dibs.errors import WorkflowNotFound
from dibs.model.claim import ClaimRequest, Filters, Order
from dibs.model.finalization import ExecutionStatus, FinalizationAction, Finalized
from dibs.model.history import HistoryPosition
from dibs.model.statistics import DatabaseHealth, HistoryChanges
from dibs.model.workflow import WorkflowState
from dibs.store.contract import NumbersMissing
from dibs.store.operation import Row, Rows, Statement, Statements, limited
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import CHUNK, RANDOM_ORDERS, SWEEPS, Sweeper, TierMemory, claim_params
from dibs.store.operations.dialect import FinalizationStatements, Holders, NewRows, Stored
from dibs.store.operations.finalize import finalization_lost
from dibs.store.postgres import history_gaps
from dibs.store.sql import Words

EXTRA_CANDIDATES = 32
"""Candidates of a merge beyond the requested number. About as many concurrent claims can each find a candidate that no
other claim has locked."""

EXTRA_FILTERED_CANDIDATES = 2
"""The same for a merge of streams in which tasks do not pass the filters: each candidate may be a long walk."""

EXTRA_RANDOM_CANDIDATES = 128
"""The same for a random order. So many tasks that were passed over can compete in one claim."""

SCANNED = 512
"""Tasks that a scan reads at most, beyond eight for each requested task."""

SCANNED_AS_A_RULE = 64
"""Tasks that a scan reads as a rule, beyond one for each requested task."""

MIN_WALK = 16
"""The shortest walk through a stream."""

WALKS = (2, 8)
"""How far a claim that names types walks through their streams, or those of the queues, before it tries the others:
multiples of the bound of its scan."""

_ORDERS = {
    Order.PRIORITY: "priority DESC, id",
    Order.PRIORITY_LIFO: "priority DESC, id DESC",
    Order.PRIORITY_ASC: "priority, id",
    Order.FIFO: "id",
    Order.LIFO: "id DESC",
    Order.RANDOM: "number",
    Order.WEIGHTED: "number",
}
"""ORDER BY of each order, with the columns of `merged`."""

_IN_INDEX = {
    Order.FIFO: "{{any_age}}",
    Order.LIFO: "{{any_age}}",
    Order.RANDOM: "{{any_number}}",
    Order.WEIGHTED: "{{any_number}}",
}
"""The condition for the index of an order, where it is not that of the priority (see `any_priority`)."""

_LEVELS: dict[str, Words] = {
    Order.PRIORITY_LIFO: (("beyond", "<"), ("levels", "priority DESC, {{age}}"), ("within", "{{age}} DESC")),
    Order.PRIORITY_ASC: (("beyond", ">"), ("levels", "priority, {{age}} DESC"), ("within", "{{age}}")),
}
"""For orders by priority without an index of their own: how to step from one priority to the next (`beyond`, `levels`),
and the order within a priority (`within`)."""

_NEWEST = (("index_order", "{{age}} DESC"), ("range", "{{from_newest}}"))
_OLDEST = (("index_order", "{{age}}"), ("range", "{{from_oldest}}"))
_STREAMS: dict[str, Words] = {
    Order.PRIORITY_LIFO: (*_NEWEST, ("bar_holds", "priority = stream.level")),
    Order.PRIORITY_ASC: (*_OLDEST, ("bar_holds", "priority = stream.level")),
    Order.FIFO: (*_OLDEST, ("bar_holds", "true")),
    Order.LIFO: (*_NEWEST, ("bar_holds", "true")),
}
"""For orders that the index of a type or queue has only within a priority: the order there, and the range up to the bar
of a merge (see `read_range`)."""

_NUMBER_COLUMNS: dict[str, Words] = {
    Order.RANDOM: (("key", "random_key"), ("rate", "1")),
    Order.WEIGHTED: (("key", "weighted_key"), ("rate", "greatest(task.priority::bigint + 1, 1)")),
}
"""The column of the random-order number in each random order, and the rate of its exponential distribution."""


class Tier(NamedTuple):
    """A way to choose the tasks of a claim: the scan of the whole store, or the streams of a column. `walk`: the
    multiple of the scan's bound after which a walk through the streams ends; None for no end."""

    column: str | None = None
    walk: int | None = None


SCAN = Tier()


class PostgresDialect:
    """The dialect of PostgreSQL. `measured`: `database_health` reads the size of the database. See Dialect."""

    def __init__(self, *, many_writers: bool = True, measured: bool = True) -> None:
        self.many_writers = many_writers
        self._measured = measured
        self._memory = TierMemory()

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
        claims, overdue = yield from self._claim(request, atomic, holders, check_overdue)
        if check_overdue and overdue:  # nothing was claimed, because an overdue task may come first
            yield from sweeper.sweep()
            claims, overdue = yield from self._claim(request, atomic, holders)
        for _ in range(SWEEPS):  # the tasks that a sweep moves may not pass the filters: sweep until nothing is overdue
            if claims or not overdue or not (yield from sweeper.sweep()):
                break
            claims, overdue = yield from self._claim(request, atomic, holders)
        return claims

    def _claim(
        self, request: ClaimRequest, atomic: bool, holders: Holders | None, check_overdue: bool = False
    ) -> Statements[tuple[Rows, bool]]:
        """Return the claimed rows, and whether something is overdue. `check_overdue`: claim nothing if something is
        overdue."""
        claimed: Rows = []
        left, overdue = None, False
        try:
            for tier in self._memory.in_turn(request, _tiers(request)):
                rows = yield _claim_statement(request, tier, len(claimed), holders, check_overdue)
                left, overdue = rows[0][:2]
                if check_overdue and overdue:
                    return [], True
                if left == "unnumbered":
                    raise NumbersMissing(str(request.order))
                claimed += [row[2:] for row in rows if row[2] is not None]
                check_overdue = False
                if left != "beyond":
                    break
            if left == "locked":
                rows = yield _claim_any_statement(request, len(claimed), holders)
                claimed += [row[2:] for row in rows]
        except Exception:
            if atomic or not claimed:
                raise
            # The claim has committed: its tasks must reach the worker, whatever has failed afterwards.
        return claimed, overdue

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids of the tasks that a claim would take now."""
        picked: Rows = []
        for tier in self._memory.in_turn(filters, _tiers(filters)):
            picked = yield _peek_statement(filters, tier)
            if all(left != "beyond" for _, left in picked):
                break
        ids = [row[0] for row in picked if row[0] is not None]
        if filters.order in RANDOM_ORDERS and len(ids) < filters.count:  # tasks without a number come last
            ids += yield from self.pick(msgspec.structs.replace(filters, order=Order.FIFO))
        return list(dict.fromkeys(ids))[: filters.count]

    def number_some(self, order: str) -> Statements[bool]:
        """Give the next CHUNK tasks their random-order numbers."""
        yield Statement("begin_random_order", {"kind": order})
        rows = yield Statement("number", {"kind": order}, words=(*_NUMBER_COLUMNS[order], *limited(CHUNK)))
        return any(numbered_to is not None for (numbered_to,) in rows)


def _tiers(filters: Filters) -> list[Tier]:
    """The tiers of a claim, each exact as far as it goes, the cheapest first. A claim that names a single type or queue
    needs no scan, if a stream has the order. A claim that names types walks through their streams and through those of
    the queues in turn, further each time: many tasks of its types may be in other queues, or in queues that are paused
    and not parked yet, and many tasks of its queues may be of other types."""
    if filters.types is None:
        return [Tier("queue", 1) if _is_one_stream(filters.queues, filters.order) else SCAN, Tier("queue")]
    columns = ("type", "queue")
    if filters.queues is not None and len(filters.queues) < len(filters.types):
        columns = ("queue", "type")
    is_one_stream = filters.queues is None and _is_one_stream(filters.types, filters.order)
    walks = (Tier(column, walk) for walk in WALKS for column in columns)
    return [Tier("type", 1) if is_one_stream else SCAN, *walks, Tier(columns[0])]


def _is_one_stream(names: Sequence[str] | None, order: str) -> bool:
    """True if a single stream has the order: the index of a type or queue has no order by age."""
    return names is not None and len(names) == 1 and order not in (Order.FIFO, Order.LIFO)


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


def _claim_statement(
    request: ClaimRequest, tier: Tier, claimed: int, holders: Holders | None, check_overdue: bool
) -> Statement:
    """The statement for what is missing after `claimed` tasks."""
    params, words = _holders(request, claimed, holders)
    words = (*words, *_tier_words(request, tier, _rounded_up(request.count)))
    return Statement("claim", {**params, "check_overdue": check_overdue, "is_continued": claimed > 0}, words=words)


def _claim_any_statement(request: ClaimRequest, claimed: int, holders: Holders | None) -> Statement:
    params, words = _holders(request, claimed, holders)
    column = _tiers(request)[-1].column if request.queues or request.types else None
    names = _names(request, column) if column else "{{whole_store}}"
    stream = f"AND {column} = stream.name" if column else ""
    count = str(_rounded_up(request.count))
    age = ("age", "{{age_in_stream}}" if column else "{{age_in_store}}")
    words = (
        *words,
        ("names", names),
        ("in_stream", stream),
        age,
        ("passes", _passes(request, column)),
        ("count", count),
    )
    return Statement("claim_any", params, words=words)


def _peek_statement(filters: Filters, tier: Tier) -> Statement:
    words = dict(_tier_words(filters, tier, filters.count))
    if filters.order in RANDOM_ORDERS:
        words["candidates"] = "SELECT id FROM matching"
    params = {**_filter_params(filters), "exact_count": filters.count, "is_continued": False}
    return Statement("peek", params, words=tuple(words.items()))


def _holders(request: ClaimRequest, claimed: int, holders: Holders | None) -> tuple[dict[str, Any], Words]:
    """The parameters of a claim, and the words that name its workers."""
    params = {**_filter_params(request), **claim_params(request), "exact_count": request.count - claimed}
    if holders is None:
        return params, (("holder_columns", "{{for_one_worker}}"),)
    workers, incarnations = [list(each) for each in zip(*holders[claimed:], strict=True)]
    return params | {"workers": workers, "incarnations": incarnations}, (("holder_columns", "{{for_each_worker}}"),)


def _rounded_up(count: int) -> int:
    """Return the next power of two. The number is a part of the SQL, and PostgreSQL plans each text of a statement on
    its own: rounding up leaves few texts."""
    return 1 << (count - 1).bit_length()


def _tier_words(filters: Filters, tier: Tier, count: int) -> Words:
    """The words of `claim` and `peek`: how to find the candidates."""
    order = Order(filters.order)
    is_scan = tier.column is None or (
        tier.walk is not None and _is_one_stream(_named(filters, tier.column), filters.order)
    )
    extra = _extra_candidates(filters, tier, count)
    bound = _bound(filters, tier, count, is_scan) or count + extra
    near = count + (extra if order in RANDOM_ORDERS else SCANNED_AS_A_RULE)
    words = (
        ("number", "NULL::float8"), ("numbered", ""), ("after", ""), ("count", str(count)), ("extra", str(extra)),
        ("near", str(min(near, bound))), ("bound", str(bound)),
        ("passes", _passes(filters, tier.column, named=not is_scan)),
        ("age", "{{age_in_store}}" if tier.column is None else "{{age_in_stream}}"),
        *(_scan_words(tier, order) if is_scan else _merge_words(filters, tier, order))
    )  # fmt: skip
    return (*words, *_NUMBER_COLUMNS[order], *_random_words(tier, is_scan)) if order in RANDOM_ORDERS else words


def _bound(filters: Filters, tier: Tier, count: int, is_scan: bool) -> int | None:
    """How many tasks a scan, or a walk through each stream, reads at most; None for no bound."""
    bound = 8 * count + SCANNED
    if is_scan:
        return bound * (tier.walk or 1)
    if tier.walk is None:
        return None
    return _rounded_up(max(bound * tier.walk // len(_named(filters, tier.column) or "1"), MIN_WALK))


def _extra_candidates(filters: Filters, tier: Tier, count: int) -> int:
    if filters.order in RANDOM_ORDERS:
        return EXTRA_RANDOM_CANDIDATES
    is_filtered = _passes(filters, tier.column) not in ("", "{{in_open_queue}}")
    return EXTRA_FILTERED_CANDIDATES if is_filtered else min(EXTRA_CANDIDATES, 8 * count)


def _scan_words(tier: Tier, order: Order) -> Words:
    return (
        ("tier", ""), ("candidates", "{{scan}}"), ("left", "{{left_by_scan}}"), ("cut", "{{beyond_bound}}"),
        ("first", "{{first_in_levels: {{argument}}}}" if order in _LEVELS else "{{first_in_order}}"),
        ("in_stream", "" if tier.column is None else f"AND {tier.column} = (:{tier.column}s::text[])[1]"),
        ("in_index", _IN_INDEX.get(order, "{{any_priority}}") if tier.column is None else ""),
        ("index_order", "priority DESC, {{age}}" if order is Order.PRIORITY else _ORDERS[order]),
        *_LEVELS.get(order, ()),
    )  # fmt: skip


def _merge_words(filters: Filters, tier: Tier, order: Order) -> Words:
    by_levels = order in _STREAMS
    stream = f"AND {tier.column} = stream.name"
    return (
        ("tier", "{{merge}}"), ("candidates", "SELECT id FROM matching"), ("left", "{{left_by_merge}}"),
        ("cut", "{{beyond_walk}}"), ("names", _names(filters, tier.column)), ("column", str(tier.column)),
        ("streams", "{{streams_of_levels}}" if by_levels else "{{streams_of_names}}"),
        ("in_stream", f"{stream} AND priority = stream.level" if by_levels else stream),
        ("read", "{{read_stream: {{argument}}}}" if tier.walk is None else "{{read_part_of_stream: {{argument}}}}"),
        ("read_to_bar", "{{read_range}}" if by_levels else "{{read_to_priority}}"),
        ("order", _ORDERS[order]), ("index_order", "priority DESC, {{age}}"), *_STREAMS.get(order, ()),
    )  # fmt: skip


def _random_words(tier: Tier, is_scan: bool) -> Words:
    """The words that differ in a random order."""
    key = "{{key}}"
    return (
        ("tier", "{{scan_random}}{{random_candidates}}" if is_scan else "{{merge}}{{random_candidates}}"),
        ("candidates", "SELECT id FROM drawn"), ("left", "{{left_by_random}}"), ("after", "{{after_random}}"),
        ("number", key), ("numbered", f"AND {key} IS NOT NULL"),
        ("index_order", key if tier.column is None else "{{number_in_stream}}"),
        ("read_to_bar", "{{read_range}}"), ("range", "{{from_smallest}}"),
    )  # fmt: skip


def _named(filters: Filters, column: str | None) -> Sequence[str] | None:
    """The names that the filters have for this column."""
    return filters.types if column == "type" else filters.queues


def _names(filters: Filters, column: str | None) -> str:
    if column == "type":
        return "{{types_named}}"
    return "{{queues_found}}" if filters.queues is None else "{{queues_named}}"


def _passes(filters: Filters, column: str | None, *, named: bool = True) -> str:
    """The conditions of the filters, except for those that the streams of this column have already. `named`: the
    streams are those of `names`, which has no paused queues."""
    conditions = (
        ("{{in_named_queues}}", filters.queues is not None and column != "queue"),
        ("{{of_named_types}}", filters.types is not None and column != "type"),
        ("{{with_attempts_left}}", (filters.max_attempts_remaining or 0) > 1),
        ("{{in_open_queue}}", column != "queue" or not named),
    )
    return " ".join(fragment for fragment, needed in conditions if needed)


def _filter_params(filters: Filters) -> dict[str, Any]:
    return {
        "queues": None if filters.queues is None else list(dict.fromkeys(filters.queues)),
        "types": None if filters.types is None else list(dict.fromkeys(filters.types)),
        "min_attempts_left": filters.max_attempts_remaining or 0,
        "kind": str(filters.order),
    }
