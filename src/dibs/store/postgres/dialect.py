"""The dialect of PostgreSQL: how claims, inserts, finalization and the history differ from SQLite. See Dialect.

A round trip to the server costs more than a query, so each operation is one large statement where SQLite runs many
small ones. The statements are in `postgres/sql/`; the argument why concurrent claims are safe is in the comments of
`claim.sql`, and a change of the locking belongs there. This module only chooses a statement, its parameters and its
words. Words are texts that become a part of the SQL: every word must come from the fixed tables below or be a number,
never from a user. The names of words and parameters must match `claim.sql`; tests/unit/test_sqlfiles.py checks that
each placeholder has a value, and tests/engines/test_plans.py that each order uses its index.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
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
from dibs.store.operations.admission import Admission, priorities
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import (
    CHUNK,
    RANDOM_ORDERS,
    SCANNED,
    SWEEPS,
    Sweeper,
    TierMemory,
    claim_params,
    is_cut_by_attempts,
    pairs_of,
)
from dibs.store.operations.dialect import FinalizationStatements, Holders, NewRows, Stored
from dibs.store.operations.finalize import finalization_lost
from dibs.store.operations.stream_indexes import (
    ATTEMPTS,
    FAMILIES,
    PAIR,
    QUEUE,
    TYPE,
    StreamFamily,
    StreamIndexes,
    stream_index,
)
from dibs.store.postgres import history_gaps
from dibs.store.sql import Words

EXTRA_CANDIDATES = 32
"""Candidates of a merge beyond the requested number. About as many concurrent claims can each find a candidate that no
other claim has locked."""

EXTRA_FILTERED_CANDIDATES = 2
"""The same for a merge of streams in which tasks do not pass the filters: each candidate may be a long walk."""

EXTRA_RANDOM_CANDIDATES = 128
"""The same for a random order. So many tasks that were passed over can compete in one claim."""

SCANNED_PER_NAME = 5
"""Tasks that a scan reads beyond that for each type or queue that the claim names: a merge of so many streams costs as
much."""

MOST_SCANNED_FOR_NAMES = 1000

FEW_NAMES = 16
"""If a claim names no more, they do not change the bound: each bound is another text, which is planned on its own."""

UNBOUNDED = 2**40
"""As a bound: read to the end."""

SCANNED_AS_A_RULE = 64
"""Tasks that a scan reads as a rule, beyond one for each requested task."""

MIN_WALK = 16
"""The shortest walk through a stream."""

WALKS = (2, 8)
"""How far a claim that names types walks through their streams, or those of the queues, before it tries the others:
multiples of the bound of its scan."""

LONG_SCANS = (16, 256, None)
"""How far a claim scans the store in place of streams that have no index: multiples of the bound of its scan, and to
the end. Not to the end at once: the planner would sort all tasks."""

LIMITED_WORK, IF_EVER_LIMITED, NO_LIMITED_WORK = "{{limited_work}}", "{{if_ever_limited}}", "{{no_limited_work}}"
"""What a claim asks about limits: whether there is work with limits, whether the store has ever had one, or nothing."""

AWAIT_WRITERS = 1.0
"""Seconds for which one statement waits for transactions that are writing tasks."""

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

_NEWEST = (("index_order", "{{age}} DESC"), ("range", "{{from_newest}}"), ("read_to_bar", "{{read_range}}"))
_OLDEST = (("index_order", "{{age}}"), ("range", "{{from_oldest}}"), ("read_to_bar", "{{read_range}}"))
_STREAMS: dict[str, Words] = {
    Order.PRIORITY: (("index_order", "priority DESC, {{age}}"), ("read_to_bar", "{{read_to_priority}}")),
    Order.PRIORITY_LIFO: (*_NEWEST, ("bar_holds", "priority = stream.level")),
    Order.PRIORITY_ASC: (*_OLDEST, ("bar_holds", "priority = stream.level")),
    Order.FIFO: (*_OLDEST, ("bar_holds", "true")),
    Order.LIFO: (*_NEWEST, ("bar_holds", "true")),
}
"""The order within a stream, and the range up to the bar of a merge (see `read_range`)."""

_IN_STREAM = {
    TYPE: "AND type = stream.name",
    QUEUE: "AND queue = stream.name",
    PAIR: "AND queue = stream.name AND type = stream.kind",
    ATTEMPTS: "AND attempts_left = stream.name",
}
"""The condition that a task is of a stream."""

_IN_ONLY_STREAM = {
    TYPE: "AND type = (:types::text[])[1]",
    QUEUE: "AND queue = (:queues::text[])[1]",
    PAIR: "AND queue = (:queues::text[])[1] AND type = (:types::text[])[1]",
}
"""The same, if the claim names a single stream."""

_NUMBER_COLUMNS: dict[str, Words] = {
    Order.RANDOM: (("key", "random_key"), ("rate", "1")),
    Order.WEIGHTED: (("key", "weighted_key"), ("rate", "greatest(task.priority::bigint + 1, 1)")),
}
"""The column of the random-order number in each random order, and the rate of its exponential distribution."""


_CLAIMABLE = "state = 'pending' AND NOT parked AND backlog IS NULL"
_AGE_INDEX = "(id - 0)"

DEFINITIONS = {
    **{
        stream_index(family, order): f"({', '.join((*family.columns, *columns))}) WHERE {_CLAIMABLE}"
        for order, columns in ((Order.PRIORITY, ("priority DESC", _AGE_INDEX)), (Order.FIFO, (_AGE_INDEX,)))
        for family in FAMILIES
    },
    **{
        stream_index(family, order): f"({family.name}, ({key} - 0)) WHERE {_CLAIMABLE} AND {key} IS NOT NULL"
        for order, key in ((Order.RANDOM, "random_key"), (Order.WEIGHTED, "weighted_key"))
        for family in (TYPE, QUEUE)
    },
}
"""The columns and the condition of each index of streams."""


class Tier(NamedTuple):
    """A way to choose the tasks of a claim: the scan of the whole store, or the streams of a family. `walk`: the
    multiple of the scan's bound after which the scan, or a walk through the streams, ends; None for no end."""

    family: StreamFamily | None = None
    walk: int | None = 1


