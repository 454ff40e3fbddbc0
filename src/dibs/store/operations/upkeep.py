"""Upkeep: promote due tasks, recover lost tasks, expire and mend workflows, prune records past their retention.

Every operation is a small batch in a transaction of its own, so that upkeep never delays a claim for long. Any number
of processes may do it at once: every statement moves only rows that are still in the state that it expects.

A state without retention rules for types, queues or workflows is pruned from the old end of its index. A state with
such rules is walked: tasks of different retention lie side by side in the index, so each pass reads all entries that
could be past their retention, one stretch per operation, and deletes those that are. A task that was missed (it was
locked, or its transaction committed late) is found by the next pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dibs.codec import decode
from dibs.model.checks import check_names
from dibs.model.retention import DAY, FINISHED, Records, Rules
from dibs.model.task import FINAL
from dibs.model.upkeep import BATCH, NEWEST, OLDEST, Pruned, PrunePosition, QueuesToPark
from dibs.model.workflow import STOP_DEADLINE
from dibs.store.contract import Observer
from dibs.store.operation import WIDTH, Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.advance import Advance, CounterChanges
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.retention import read_rules

SWEEP_BATCH = 100
PARK_QUEUES = 10
"""Queues that one batch parks or unparks tasks of."""

RANDOM_ORDER_KEPT = round(DAY * 1e6)
"""Microseconds after its last claim until a random order ends."""

REACH = 1000
"""The number of tasks of the whole store among which the next due task of some queues is searched."""

SAMPLES_KEPT = round(8 * DAY * 1e6)
"""Microseconds for which the samples of each minute are kept: a week, and the day that it is compared with."""

WORKFLOW_BATCH = 100
"""Workflows that one batch expires, mends or deletes."""

LEASE_LOST = '{"type":"LeaseLost","message":"The lease ran out: the worker died, froze or lost its connection."}'


class Upkeep:
    """Promote, recover, expire, mend and prune, one small batch at a time."""

    def __init__(self, dialect: Dialect, advance: Advance, observer: Observer) -> None:
        self._dialect = dialect
        self._advance = advance
        self._observer = observer

    def promote(self, limit: int = BATCH) -> Operation[int]:
        """Make due tasks pending."""
        return Operation("promote", lambda: self.promote_some(limit), wakes=True)

    def promote_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """The statements of `promote`, for claims that sweep."""
        rows = yield Statement("promote", words=limited(limit), change=True)
        return len(rows)

    def recover(self, limit: int = BATCH) -> Operation[int]:
        """Take tasks back whose lease ran out: to pending, or to the dead letter when their attempts are spent. A task
        that was claimed ahead and is not known to be started is not charged."""
        return Operation("recover", lambda: self._recover(limit), mode=Mode.TRANSACTION, wakes=True)

    def _recover(self, limit: int) -> Statements[int]:
        """Recover the steps that end with their lease last: these need the lock of their workflow."""
        others = yield from self.recover_some(limit)
        return others if others == limit else others + (yield from self._recover_steps(limit))

    def _recover_steps(self, limit: int) -> Statements[int]:
        """Recover steps that end with their lease, and advance their workflows."""
        lost = yield Statement("lost_steps", words=limited(limit))
        ids = [row[0] for row in lost]
        if not ids:
            return 0
        yield from self._advance.lock_steps(ids)
        words = (("which", "{{with_these_ids}}"), *limited(limit))
        rows = yield Statement("recover", {"error": LEASE_LOST, "ids": ids}, words=words, change=True)
        ignored: set[int] = set()
        yield from self._dialect.clear_holders(rows)
        yield from self._advance.advance([row[0] for row in rows if row[3] in FINAL], ignored=ignored)
        self._observer.moved(rows, ignored)
        return len(rows)

    def recover_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """The statements of `recover` except for steps that end with their lease, for claims that sweep."""
        words = (("which", "{{except_ending_steps}}"), *limited(limit))
        rows = yield Statement("recover", {"error": LEASE_LOST}, words=words, change=True)
        if rows:
            self._observer.moved(rows)
            yield from self._dialect.clear_holders(rows)
        return len(rows)

    def queues_to_park(self) -> Operation[QueuesToPark]:
        """Some of the paused queues with tasks to park, and of the resumed queues with tasks to unpark."""
        return Operation("queues_to_park", _queues_to_park, mode=Mode.READ)

    def park(self, queue: str, limit: int = BATCH) -> Operation[int]:
        """Take the first tasks of a paused queue out of the indexes that claims read."""
        return Operation("park", lambda: park(queue, limit), mode=Mode.TRANSACTION)

    def unpark(self, queue: str, limit: int = BATCH) -> Operation[int]:
        """Put the first parked tasks of a queue that is not paused back into the indexes that claims read."""
        return Operation("unpark", lambda: unpark(queue, limit), mode=Mode.TRANSACTION, wakes=True)

    def unpark_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """Unpark tasks of the first resumed queues, for claims that sweep."""
        unparked = 0
        for (queue,) in (yield Statement("queues_to_unpark", words=limited(PARK_QUEUES))):
            unparked += yield from unpark(queue, limit)
        return unparked

    def end_random_orders(self) -> Operation[int]:
        """End the random orders that no claim has used for RANDOM_ORDER_KEPT."""
        return Operation("end_random_orders", _end_random_orders)

    def next_due(self, only: Sequence[str] | None = None) -> Operation[float | None]:
        """Seconds until a task becomes claimable because its time has come: a scheduled task is due, a lease ends, or a
        schedule ticks. With `only`: in these queues; then also None if many tasks of other queues come first."""
        check_names(only, "only", "The queue")
        return Operation("next_due", lambda: _next_due(only), mode=Mode.READ)

    def expire_workflows(self, limit: int = WORKFLOW_BATCH) -> Operation[int]:
        """Stop workflows that are past their deadline."""
        return Operation("expire_workflows", lambda: self._expire(limit), mode=Mode.TRANSACTION, wakes=True)

    def _expire(self, limit: int) -> Statements[int]:
        rows = yield Statement("expired_workflows", words=limited(limit))
        if not rows:
            return 0
        held = yield from self._advance.lock_trees([row[0] for row in rows])
        rows = yield Statement("expired_workflows", words=limited(limit))  # one may have been retried meanwhile
        changes = CounterChanges()
        for (workflow_id,) in rows:
            if workflow_id in held:
                yield from self._advance.stop(workflow_id, STOP_DEADLINE, changes)
        yield from self._advance.write_counters(changes)
        return len(rows)

    def mend_workflows(self, limit: int = WORKFLOW_BATCH) -> Operation[int]:
        """Settle steps that ended without their workflow being advanced."""
        return Operation("mend_workflows", lambda: self._mend(limit), mode=Mode.TRANSACTION, wakes=True)

    def _mend(self, limit: int) -> Statements[int]:
        rows = yield Statement("missed_steps", words=limited(limit))
        ids = [row[0] for row in rows]
        if ids:
            yield from self._advance.lock_steps(ids)
            yield from self._advance.advance(ids)
            return len(ids)
        forgotten = yield Statement("missed_finalizations")
        return len(forgotten)

    def prune(self, limit: int = BATCH, after: PrunePosition | None = None) -> Operation[Pruned]:
        """Delete finished tasks past their retention, and ended workflows with their steps: the batch of a pass after
        this position, up to `limit` of each state. Their history stays until its own retention."""
        return Operation("prune", lambda: _prune(limit, after), mode=Mode.TRANSACTION)

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention, oldest first; and records of the dashboard that are no longer needed:
        expired sessions, samples older than a week."""
        return Operation("prune_history", lambda: _prune_history(limit))

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return Operation("prune_workers", _prune_workers)


