"""Upkeep: promote what is due, recover what its worker lost, prune what is past its retention.

Always in small batches, each a transaction of its own, so that upkeep never holds up a claim for long; safe with
any number of upkeeps at once, since every statement moves only rows that still are what it expects.
"""

from __future__ import annotations

import msgspec

from dibs.store.operation import Operation, Statement, Steps, limited

BATCH = 500
SWEEP_BATCH = 100
DAY = 24 * 3600.0
LEASE_LOST = '{"type":"LeaseLost","message":"The lease ran out: the worker died, froze or lost its connection."}'


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished things are kept, in seconds."""

    completed: float = DAY
    cancelled: float = DAY
    failed: float = 30 * DAY
    history: float = 30 * DAY
    workers: float = DAY


class Upkept(msgspec.Struct, frozen=True):
    """What one round of upkeep did."""

    promoted: int = 0
    recovered: int = 0
    pruned: int = 0
    history_pruned: int = 0
    workers_pruned: int = 0
    ticked: int = 0


class Tending:
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
        return Operation("recover", lambda: self.recover_some(limit), wakes=True)

    def recover_some(self, limit: int = SWEEP_BATCH) -> Steps[int]:
        """The steps of `recover`, for operations that sweep in passing."""
        rows = yield Statement("recover", {"error": LEASE_LOST}, words=limited(limit), change=True)
        return len(rows)

    def next_due(self) -> Operation[float | None]:
        """Seconds until the clock alone makes something claimable: a task due, a lease run out, a schedule's tick."""
        return Operation("next_due", _next_due, writes=False)

    def prune(self, retention: Retention, limit: int = BATCH) -> Operation[int]:
        """Delete finished tasks past their retention; their history stays until its own."""
        return Operation("prune", lambda: self._prune(retention, limit))

    def _prune(self, retention: Retention, limit: int) -> Steps[int]:
        pruned = 0
        for state in ("completed", "cancelled", "failed"):
            kept = round(getattr(retention, state) * 1e6)
            rows = yield Statement("prune", {"state": state, "kept": kept}, words=limited(limit), change=True)
            pruned += len(rows)
        return pruned

    def prune_history(self, retention: Retention, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention, oldest first."""
        statement = Statement("prune_history", {"kept": round(retention.history * 1e6)}, words=limited(limit))
        return Operation("prune_history", lambda: _count(statement))

    def prune_workers(self, retention: Retention) -> Operation[int]:
        """Forget workers that have not been heard of for long."""
        statement = Statement("prune_workers", {"kept": round(retention.workers * 1e6)})
        return Operation("prune_workers", lambda: _count(statement))


def _next_due() -> Steps[float | None]:
    rows = yield Statement("next_due")
    waits = [wait for wait in rows[0] if wait is not None]
    return max(min(waits) / 1e6, 0.0) if waits else None


def _count(statement: Statement) -> Steps[int]:
    rows = yield statement
    return len(rows)
