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

from dibs.json_values import decode
from dibs.model.checks import check_names
from dibs.model.claim import Order
from dibs.model.retention import DAY, FINISHED, Records, Rules
from dibs.model.task import EXPIRED, FINAL, LEASE_LOST, State
from dibs.model.upkeep import BATCH, NEWEST, OLDEST, Pause, PauseScope, PausesToPark, Pruned, PrunePosition
from dibs.model.workflow import STOP_DEADLINE
from dibs.store.contract import Observer
from dibs.store.operation import WIDTH, Mode, Operation, Row, Rows, Statement, Statements, limited
from dibs.store.operations.advance import WAITING, Advance, CounterChanges
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.limits import return_permits_of_deleted
from dibs.store.operations.retention import read_rules
from dibs.store.operations.stream_indexes import QUEUE, TYPE, existing_indexes, stream_index

SWEEP_BATCH = 100
PARK_REACH = 2000
"""The number of tasks at the head of the store among which those of a paused queue or type are found without an index
of streams."""

PARK_PAUSES = 10
"""Pauses that one batch parks or unparks tasks for."""

RANDOM_ORDER_KEPT = round(DAY * 1e6)
"""Microseconds after its last claim until a random order ends."""

REACH = 1000
"""The number of tasks of the whole store among which the next due task of some queues is searched."""

SAMPLES_KEPT = round(8 * DAY * 1e6)
"""Microseconds for which the samples of each minute are kept: a week, and the day that it is compared with."""

WORKFLOW_BATCH = 100
"""Workflows that one batch expires, mends or deletes."""

TASK_EXPIRED = f'{{"type":"{EXPIRED}","message":"The task was not started by its expiry."}}'

ERROR_OF_LOST_LEASE = (
    f'{{"type":"{LEASE_LOST}","message":"The lease ran out: the worker died, froze or lost its connection."}}'
)


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
        rows = yield Statement("recover", {"error": ERROR_OF_LOST_LEASE, "ids": ids}, words=words, change=True)
        ignored: set[int] = set()
        yield from self._dialect.clear_holders(rows)
        yield from self._advance.advance([row[0] for row in rows if row[3] in FINAL], ignored=ignored)
        self._observer.moved(rows, ignored)
        return len(rows)

    def recover_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """The statements of `recover` except for steps that end with their lease, for claims that sweep."""
        words = (("which", "{{except_ending_steps}}"), *limited(limit))
        rows = yield Statement("recover", {"error": ERROR_OF_LOST_LEASE}, words=words, change=True)
        if rows:
            self._observer.moved(rows)
            yield from self._dialect.clear_holders(rows)
        return len(rows)

    def expire_tasks(self, limit: int = BATCH) -> Operation[int]:
        """Cancel waiting tasks that were not started by their expiry."""
        return Operation("expire_tasks", lambda: self._expire_tasks(limit), mode=Mode.TRANSACTION, wakes=True)

    def _expire_tasks(self, limit: int) -> Statements[int]:
        """Lock the workflows of steps before any task is locked."""
        late = yield Statement("expired", words=limited(limit))
        if not late:
            return 0
        steps = [row[0] for row in late if row[2] is not None]
        if steps:
            yield from self._advance.lock_steps(steps)
        rows = yield from self._expire_these(late, WAITING)
        yield from self._advance.advance_each([row[0] for row in rows if row[0] in steps])
        return len(rows)

    def expire_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """The statements of `expire_tasks` for pending tasks that are no steps, for claims that sweep."""
        late = yield Statement("expired", words=limited(limit))
        rows = yield from self._expire_these([row for row in late if row[2] is None], (State.PENDING,))
        return len(rows)

    def _expire_these(self, late: Rows, states: Sequence[str]) -> Statements[Rows]:
        """Cancel the expired tasks among these that wait in one of the states."""
        rows: Rows = []
        for state in states:
            if ids := [row[0] for row in late if row[1] == state]:
                given = {"ids": ids, "from_state": str(state), "error": TASK_EXPIRED}
                rows += yield Statement("expire", given, change=True)
        self._observer.moved(rows)
        return rows

    def pauses_to_park(self) -> Operation[PausesToPark]:
        """Some of the pauses with tasks to park, and of the pauses that have ended with tasks to unpark."""
        return Operation("pauses_to_park", _pauses_to_park, mode=Mode.READ)

    def park(self, pause: Pause, limit: int = BATCH) -> Operation[int]:
        """Take the first tasks of a paused queue or type out of the indexes that claims read."""
        return Operation("park", lambda: park(pause, limit), mode=Mode.TRANSACTION)

    def unpark(self, pause: Pause, limit: int = BATCH) -> Operation[int]:
        """Put the first tasks that are parked for a pause that has ended back into the indexes that claims read."""
        return Operation("unpark", lambda: unpark(pause, limit), mode=Mode.TRANSACTION, wakes=True)

    def unpark_some(self, limit: int = SWEEP_BATCH) -> Statements[int]:
        """Unpark tasks of the first pauses that have ended, for claims that sweep."""
        unparked = 0
        for row in (yield Statement("pauses_to_unpark", words=limited(PARK_PAUSES))):
            unparked += yield from unpark(_pause(row), limit)
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
        """Advance workflows where a step has ended without that."""
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
        """Delete history past its retention, oldest first; and records that are no longer needed: keys that were kept
        until now, expired sessions, samples older than a week."""
        return Operation("prune_history", lambda: _prune_history(limit))

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return Operation("prune_workers", _prune_workers)


