"""Upkeep: promote what is due, recover what its worker lost, prune what is past its retention.

Always in small batches, each a transaction of its own, so that upkeep never holds up a claim for long; safe with
any number of upkeeps at once, since every statement moves only rows that still are what it expects.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable

import msgspec

from dibs.codec import decode
from dibs.retention import DAY, FINISHED, Records, Rules
from dibs.store.operation import Operation, Row, Statement, Steps, limited
from dibs.store.operations.advancing import Advancing
from dibs.store.operations.retaining import read_rules
from dibs.task import FINAL

BATCH = 500
SWEEP_BATCH = 100
SAMPLES_KEPT = round(8 * DAY * 1e6)
"""Microseconds for which the samples of each minute are kept: a week, and the day that it is compared with."""

QUEUES_READ = 300
"""Characters of a workflow's list of queues that its index holds (see old_workflow_lines.sql)."""

LEASE_LOST = '{"type":"LeaseLost","message":"The lease ran out: the worker died, froze or lost its connection."}'


class Upkept(msgspec.Struct, frozen=True):
    """What one round of upkeep did."""

    promoted: int = 0
    recovered: int = 0
    pruned: int = 0
    history_pruned: int = 0
    workers_pruned: int = 0
    ticked: int = 0
    expired: int = 0
    finalized: int = 0
    mended: int = 0