def _queues_to_park() -> Statements[QueuesToPark]:
    paused = yield Statement("queues_to_park", words=limited(PARK_QUEUES))
    resumed = yield Statement("queues_to_unpark", words=limited(PARK_QUEUES))
    return QueuesToPark(paused=[row[0] for row in paused], resumed=[row[0] for row in resumed])


def park(queue: str, limit: int) -> Statements[int]:
    """Park the first claimable tasks of the queue. Safe: `park` checks under the lock of the queue's row that the queue
    is paused, and `resume` writes this row."""
    rows = yield Statement("park", {"queue": queue}, words=limited(limit))
    if rows:
        yield Statement("note_parked", {"queue": queue})
    return len(rows)


def unpark(queue: str, limit: int) -> Statements[int]:
    """Unpark the first parked tasks of the queue, unless the queue is paused."""
    rows = yield Statement("unpark", {"queue": queue}, words=limited(limit))
    if len(rows) < limit:
        yield Statement("note_unparked", {"queue": queue})
    return len(rows)


def _end_random_orders() -> Statements[int]:
    rows = yield Statement("end_random_orders", {"unused": RANDOM_ORDER_KEPT})
    return len(rows)


def _prune_history(limit: int) -> Statements[int]:
    rules = yield from read_rules()
    keep = rules.default(Records.HISTORY)
    pruned = 0
    if keep is not None:
        for name in ("prune_history", "prune_attempts"):
            rows = yield Statement(name, {"kept": micros(keep)}, words=limited(limit))
            pruned += len(rows)
    yield Statement("prune_sessions", words=limited(limit))
    [[now]] = yield Statement("clock")
    yield Statement("prune_samples", {"before": now - SAMPLES_KEPT}, words=limited(limit))
    return pruned