def _pauses_to_park() -> Statements[PausesToPark]:
    resumed = yield Statement("pauses_to_unpark", words=limited(PARK_PAUSES))
    scopes = {row[0] for row in (yield Statement("scopes_paused"))}
    paused: list[Pause] = []
    missing_index = None
    for scope in PauseScope:
        if scope in scopes:
            some, missing = yield from _pauses_of_scope_to_park(scope)
            paused += some
            missing_index = missing_index or missing
    return PausesToPark(paused, [_pause(row) for row in resumed], missing_index)


def _pauses_of_scope_to_park(scope: PauseScope) -> Statements[tuple[list[Pause], str | None]]:
    """Some pauses with tasks to park, and the missing index."""
    has_index = yield from _has_index(scope)
    which = "{{pauses_with_tasks}}" if has_index else "{{pauses_within_reach}}"
    words = (("which", which), ("column", scope.value), ("reach", f"{PARK_REACH:d}"), *limited(PARK_PAUSES))
    rows = yield Statement("pauses_to_park", {"scope": scope.value}, words=words)
    is_cut = not has_index and (yield Statement("beyond_reach", words=(("reach", f"{PARK_REACH:d}"),)))
    return [_pause(row) for row in rows], _INDEXES[scope] if is_cut else None


_INDEXES = {
    PauseScope.QUEUE: stream_index(QUEUE, Order.PRIORITY),
    PauseScope.TYPE: stream_index(TYPE, Order.PRIORITY),
}
"""The index in which the tasks of a paused queue or type are found, if the store has it."""


def _has_index(scope: PauseScope) -> Statements[bool]:
    return _INDEXES[scope] in (yield from existing_indexes())


def _pause(row: Row) -> Pause:
    return Pause(PauseScope(row[0]), row[1])


def park(pause: Pause, limit: int) -> Statements[int]:
    """Park the first claimable tasks of the queue or type. Safe: `park` checks under the lock of the pause's row that
    the pause holds, and `resume` writes this row."""
    which = "{{first_in_stream}}" if (yield from _has_index(pause.scope)) else "{{first_within_reach}}"
    words = (("tasks_to_park", which), ("column", pause.scope.value), ("reach", f"{PARK_REACH:d}"), *limited(limit))
    rows = yield Statement("park", {"scope": pause.scope.value, "name": pause.name}, words=words)
    return len(rows)