class Tending(Advancing, ABC):
    """Keeping the house, one small batch at a time."""

    def promote(self, limit: int = BATCH) -> Operation[int]:
        """Make due tasks pending."""
        return Operation("promote", lambda: self.promote_some(limit), wakes=True)

    def promote_some(self, limit: int = SWEEP_BATCH) -> Steps[int]:
        """The steps of `promote`, for operations that sweep in passing."""
        rows = yield Statement("promote", words=limited(limit), change=True)
        return len(rows)

    def recover(self, limit: int = BATCH) -> Operation[int]:
        """Take tasks back whose lease ran out: to pending, or to the dead letter when their attempts are spent. A task
        that was claimed ahead and is not known to be started is not charged."""
        return Operation("recover", lambda: self._recover(limit), wakes=True, atomic=True)

    def _recover(self, limit: int) -> Steps[int]:
        """Steps that end with their lease last: when they are all that is left, finding them is cheap."""
        others = yield from self.recover_some(limit)
        return others if others == limit else others + (yield from self._recover_steps(limit))

    def _recover_steps(self, limit: int) -> Steps[int]:
        """Steps that end with their lease, together with what follows in their workflows; so not in passing."""
        lost = yield Statement("lost_steps", words=limited(limit))
        ids = [row[0] for row in lost]
        if not ids:
            return 0
        yield from self.hold_steps(ids)
        words = (("which", "{{with_these_ids}}"), *limited(limit))
        rows = yield Statement("recover", {"error": LEASE_LOST, "ids": ids}, words=words, change=True)
        self.witness.moved(rows)
        yield from self.advance([row[0] for row in rows if row[3] in FINAL])
        return len(rows)

    def recover_some(self, limit: int = SWEEP_BATCH) -> Steps[int]:
        """The steps of `recover`, for operations that sweep in passing."""
        words = (("which", "{{that_go_on}}"), *limited(limit))
        rows = yield Statement("recover", {"error": LEASE_LOST}, words=words, change=True)
        if rows:
            self.witness.moved(rows)
        return len(rows)

    def next_due(self) -> Operation[float | None]:
        """Seconds until the clock alone makes something claimable: a task due, a lease run out, a schedule's tick."""
        return Operation("next_due", _next_due, writes=False)

    def prune(self, limit: int = BATCH) -> Operation[int]:
        """Delete finished tasks past their retention, and ended workflows with their steps; up to `limit` of each
        state. Their history stays until its own retention."""
        return Operation("prune", lambda: self._prune(limit), atomic=True)

    def _prune(self, limit: int) -> Steps[int]:
        rules = yield from read_rules()
        pruned = 0
        for records in FINISHED:
            pruned += yield from _prune_tasks(rules, records, limit)
            pruned += yield from _prune_workflows(rules, records, limit)
        return pruned

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention, oldest first; and records of the dashboard that are no longer needed:
        expired sessions, samples older than a week."""
        return Operation("prune_history", lambda: _prune_history(limit))

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return Operation("prune_workers", _prune_workers)


def _prune_tasks(rules: Rules, records: Records, limit: int) -> Steps[int]:
    """Delete the oldest tasks of each queue and type. All tasks of one queue and type have the same retention, and
    dibs_tasks_kept has the oldest of them first: tasks that are kept longer than others are never read."""
    lines = yield Statement("old_task_lines", {"state": records.value})
    pruned = 0
    for kept, queue, kind in _overdue((rules.of_task(records, row[0], row[1]), row) for row in lines):
        if pruned == limit:
            break
        given = {"state": records.value, "queue": queue, "type": kind, "kept": kept}
        rows = yield Statement("prune", given, words=limited(limit - pruned), change=True)
        if rows:
            yield Statement("forget_checkpoints", {"ids": [row[0] for row in rows]})
        pruned += len(rows)
    return pruned


def _prune_workflows(rules: Rules, records: Records, limit: int) -> Steps[int]:
    """Delete the oldest workflows with all their steps; of large workflows as many steps as one batch may hold. What is
    left of those cannot be retried."""
    old = yield from _old_workflows(rules, records)
    if not old:
        return 0
    roots = {"ids": old}
    rows = yield Statement("prune_steps", roots, words=limited(limit), change=True)
    gone = {"ids": [row[0] for row in rows]}
    for name in ("forget_edges", "forget_checkpoints", "forget_steps"):
        yield Statement(name, gone)
    if len(rows) == limit:
        yield Statement("leave_pruned", roots)
        return limit
    for name in ("forget_lost_steps", "forget_attempts", "forget_workflows"):
        yield Statement(name, roots)
    return len(rows) + len(old)


def _old_workflows(rules: Rules, records: Records) -> Steps[list[int]]:
    """The ids of up to SWEEP_BATCH workflows past their retention, found by name and queues as tasks are by queue and
    type."""
    lines = yield Statement("old_workflow_lines", {"state": records.value})
    old: list[int] = []
    for kept, name, queues in _overdue(
        (rules.of_workflow(records, row[0], _read_queues(row[1])), row) for row in lines
    ):
        if len(old) == SWEEP_BATCH:
            break
        given = {"state": records.value, "name": name, "queues": queues, "kept": kept}
        rows = yield Statement("old_workflows", given, words=limited(SWEEP_BATCH - len(old)))
        old += [row[0] for row in rows]
    return old


def _overdue(lines: Iterable[tuple[float | None, Row]]) -> list[tuple[int, str, str]]:
    """Of lines with their retention, those whose oldest record is past it: (retention in microseconds, the line). The
    longest overdue first, so that one line whose records never stop coming does not hold back the others."""
    late = []
    for keep, (first, second, age) in lines:
        if keep is not None and age >= _micros(keep):
            late.append((age - _micros(keep), _micros(keep), first, second))
    return [(kept, first, second) for _, kept, first, second in sorted(late, reverse=True)]


def _read_queues(text: str) -> list[str] | None:
    """The queues in the index entry of a workflow; None where the list was too long for the index."""
    if len(text) < QUEUES_READ:
        queues: list[str] = decode(text)
        return queues
    return None


def _micros(keep: float) -> int:
    return round(keep * 1e6)


def _prune_history(limit: int) -> Steps[int]:
    rules = yield from read_rules()
    keep = rules.default(Records.HISTORY)
    pruned = 0
    if keep is not None:
        for name in ("prune_history", "prune_attempts"):
            rows = yield Statement(name, {"kept": _micros(keep)}, words=limited(limit))
            pruned += len(rows)
    yield Statement("prune_sessions", words=limited(limit))
    [[now]] = yield Statement("clock")
    yield Statement("prune_samples", {"before": now - SAMPLES_KEPT}, words=limited(limit))
    return pruned


def _next_due() -> Steps[float | None]:
    rows = yield Statement("next_due")
    waits = [wait for wait in rows[0] if wait is not None]
    return max(min(waits) / 1e6, 0.0) if waits else None


def _prune_workers() -> Steps[int]:
    rules = yield from read_rules()
    keep = rules.default(Records.WORKERS)
    if keep is None:
        return 0
    rows = yield Statement("prune_workers", {"kept": _micros(keep)})
    return len(rows)