def _next_due(only: Sequence[str] | None) -> Statements[float | None]:
    if only is None:
        rows = yield Statement("next_due")
    else:
        rows = yield Statement("next_due_in", {"queues": list(only)}, words=(("reach", f"{REACH:d}"),))
    waits = [wait for wait in rows[0] if wait is not None]
    return max(min(waits) / 1e6, 0.0) if waits else None


def _prune_workers() -> Statements[int]:
    rules = yield from read_rules()
    keep = rules.default(Records.WORKERS)
    if keep is None:
        return 0
    rows = yield Statement("prune_workers", {"kept": micros(keep)})
    return len(rows)


STRETCH = 5000
"""Entries of the index of finished tasks that one operation reads in each state."""

QUEUES_READ = 300
"""Characters of a workflow's list of queues that its index holds (see `workflow_groups`)."""


def _prune(limit: int, position: PrunePosition | None) -> Statements[Pruned]:
    """The next batch of a pass: up to `limit` tasks and as many steps of workflows in each final state."""
    rules = yield from read_rules()
    if position is None or position.rules != rules.checksum:
        position = PrunePosition(rules.checksum)
    count, at, done = 0, {}, list(position.done)
    for records in FINISHED:
        if records not in done:
            deleted, next_at = yield from _prune_tasks(rules, records, limit, position.at.get(records, OLDEST))
            count += deleted
            if next_at is None:
                done.append(records.value)
            else:
                at[records.value] = next_at
        if (workflows := f"{records} workflows") not in done:
            deleted, complete = yield from _prune_workflows(rules, records, limit)
            count += deleted
            if complete:
                done.append(workflows)
    if len(done) == 2 * len(FINISHED):
        return Pruned(count)
    return Pruned(count, PrunePosition(rules.checksum, at, tuple(done)))


def _prune_tasks(rules: Rules, records: Records, limit: int, after: int) -> Statements[tuple[int, int | None]]:
    """Returns the number of deleted tasks, and the time at which the next batch begins (None: no task is left)."""
    shortest = rules.shortest(records)
    if shortest is None:
        return 0, None
    if rules.are_uniform(records):
        given = {"state": records.value, "kept": micros(shortest)}
        rows = yield Statement("prune", given, words=limited(limit), change=True)
        yield from _delete_checkpoints(rows)
        return len(rows), OLDEST if len(rows) == limit else None
    return (yield from _walk(rules, records, limit, after))


