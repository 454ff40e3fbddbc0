"""The dialect of an engine: the statements that the SQL engines run in different ways.

Everything else is in the parts of `SqlOperations`, once for all engines. A dialect has no base class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dibs.model.claim import ClaimRequest, Filters
from dibs.model.finalization import Finalized
from dibs.model.history import HistoryPosition
from dibs.model.statistics import DatabaseHealth, HistoryChanges
from dibs.store.operation import Rows, Statements
from dibs.store.operations.rows import NewRow

if TYPE_CHECKING:
    from dibs.store.operations.admission import Admission
    from dibs.store.operations.advance import Advance
    from dibs.store.operations.claim import Sweeper

NewRows = Mapping[int, NewRow]
"""Rows of new tasks by their place in the batch."""

Stored = tuple[NewRow, int, str, int]
"""The row of a new task, and the id, state and time of creation that the store gave it."""

Holders = Sequence[tuple[str, str | None]]
"""The worker and incarnation that each of the claimed tasks goes to."""

FinalizationAnswer = tuple[bool, str | None, str, str, str, int | None, int | None]
"""The answer to a request to finalize: claimed, already_claimed_by, state, message, reason, token, lease_until."""


class FinalizationStatements(Protocol):
    """Claim, renew and act on a finalization."""

    def claim(self, workflow_id: int, processor: str, lease: int) -> Statements[Any]:
        """Claim the finalization, or find the reason why not, and record the attempt; a FinalizationAnswer."""

    def renew(self, workflow_id: int, processor: str, token: int, lease: int) -> Statements[Any]:
        """Extend the claim, or find the reason why not; a FinalizationAnswer."""

    def act(self, workflow_id: int, processor: str, token: int) -> Statements[Finalized]:
        """Check the claim and act on the state of the steps. Raises FinalizationLost or WorkflowNotFound, and changes
        nothing then."""


class Dialect(Protocol):
    """What differs between the SQL engines."""

    many_writers: bool
    """True if several transactions can write at once, so that an entry of the history can be committed after an entry
    with a higher id."""

    def insert_tasks(self, rows: NewRows, flow_version: int) -> Statements[dict[int, Stored] | None]:
        """Insert the rows whose key is free in their queue, with their history. Returns the inserted rows. The rows
        contain a key of a queue at most once. `flow_version`: that of the limits by which the rows have their backlogs;
        if the limits have another version by now, nothing is inserted, and the result is None."""

    def insert_step_tasks(self, rows: list[dict[str, Any]]) -> Statements[None]:
        """Insert the tasks of steps under their ids, with their history."""

    def claim(
        self, request: ClaimRequest, sweeper: Sweeper, *, atomic: bool, holders: Holders | None, admission: Admission
    ) -> Statements[Rows]:
        """Claim up to `count` pending tasks that pass the filters. Returns their rows in the requested order. A sweep
        promotes due tasks and recovers lost tasks first, if a sweep is due or the claim would return nothing.

        `atomic`: all statements are in one transaction, which an error of any of them rolls back. `holders`: the
        worker of each task, instead of the worker of the request. `admission`: claims tasks of backlogs as well, if
        there may be any.
        """

    def has_limited(self, filters: Filters, *, peek: bool = False) -> Statements[bool]:
        """True if a claim with these filters may find tasks of backlogs."""

    def claim_plain(self, request: ClaimRequest, holders: Holders | None) -> Statements[Rows]:
        """Claim plain tasks only, without a sweep, in the transaction that the caller has begun."""

    def plain_candidates(self, filters: Filters) -> Statements[list[tuple[int, int]]]:
        """The plain tasks that `claim_plain` would take now, with their priorities, in order."""

    def open_backlogs(self, request: ClaimRequest, reach: int) -> Statements[Rows]:
        """The open backlogs that pass the filters, the first `reach` of each queue and type."""

    def watchers(self, request: ClaimRequest, items: list[dict[str, Any]]) -> Statements[Rows]:
        """The backlogs that `open_watchers` would open, as far as they pass the filters. Nothing is changed."""

    def read_backlogs(self, names: list[str], count: int, filters: Filters) -> Statements[Rows]:
        """The first `count` tasks of each of these backlogs, in the requested order: (backlog, id, priority)."""

    def open_watchers(self, items: list[dict[str, Any]]) -> Statements[int]:
        """Open the first backlogs of each queue and type that wait for these counters (name), as many as there is
        `room`. Returns their number."""

    def claim_limited(
        self, request: ClaimRequest, items: list[dict[str, Any]], counted_at: int | None
    ) -> Statements[Rows]:
        """Claim these tasks of backlogs; tasks that another transaction has locked are left out. `counted_at`: the time
        for which rates have counted the claims; None without rates."""

    def await_writers(self) -> Statements[bool]:
        """Wait for the transactions that are writing tasks now, for a second at most. True if all of them have
        ended."""

    def pick(self, filters: Filters) -> Statements[list[int]]:
        """The ids of the tasks that a claim would take now, in order."""

    def number_some(self, order: str) -> Statements[bool]:
        """Begin the random order if it has not begun, and number the next claimable tasks; True if tasks without a
        number may be left."""

    def provide_index(self, name: str) -> Statements[None]:
        """Create an index of streams, or request it from upkeep if creating it would stop other writers for long."""

    def clear_holders(self, recovered: Rows) -> Statements[None]:
        """Clear the holder of recovered tasks, if the statement that recovers them cannot do that."""

    def lock_roots(self, ids: list[int]) -> Statements[None]:
        """Lock the root workflows, in this order, until the transaction ends. Every change of a workflow's tree holds
        the lock of its root."""

    def finalization(self, advance: Advance) -> FinalizationStatements:
        """The statements of finalizations."""

    def history_position(self) -> Statements[HistoryPosition]:
        """The end of the history in the snapshot from which all following statements read."""

    def history_changes(self, positions: Sequence[HistoryPosition], limit: int) -> Statements[list[HistoryChanges]]:
        """The changes since each of the positions, up to `limit` entries, all in one snapshot."""

    def database_health(self) -> Statements[DatabaseHealth]:
        """The size of the database, and what keeps the engine from cleaning up."""