def unpark(pause: Pause, limit: int) -> Statements[int]:
    """Unpark the first tasks that are parked for this pause, unless it holds. Tasks that have another pause are parked
    for that one from now on."""
    given = {"scope": pause.scope.value, "name": pause.name, "by_type": pause.scope is PauseScope.TYPE}
    words = (("other_column", pause.scope.other.value), *limited(limit))
    rows = yield Statement("unpark", {**given, "other": pause.scope.other.value}, words=words)
    if len(rows) < limit:
        yield Statement("note_unparked", given)
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
            if rows and name == "prune_history":
                yield Statement("note_pruned", {"last": max(row[0] for row in rows)})
    kept_keys = yield Statement("prune_kept_keys", words=limited(limit))
    yield Statement("prune_sessions", words=limited(limit))
    [[now]] = yield Statement("clock")
    yield Statement("prune_samples", {"before": now - SAMPLES_KEPT}, words=limited(limit))
    return max(pruned, len(kept_keys))


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
    gone: list[Row] = []
    for records in FINISHED:
        if records not in done:
            deleted, next_at = yield from _prune_tasks(rules, records, limit, position.at.get(records, OLDEST), gone)
            count += deleted
            if next_at is None:
                done.append(records.value)
            else:
                at[records.value] = next_at
        if (workflows := f"{records} workflows") not in done:
            deleted, complete = yield from _prune_workflows(rules, records, limit, gone)
            count += deleted
            if complete:
                done.append(workflows)
    yield from return_permits_of_deleted([row[WIDTH] for row in gone])
    if len(done) == 2 * len(FINISHED):
        return Pruned(count)
    return Pruned(count, PrunePosition(rules.checksum, at, tuple(done)))


def _prune_tasks(
    rules: Rules, records: Records, limit: int, after: int, gone: list[Row]
) -> Statements[tuple[int, int | None]]:
    """Returns the number of deleted tasks, and the time at which the next batch begins (None: no task is left). The
    rows of the deleted tasks are added to `gone`."""
    shortest = rules.shortest(records)
    if shortest is None:
        return 0, None
    if rules.are_uniform(records):
        given = {"state": records.value, "kept": micros(shortest)}
        rows = yield Statement("prune", given, words=limited(limit), change=True)
        yield from _tidy_after(rows, records, gone)
        return len(rows), OLDEST if len(rows) == limit else None
    return (yield from _walk(rules, records, limit, after, gone))


def _walk(
    rules: Rules, records: Records, limit: int, after: int, gone: list[Row]
) -> Statements[tuple[int, int | None]]:
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
    yield from _tidy_after(rows, records, gone)
    if len(rows) == limit:  # the next batch reads the rest, with tasks of the same microsecond
        return limit, max(row[WIDTH + 1] for row in rows) - 1
    return len(rows), until if ends else None


def _tidy_after(pruned: Sequence[Row], records: Records, gone: list[Row]) -> Statements[None]:
    """What has to follow the deletion of these tasks in its transaction; their rows are added to `gone`."""
    gone += pruned
    if pruned:
        ids = {"ids": [row[0] for row in pruned]}
        yield Statement("delete_checkpoints", ids)
        yield Statement("delete_log_lines", ids)
        yield Statement("note_pruned_keys", {**ids, "state": records.value})


def _prune_workflows(rules: Rules, records: Records, limit: int, gone: list[Row]) -> Statements[tuple[int, bool]]:
    """Delete the oldest workflows with all their steps; of large workflows as many steps as one batch may hold. What is
    left of those cannot be retried. The number of rows deleted, and whether no workflow is left to delete."""
    old = yield from _old_workflows(rules, records)
    if not old:
        return 0, True
    roots = {"ids": old}
    rows = yield Statement("prune_steps", roots, words=limited(limit), change=True)
    gone += rows
    steps = {"ids": [row[0] for row in rows]}
    for name in ("delete_edges", "delete_checkpoints", "delete_log_lines", "delete_steps"):
        yield Statement(name, steps)
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