def _walk(rules: Rules, records: Records, limit: int, after: int) -> Statements[tuple[int, int | None]]:
    """Delete the tasks that are past their own retention in the stretch after this moment. The end of the stretch is
    read first: a task that is committed meanwhile makes the stretch longer, and cannot be passed over. Tasks that
    finished in the same microsecond, in one batch, are never divided between two stretches."""
    shortest, default = rules.shortest(records), rules.default(records)
    assert shortest is not None
    given: dict[str, Any] = {"state": records.value, "after": after}
    words = (("span", str(STRETCH - 1)),)
    ends = yield Statement("walk_finished", {**given, "kept": micros(shortest)}, words=words)
    until = ends[0][0] if ends else NEWEST
    given |= {"until": until, "shortest": micros(shortest), "kept": None if default is None else micros(default)}
    rows = yield Statement("prune_walked", given, words=limited(limit), change=True)
    yield from _delete_checkpoints(rows)
    if len(rows) == limit:  # the next batch reads the rest, with tasks of the same microsecond
        return limit, max(row[WIDTH] for row in rows) - 1
    return len(rows), until if ends else None


def _delete_checkpoints(rows: Sequence[Row]) -> Statements[None]:
    if rows:
        yield Statement("delete_checkpoints", {"ids": [row[0] for row in rows]})


def _prune_workflows(rules: Rules, records: Records, limit: int) -> Statements[tuple[int, bool]]:
    """Delete the oldest workflows with all their steps; of large workflows as many steps as one batch may hold. What is
    left of those cannot be retried. The number of rows deleted, and whether no workflow is left to delete."""
    old = yield from _old_workflows(rules, records)
    if not old:
        return 0, True
    roots = {"ids": old}
    rows = yield Statement("prune_steps", roots, words=limited(limit), change=True)
    gone = {"ids": [row[0] for row in rows]}
    for name in ("delete_edges", "delete_checkpoints", "delete_steps"):
        yield Statement(name, gone)
    if len(rows) == limit:
        yield Statement("mark_pruned", roots)
        return limit, False
    for name in ("delete_lost_steps", "delete_attempts", "delete_workflows"):
        yield Statement(name, roots)
    return len(rows) + len(old), len(old) < WORKFLOW_BATCH


def _old_workflows(rules: Rules, records: Records) -> Statements[list[int]]:
    """The ids of up to WORKFLOW_BATCH workflows past their retention. All workflows of one name and list of queues have
    the same retention, and dibs_workflows_kept has the oldest of them first: workflows that are kept longer are not
    read."""
    groups = yield Statement("workflow_groups", {"state": records.value})
    old: list[int] = []
    for kept, name, queues in _overdue(
        (rules.of_workflow(records, row[0], _read_queues(row[1])), row) for row in groups
    ):
        if len(old) == WORKFLOW_BATCH:
            break
        given = {"state": records.value, "name": name, "queues": queues, "kept": kept}
        rows = yield Statement("old_workflows", given, words=limited(WORKFLOW_BATCH - len(old)))
        old += [row[0] for row in rows]
    return old


def _overdue(groups: Iterable[tuple[float | None, Row]]) -> list[tuple[int, str, str]]:
    """The groups whose oldest workflow is past its retention: (retention in microseconds, name, queues). The longest
    overdue group is first, so that a group that gets new workflows all the time does not delay the others."""
    late = []
    for keep, (first, second, age) in groups:
        if keep is not None and age >= micros(keep):
            late.append((age - micros(keep), micros(keep), first, second))
    return [(kept, first, second) for _, kept, first, second in sorted(late, reverse=True)]


def _read_queues(text: str) -> list[str] | None:
    """The queues in the index entry of a workflow; None where the list was too long for the index."""
    if len(text) < QUEUES_READ:
        queues: list[str] = decode(text)
        return queues
    return None


def micros(keep: float) -> int:
    """A retention in microseconds."""
    return round(keep * 1e6)