SCAN = Tier()


class PostgresDialect:
    """The dialect of PostgreSQL. `measured`: `database_health` reads the size of the database. See Dialect."""

    def __init__(self, *, many_writers: bool = True, measured: bool = True) -> None:
        self.many_writers = many_writers
        self._measured = measured
        self._memory = TierMemory()
        self._had_limits = False
        self.indexes = StreamIndexes()

    def insert_tasks(self, rows: NewRows, flow_version: int) -> Statements[dict[int, Stored] | None]:
        """Insert all rows with one statement. The statement for tasks without idempotency keys is faster."""
        placed = list(rows.items())
        params = {"flow_version": flow_version}
        if all(row.key is None for row in rows.values()):
            inserted = yield Statement("enqueue_keyless", params, rows=[row for _, row in placed])
            if not inserted:
                return None
            new = zip(placed, sorted(inserted), strict=True)  # the order of the ids is the order of the rows
            return {place: (row, *stored) for (place, row), stored in new}
        kept = (("kept", "{{keep_keys}}" if any(row.key_for is not None for row in rows.values()) else ""),)
        inserted = yield Statement("enqueue", params, rows=[row for _, row in placed], words=kept)
        if any(nth == 0 for nth, *_ in inserted):
            return None
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
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None, admission: Admission
    ) -> Statements[Rows]:
        """Claim with one statement, which also finds out whether a sweep is needed. A sweep is seldom needed, and
        without this check a worker that waits for tasks would spend two more round trips on each claim."""
        check_overdue = sweeper.is_due
        if check_overdue:
            sweeper.postpone()
        claim = partial(self._claim, request, atomic, holders, admission)
        claims, overdue = yield from claim(check_overdue)
        if check_overdue and overdue:  # nothing was claimed, because an overdue task may come first
            yield from sweeper.sweep()
            claims, overdue = yield from claim()
        for _ in range(SWEEPS):  # the tasks that a sweep moves may not pass the filters: sweep until nothing is overdue
            if claims or not overdue or not (yield from sweeper.sweep()):
                break
            claims, overdue = yield from claim()
        return claims

    def claim_plain(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        """Claim plain tasks only, in the transaction of the caller."""
        claims, _ = yield from self._claim(request, True, holders, None)
        return claims

    def _claim(
        self,
        request: ClaimRequest,
        atomic: bool,
        holders: Holders | None,
        admission: Admission | None,
        check_overdue: bool = False,
    ) -> Statements[tuple[Rows, bool]]:
        """Return the claimed rows, and whether something is overdue. `check_overdue`: claim nothing if something is
        overdue. `admission`: claims instead, if there may be tasks of backlogs; None for plain tasks only."""
        self.indexes.refuse_if_missing()
        claimed: Rows = []
        left, overdue = "beyond", False
        try:
            for planned in self._memory.in_turn(request, _tiers(request)):
                for tier in (yield from self._possible(planned, request)):
                    is_plain = admission is None or bool(claimed)
                    rows = yield from self._claim_tier(
                        request, tier, len(claimed), holders, check_overdue=check_overdue, is_plain=is_plain
                    )
                    left, overdue = rows[0][:2]
                    if check_overdue and overdue:
                        return [], True
                    if left == "limited" and admission is not None:
                        return (yield from admission.claim(request, holders)), overdue
                    _check_numbered(left, request)
                    claimed += [row[2:] for row in rows if row[2] is not None]
                    check_overdue = False
                    if left != "beyond":
                        break
                if left != "beyond":
                    break
            if left == "locked":
                rows = yield self._claim_any_statement(request, len(claimed), holders)
                claimed += [row[2:] for row in rows]
        except Exception:
            if atomic or not claimed:
                raise
            # The claim has committed: its tasks must reach the worker, whatever has failed afterwards.
        return claimed, overdue

    def _claim_tier(
        self,
        request: ClaimRequest,
        tier: Tier,
        claimed: int,
        holders: Holders | None,
        *,
        check_overdue: bool,
        is_plain: bool,
    ) -> Statements[Rows]:
        """Run the statement of one tier. `is_plain`: claim plain tasks only.

        The condition that looks for work with limits is an expensive part of the plan. Until a process has seen a
        limit, its claims ask only whether the store has ever had one. A claim that finds one starts again."""
        statement = partial(_claim_statement, request, tier, claimed, holders, check_overdue=check_overdue)
        if is_plain or self._had_limits:
            return (yield statement(limited=NO_LIMITED_WORK if is_plain else LIMITED_WORK))
        rows = yield statement(limited=IF_EVER_LIMITED)
        if rows[0][0] == "limited":
            self._had_limits = True
            rows = yield statement(limited=LIMITED_WORK)
        return rows

    def has_limited(self, filters: Filters, *, peek: bool = False) -> Statements[bool]:
        """Ask the database."""
        [(found,)] = yield Statement("has_limited", _backlog_params(filters), words=_backlog_words(filters))
        return bool(found)

    def await_writers(self) -> Statements[bool]:
        """Poll the locks of the table: waiting for a lock would stop all who want to write after this statement."""
        writers = [row[0] for row in (yield Statement("task_writers"))]
        until = time.monotonic() + AWAIT_WRITERS
        while writers and time.monotonic() < until:
            yield Statement("pause_briefly")
            writers = [row[0] for row in (yield Statement("writers_left", {"writers": writers}))]
        return not writers

    def plain_candidates(self, filters: Filters) -> Statements[list[tuple[int, int]]]:
        """Guess without locks."""
        return (yield from priorities((yield from self.pick(filters))))

    def open_backlogs(self, request: ClaimRequest, reach: int) -> Statements[Rows]:
        """One statement for all queues and types."""
        words = (*_backlog_words(request), *limited(reach))
        return (yield Statement("open_backlogs", _backlog_params(request), words=words))

    def watchers(self, request: ClaimRequest, items: list[dict[str, Any]]) -> Statements[Rows]:
        """One statement for all counters."""
        return (yield Statement("watchers", _backlog_params(request), rows=items, words=_backlog_words(request)))

    def read_backlogs(self, names: list[str], count: int, filters: Filters) -> Statements[Rows]:
        """One statement."""
        params = {**_backlog_params(filters), "names": names}
        words = (("order", _BACKLOG_ORDERS[Order(filters.order)]), *limited(_rounded_up(count)))
        return (yield Statement("read_backlogs", params, words=words))

    def open_watchers(self, items: list[dict[str, Any]]) -> Statements[int]:
        """One statement for all counters."""
        return len((yield Statement("open_watchers", rows=items)))

    def claim_limited(
        self, request: ClaimRequest, items: list[dict[str, Any]], counted_at: int | None
    ) -> Statements[Rows]:
        """One statement, which skips tasks that other transactions have locked."""
        params = {**claim_params(request), "counted_at": counted_at}
        return (yield Statement("claim_limited", params, rows=items, change=True))

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids of the tasks that a claim would take now."""
        picked: Rows = [(None, "beyond")]
        for planned in self._memory.in_turn(filters, _tiers(filters)):
            for tier in (yield from self._possible(planned, filters)):
                picked = yield _peek_statement(filters, tier)
                if not _goes_on(picked):
                    break
            if not _goes_on(picked):
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

    def provide_index(self, name: str) -> Statements[None]:
        """Request the index from upkeep: to create an index in a transaction would stop all other writers."""
        yield Statement("request_index", {"name": name})
        self.indexes.provided(name)

    def _possible(self, tier: Tier, filters: Filters) -> Statements[list[Tier]]:
        """The tier, if its streams have an index; else what takes its place. The index that the last tier of a claim
        needs is provided if it is needed often."""
        if tier.family is None:
            return [tier]
        index = stream_index(tier.family, filters.order)
        if tier.walk is not None:
            others = [SCAN] if tier.walk == 1 else []
            return [tier] if self.indexes.is_known(index) else others
        return [tier] if (yield from self.indexes.find(index)) else [Tier(None, walk) for walk in LONG_SCANS]

    def _claim_any_statement(self, request: ClaimRequest, claimed: int, holders: Holders | None) -> Statement:
        params, words = _holders(request, claimed, holders)
        family = _family(request) if request.queues or request.types else None
        order = Order.PRIORITY if request.order in RANDOM_ORDERS else request.order
        if family is not None and not self.indexes.is_known(stream_index(family, order)):
            family = None
        return Statement("claim_any", params, words=(*words, *_claim_any_words(request, family)))


def _goes_on(picked: Rows) -> bool:
    """True if the next tier must be tried."""
    return any(left == "beyond" for _, left in picked)


def _tiers(filters: Filters) -> list[Tier]:
    """The tiers of a claim, each exact as far as it goes, the cheapest first. A claim that names a single stream needs
    no scan. A claim that names types, and not few queues as well, walks through their streams and through those of the
    queues in turn, further each time: many tasks of its types may be in other queues, or in queues that are paused and
    not parked yet, and many tasks of its queues may be of other types."""
    family = _family(filters)
    first = Tier(family) if _is_one_stream(filters, family) else SCAN
    if filters.types is None or family is PAIR:
        return [first, Tier(family, None)]
    families = (QUEUE, TYPE) if family is QUEUE else (TYPE, QUEUE)
    return [first, *(Tier(each, walk) for walk in WALKS for each in families), Tier(family, None)]


def _family(filters: Filters) -> StreamFamily:
    """The streams in which a claim finds its tasks."""
    queues, types = filters.queues, filters.types
    if types is None:
        return ATTEMPTS if queues is None and _has_attempts_index(filters) else QUEUE
    if queues is None:
        return TYPE
    if pairs_of(filters) is not None and filters.order not in RANDOM_ORDERS:
        return PAIR
    return QUEUE if len(queues) < len(types) else TYPE


def _has_attempts_index(filters: Filters) -> bool:
    return is_cut_by_attempts(filters) and filters.order not in RANDOM_ORDERS


def _is_one_stream(filters: Filters, family: StreamFamily) -> bool:
    """True if the claim reads one stream of the family: see _IN_ONLY_STREAM."""
    named = {"queue": filters.queues, "type": filters.types}
    counts = {column: len(names) for column, names in named.items() if names is not None}
    return family in _IN_ONLY_STREAM and counts == dict.fromkeys(family.columns, 1)


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


def _check_numbered(left: str | None, request: ClaimRequest) -> None:
    if left == "unnumbered":
        raise NumbersMissing(str(request.order))


def _claim_statement(
    request: ClaimRequest,
    tier: Tier,
    claimed: int,
    holders: Holders | None,
    *,
    check_overdue: bool,
    limited: str,
) -> Statement:
    """The statement for what is missing after `claimed` tasks. `limited`: what it asks about limits."""
    params, words = _holders(request, claimed, holders)
    words = (*words, *_tier_words(request, tier, _rounded_up(request.count)), ("limited", limited))
    if limited is LIMITED_WORK:
        words = (*words, *_backlog_words(request))
    params |= {"check_overdue": check_overdue, "is_continued": claimed > 0}
    return Statement("claim", params, words=words)


def _backlog_words(filters: Filters) -> Words:
    """The conditions of the filters on a backlog. A claim ahead takes no task with limits: a worker must not hold
    permits for tasks that it cannot start yet."""
    ahead = isinstance(filters, ClaimRequest) and filters.ahead
    return (
        ("in_queues", "" if filters.queues is None else "AND queue = ANY (:queues::text[])"),
        ("in_types", "" if filters.types is None else "AND type = ANY (:types::text[])"),
        ("unlimited", "AND counters = '[]'" if ahead else ""),
    )


_BACKLOG_ORDERS = {
    Order.PRIORITY: "priority DESC, id",
    Order.PRIORITY_LIFO: "priority DESC, id DESC",
    Order.PRIORITY_ASC: "priority, id",
    Order.FIFO: "id",
    Order.LIFO: "id DESC",
    Order.RANDOM: "random()",
    Order.WEIGHTED: "-ln(1 - random()) / greatest(priority::bigint + 1, 1)",
}
"""ORDER BY of the tasks of a backlog."""


def _claim_any_words(filters: Filters, family: StreamFamily | None) -> Words:
    return (
        ("names", "{{whole_store}}" if family is None else _names(filters, family)),
        ("in_stream", "" if family is None else _IN_STREAM[family]),
        ("index_order", _STREAMS.get(filters.order, _STREAMS[Order.PRIORITY])[0][1]),
        ("age", "{{age_in_store}}" if family is None else "{{age_in_stream}}"),
        ("passes", _passes(filters, family)),
        ("count", str(_rounded_up(filters.count))),
    )


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
    is_scan = tier.family is None or (tier.walk is not None and _is_one_stream(filters, tier.family))
    extra = _extra_candidates(filters, tier, count)
    bound = _bound(filters, tier, count, is_scan) or count + extra
    near = count + (extra if order in RANDOM_ORDERS else SCANNED_AS_A_RULE)
    words = (
        ("number", "NULL::float8"), ("numbered", ""), ("after", ""), ("count", str(count)), ("extra", str(extra)),
        ("near", str(min(near, bound))), ("bound", str(bound)),
        ("passes", _passes(filters, tier.family, named=not is_scan)),
        ("age", "{{age_in_store}}" if tier.family is None else "{{age_in_stream}}"),
        *(_scan_words(tier, order) if is_scan else _merge_words(filters, tier, order))
    )  # fmt: skip
    return (*words, *_NUMBER_COLUMNS[order], *_random_words(tier, is_scan)) if order in RANDOM_ORDERS else words


def _bound(filters: Filters, tier: Tier, count: int, is_scan: bool) -> int | None:
    """How many tasks a scan, or a walk through each stream, reads at most; None for a walk without a bound."""
    bound = 8 * count + SCANNED
    if is_scan:
        return (bound + _rounded_up(_bound_of_names(filters))) * tier.walk if tier.walk else UNBOUNDED
    if tier.walk is None:
        return None
    names = filters.types if tier.family is TYPE else filters.queues
    return _rounded_up(max(bound * tier.walk // len(names or "1"), MIN_WALK))


def _bound_of_names(filters: Filters) -> int:
    names = len(filters.queues or ()) + len(filters.types or ())
    return min(SCANNED_PER_NAME * names, MOST_SCANNED_FOR_NAMES) if names > FEW_NAMES else 1


def _extra_candidates(filters: Filters, tier: Tier, count: int) -> int:
    if filters.order in RANDOM_ORDERS:
        return EXTRA_RANDOM_CANDIDATES
    return EXTRA_FILTERED_CANDIDATES if _filter_words(filters, tier.family) else min(EXTRA_CANDIDATES, 8 * count)


def _scan_words(tier: Tier, order: Order) -> Words:
    return (
        ("tier", ""), ("candidates", "{{scan}}"), ("left", "{{left_by_scan}}"),
        ("cut", "{{beyond_bound}}" if tier.walk else "false"),
        ("first", "{{first_in_levels: {{argument}}}}" if order in _LEVELS else "{{first_in_order}}"),
        ("in_stream", "" if tier.family is None else _IN_ONLY_STREAM[tier.family]),
        ("in_index", _IN_INDEX.get(order, "{{any_priority}}") if tier.family is None else ""),
        ("index_order", _scan_order(tier, order)), *_LEVELS.get(order, ()),
    )  # fmt: skip


def _scan_order(tier: Tier, order: Order) -> str:
    """ORDER BY of the index that a scan reads."""
    if tier.family is None and order in (Order.FIFO, Order.LIFO):
        return _ORDERS[order]
    return _STREAMS[order][0][1] if order in _STREAMS else _ORDERS[order]


def _merge_words(filters: Filters, tier: Tier, order: Order) -> Words:
    assert tier.family is not None
    by_levels, stream = order in _LEVELS, _IN_STREAM[tier.family]
    return (
        ("tier", "{{merge}}"), ("candidates", "SELECT id FROM matching"), ("left", "{{left_by_merge}}"),
        ("cut", "{{beyond_walk}}"), ("names", _names(filters, tier.family)),
        ("streams", "{{streams_of_levels}}" if by_levels else "{{streams_of_names}}"), ("of_name", stream),
        ("in_stream", f"{stream} AND priority = stream.level" if by_levels else stream),
        ("collated", "" if tier.family is ATTEMPTS else 'COLLATE "C"'),
        ("read", "{{read_stream: {{argument}}}}" if tier.walk is None else "{{read_part_of_stream: {{argument}}}}"),
        ("order", _ORDERS[order]), *_STREAMS.get(order, ()),
    )  # fmt: skip


def _random_words(tier: Tier, is_scan: bool) -> Words:
    """The words that differ in a random order."""
    key = "{{key}}"
    return (
        ("tier", "{{scan_random}}{{random_candidates}}" if is_scan else "{{merge}}{{random_candidates}}"),
        ("candidates", "SELECT id FROM drawn"), ("left", "{{left_by_random}}"), ("after", "{{after_random}}"),
        ("number", key), ("numbered", f"AND {key} IS NOT NULL"),
        ("index_order", key if tier.family is None else "{{number_in_stream}}"),
        ("read_to_bar", "{{read_range}}"), ("range", "{{from_smallest}}"),
    )  # fmt: skip


def _names(filters: Filters, family: StreamFamily) -> str:
    if family is QUEUE:
        return "{{queues_found}}" if filters.queues is None else "{{queues_named}}"
    return {TYPE: "{{types_named}}", PAIR: "{{pairs_named}}", ATTEMPTS: "{{attempts_found}}"}[family]


def _passes(filters: Filters, family: StreamFamily | None, *, named: bool = True) -> str:
    """The conditions of a claim, except for those that the streams of this family have already. `named`: the streams
    are those of `names`, which has no paused queues or types."""
    columns = family.columns if family is not None and named else ()
    conditions = (
        ("{{is_open}}", "queue" not in columns and "type" not in columns),
        ("{{in_open_queue}}", columns == ("type",)),
        ("{{of_open_type}}", columns == ("queue",)),
        ("{{not_expired}}", True),
    )
    return " ".join((*_filter_words(filters, family), *(fragment for fragment, needed in conditions if needed)))


def _filter_words(filters: Filters, family: StreamFamily | None) -> list[str]:
    """The conditions of the filters, except for those that the streams of this family have already."""
    columns = () if family is None else family.columns
    conditions = (
        ("{{in_named_queues}}", filters.queues is not None and "queue" not in columns),
        ("{{of_named_types}}", filters.types is not None and "type" not in columns),
        ("{{with_attempts_left}}", is_cut_by_attempts(filters) and "attempts_left" not in columns),
    )
    return [fragment for fragment, needed in conditions if needed]


def _backlog_params(filters: Filters) -> dict[str, Any]:
    return _filter_params(filters) | {
        "min_attempts_left": max(filters.max_attempts_remaining or 0, 1),
    }


def _filter_params(filters: Filters) -> dict[str, Any]:
    return {
        "queues": None if filters.queues is None else list(dict.fromkeys(filters.queues)),
        "types": None if filters.types is None else list(dict.fromkeys(filters.types)),
        "min_attempts_left": filters.max_attempts_remaining or 0,
        "kind": str(filters.order),
    }
