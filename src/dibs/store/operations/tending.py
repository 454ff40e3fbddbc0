"""Upkeep: promote what is due, recover what its worker lost, prune what is past its retention.

Always in small batches, each a transaction of its own, so that upkeep never holds up a claim for long; safe with
any number of upkeeps at once, since every statement moves only rows that still are what it expects.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from dibs.model.checks import check_names
from dibs.model.retention import DAY, Records
from dibs.model.task import FINAL
from dibs.model.upkeep import BATCH, Pruned, PrunePosition
from dibs.store.operation import Operation, Rows, Statement, Steps, limited
from dibs.store.operations.advancing import Advancing
from dibs.store.operations.pruning import micros, prune
from dibs.store.operations.retaining import read_rules

SWEEP_BATCH = 100
REACH = 1000
"""Tasks of the whole store among which the next due one of some queues is looked for."""

SAMPLES_KEPT = round(8 * DAY * 1e6)
"""Microseconds for which the samples of each minute are kept: a week, and the day that it is compared with."""

LEASE_LOST = '{"type":"LeaseLost","message":"The lease ran out: the worker died, froze or lost its connection."}'


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
        ignored: set[int] = set()
        yield from self.leave(rows)
        yield from self.advance([row[0] for row in rows if row[3] in FINAL], ignored=ignored)
        self.witness.moved(rows, ignored)
        return len(rows)

    def recover_some(self, limit: int = SWEEP_BATCH) -> Steps[int]:
        """The steps of `recover`, for operations that sweep in passing."""
        words = (("which", "{{except_ending_steps}}"), *limited(limit))
        rows = yield Statement("recover", {"error": LEASE_LOST}, words=words, change=True)
        if rows:
            self.witness.moved(rows)
            yield from self.leave(rows)
        return len(rows)

    def leave(self, recovered: Rows) -> Steps[None]:
        """Clear the holder of the recovered tasks, where the statement that recovers them cannot do so itself."""
        yield from ()

    def next_due(self, only: Sequence[str] | None = None) -> Operation[float | None]:
        """Seconds until the clock alone makes something claimable: a task due, a lease run out, a schedule's tick. In
        the queues `only`, if given: then None also where many tasks of other queues come first."""
        check_names(only, "only", "The queue")
        return Operation("next_due", lambda: _next_due(only), writes=False)

    def prune(self, limit: int = BATCH, after: PrunePosition | None = None) -> Operation[Pruned]:
        """Delete finished tasks past their retention, and ended workflows with their steps: the batch of a pass after
        this position, up to `limit` of each state. Their history stays until its own retention."""
        return Operation("prune", lambda: prune(limit, after), atomic=True)

    def prune_history(self, limit: int = BATCH) -> Operation[int]:
        """Delete history past its retention, oldest first; and records of the dashboard that are no longer needed:
        expired sessions, samples older than a week."""
        return Operation("prune_history", lambda: _prune_history(limit))

    def prune_workers(self) -> Operation[int]:
        """Delete workers whose last heartbeat is past their retention."""
        return Operation("prune_workers", _prune_workers)


def _prune_history(limit: int) -> Steps[int]:
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


def _next_due(only: Sequence[str] | None) -> Steps[float | None]:
    if only is None:
        rows = yield Statement("next_due")
    else:
        rows = yield Statement("next_due_in", {"queues": list(only)}, words=(("reach", f"{REACH:d}"),))
    waits = [wait for wait in rows[0] if wait is not None]
    return max(min(waits) / 1e6, 0.0) if waits else None


def _prune_workers() -> Steps[int]:
    rules = yield from read_rules()
    keep = rules.default(Records.WORKERS)
    if keep is None:
        return 0
    rows = yield Statement("prune_workers", {"kept": micros(keep)})
    return len(rows)
