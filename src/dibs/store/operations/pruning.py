"""Pruning: delete finished tasks and ended workflows that are past their retention, one bounded batch at a time.

A state without rules for types, queues or workflows is pruned from the old end of its index. A state with such rules is
walked: tasks of different retention lie side by side in the index, so each pass reads all entries that could be past
their retention, one stretch per operation, and deletes those that are. A task that was missed (it was locked, or its
transaction committed late) is found by the next pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dibs.codec import decode
from dibs.model.retention import FINISHED, Records, Rules
from dibs.model.upkeep import NEWEST, OLDEST, Pruned, PrunePosition
from dibs.store.operation import WIDTH, Row, Statement, Steps, limited
from dibs.store.operations.retaining import read_rules

STRETCH = 5000
"""Entries of the index of finished tasks that one operation reads in each state."""

WORKFLOWS = 100
"""Workflows that one operation deletes in each state, at most."""

QUEUES_READ = 300
"""Characters of a workflow's list of queues that its index holds (see `old_workflow_lines`)."""


def prune(limit: int, position: PrunePosition | None) -> Steps[Pruned]:
    """The next batch of a pass: up to `limit` tasks and as many steps of workflows in each final state."""
    rules = yield from read_rules()
    if position is None or position.rules != rules.checksum:
        position = PrunePosition(rules.checksum)
    count, at, done = 0, {}, list(position.done)
    for records in FINISHED:
        if records not in done:
            deleted, stands = yield from _prune_tasks(rules, records, limit, position.at.get(records, OLDEST))
            count += deleted
            if stands is None:
                done.append(records.value)
            else:
                at[records.value] = stands
        if (workflows := f"{records} workflows") not in done:
            deleted, complete = yield from _prune_workflows(rules, records, limit)
            count += deleted
            if complete:
                done.append(workflows)
    if len(done) == 2 * len(FINISHED):
        return Pruned(count)
    return Pruned(count, PrunePosition(rules.checksum, at, tuple(done)))


def _prune_tasks(rules: Rules, records: Records, limit: int, after: int) -> Steps[tuple[int, int | None]]:
    """The number of tasks deleted, and where the next batch begins: None where no task is left."""
    shortest = rules.shortest(records)
    if shortest is None:
        return 0, None
    if rules.are_uniform(records):
        given = {"state": records.value, "kept": micros(shortest)}
        rows = yield Statement("prune", given, words=limited(limit), change=True)
        yield from _forget_checkpoints(rows)
        return len(rows), OLDEST if len(rows) == limit else None
    return (yield from _walk(rules, records, limit, after))


def _walk(rules: Rules, records: Records, limit: int, after: int) -> Steps[tuple[int, int | None]]:
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
    yield from _forget_checkpoints(rows)
    if len(rows) == limit:  # the rest of the stretch is for the next batch, with tasks of the same microsecond
        return limit, max(row[WIDTH] for row in rows) - 1
    return len(rows), until if ends else None


def _forget_checkpoints(rows: Sequence[Row]) -> Steps[None]:
    if rows:
        yield Statement("forget_checkpoints", {"ids": [row[0] for row in rows]})


def _prune_workflows(rules: Rules, records: Records, limit: int) -> Steps[tuple[int, bool]]:
    """Delete the oldest workflows with all their steps; of large workflows as many steps as one batch may hold. What is
    left of those cannot be retried. The number of rows deleted, and whether no workflow is left to delete."""
    old = yield from _old_workflows(rules, records)
    if not old:
        return 0, True
    roots = {"ids": old}
    rows = yield Statement("prune_steps", roots, words=limited(limit), change=True)
    gone = {"ids": [row[0] for row in rows]}
    for name in ("forget_edges", "forget_checkpoints", "forget_steps"):
        yield Statement(name, gone)
    if len(rows) == limit:
        yield Statement("leave_pruned", roots)
        return limit, False
    for name in ("forget_lost_steps", "forget_attempts", "forget_workflows"):
        yield Statement(name, roots)
    return len(rows) + len(old), len(old) < WORKFLOWS


def _old_workflows(rules: Rules, records: Records) -> Steps[list[int]]:
    """The ids of up to WORKFLOWS workflows past their retention. All workflows of one name and list of queues have the
    same retention, and dibs_workflows_kept has the oldest of them first: those that are kept longer are not read."""
    lines = yield Statement("old_workflow_lines", {"state": records.value})
    old: list[int] = []
    for kept, name, queues in _overdue(
        (rules.of_workflow(records, row[0], _read_queues(row[1])), row) for row in lines
    ):
        if len(old) == WORKFLOWS:
            break
        given = {"state": records.value, "name": name, "queues": queues, "kept": kept}
        rows = yield Statement("old_workflows", given, words=limited(WORKFLOWS - len(old)))
        old += [row[0] for row in rows]
    return old


def _overdue(lines: Iterable[tuple[float | None, Row]]) -> list[tuple[int, str, str]]:
    """Of lines with their retention, those whose oldest workflow is past it: (retention in microseconds, the line). The
    longest overdue first, so that one line whose workflows never stop coming does not hold back the others."""
    late = []
    for keep, (first, second, age) in lines:
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
