"""Search tasks by their properties, newest first.

The cost of one operation must not depend on the number of tasks in the store: an operation reads at most `span` tasks,
and the next operation continues at the cursor. If an index shows that few tasks can match, only these candidates are
read (`_search_ids`); otherwise the next `span` ids are read (`_search_range`), and filters on the time of creation are
turned into bounds of ids first (`_bounds`). Each statement is written for one index: the plan guards in
tests/engines/test_plans.py fail if a database uses another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from dibs.json_values import encode
from dibs.model import search
from dibs.model.checks import check_integer, from_micros
from dibs.model.search import MAX_ID, SEARCH_SPAN, FoundTasks, TaskPage, TaskSearch, TaskSummary
from dibs.model.task import STATES, State, Task
from dibs.store.operation import Mode, Operation, Row, Rows, Statement, Statements, limited
from dibs.store.operations.filters import SEARCH_FILTERS, conditions, filter_params
from dibs.store.operations.rows import add_tasks, decode_tags, moment
from dibs.store.operations.stream_indexes import existing_indexes

CLOCK_TOLERANCE = 3600 * 1_000_000
"""Microseconds by which the times of creation may differ from the order of the ids, because a clock was set back."""

MAX_CANDIDATES = 2000
"""If an index finds up to this number of candidates, the search reads only these, instead of a range of ids."""

_IndexUse = tuple[str, str, str]
"""The index, the condition and the order of the statement `few_tasks`."""

_FINISHED: _IndexUse = (
    "dibs_tasks_finished",
    "state = :state AND finished_at IS NOT NULL",
    "finished_at DESC",
)
_BY_STATE: dict[State, _IndexUse] = {
    State.SCHEDULED: ("dibs_tasks_due", "state = 'scheduled'", "run_at"),
    State.CLAIMED: ("dibs_tasks_leases", "state = 'claimed'", "lease_until"),
    State.COMPLETED: _FINISHED,
    State.FAILED: _FINISHED,
    State.CANCELLED: _FINISHED,
}
"""Blocked tasks have no index of their own: they are found among the open steps (`few_blocked`). For pending tasks see
`_pending_rows`."""

_CLAIMABLE: dict[str | None, _IndexUse] = {
    "queue": ("dibs_tasks_by_queue", "{{claimable}} {{conditions}}", "queue, priority DESC, {{age_in_stream}}"),
    "type": ("dibs_tasks_by_type", "{{claimable}} {{conditions}}", "type, priority DESC, {{age_in_stream}}"),
    None: ("dibs_tasks_by_age", "{{claimable}}", "id"),
}
"""Pending tasks are claimable, parked or in a backlog, each with indexes of their own. These are for claimable tasks,
by the filter that the index begins with. Only the last one exists in every store (see stream_indexes.py)."""

_PARKED: dict[str, tuple[_IndexUse, _IndexUse]] = {
    "queue": (
        ("dibs_tasks_parked", "{{is_parked}} AND type_parked = false AND {{pause_name}} = :queue", "priority DESC, id"),
        ("dibs_tasks_parked", "{{is_parked}} AND type_parked = false", "{{pause_name}}, priority DESC, id"),
    ),
    "type": (
        ("dibs_tasks_parked", "{{is_parked}} AND type_parked = true AND {{pause_name}} = :type", "priority DESC, id"),
        ("dibs_tasks_parked", "{{is_parked}} AND type_parked = true", "{{pause_name}}, priority DESC, id"),
    ),
}
"""Parked tasks by the pause for which they are parked, with and without the filter of its name."""

_IN_BACKLOGS: _IndexUse = (
    "dibs_tasks_backlog",
    "state = 'pending' AND backlog IS NOT NULL",
    "backlog, priority DESC, id",
)

_DEAD: _IndexUse = ("dibs_tasks_dead", "state = 'failed' AND set_aside IS NULL", "finished_at DESC")
_WITH_KEY: tuple[_IndexUse, ...] = (
    ("dibs_tasks_key", "key = :key AND key_scope IS NULL", "key, queue"),
    ("dibs_tasks_scoped_keys", "key = :key AND key_scope IS NOT NULL", "key, queue, key_request"),
)
"""A task is in one of these indexes, whether its key is in force or has ended."""
_CONDITIONS = ("state_of_row", *SEARCH_FILTERS)


_Found = TypeVar("_Found", TaskSummary, Task)
_Result = tuple[list[_Found], int | None, int, bool]
"""The matching tasks, the cursor (None: all tasks have been read), the number of tasks that were read, at most, and
True if the page has ended before its limit because of its content."""


class _Columns(msgspec.Struct, Generic[_Found], frozen=True):
    """Which columns a search returns for each task, and how rows are decoded: all of them, or the first ones. `words`:
    the columns, if they are not those of a summary."""

    decode: Callable[[Rows], list[_Found]]
    words: tuple[tuple[str, str], ...] = ()


class Search:
    """Find tasks by their properties."""

    def search(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[FoundTasks]:
        """Find the matching tasks among the next `span` candidates, newest first, as summaries."""
        check_integer(span, "span", 1, 2**31 - 1)
        return Operation(
            "search",
            lambda: _search(which, span, SUMMARY_COLUMNS),
            mode=Mode.READ,
            decode=lambda found: FoundTasks(*found[:3]),
        )

    def find(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[TaskPage]:
        """Find as `search` does, with whole tasks instead of summaries, of PAGE_CONTENT characters at most."""
        check_integer(span, "span", 1, 2**31 - 1)
        return Operation(
            "find", lambda: _search(which, span, TASK_COLUMNS), mode=Mode.READ, decode=lambda found: TaskPage(*found)
        )


def _search(which: TaskSearch, span: int, columns: _Columns[_Found]) -> Statements[_Result[_Found]]:
    if which.dead and which.state not in (None, State.FAILED):
        return [], None, 0, False
    given = _params(which)
    ids = yield from _candidates(which, given)
    if ids is None:
        return (yield from _search_range(which, given, span, columns))
    ids = sorted((task_id for task_id in ids if task_id < given["below"]), reverse=True)
    return (yield from _search_ids(which, given, ids[: span + 1], span, columns))


def _search_ids(
    which: TaskSearch, given: Mapping[str, Any], ids: list[int], span: int, columns: _Columns[_Found]
) -> Statements[_Result[_Found]]:
    """Return the matches among the first `span` of these tasks. The limit matters even for few tasks: their params may
    have a gigabyte."""
    words = (conditions(given, _CONDITIONS), *columns.words, *limited(which.limit))
    rows = yield Statement("search_ids", {**given, "ids": ids[:span]}, words=words)
    tasks = columns.decode(rows)
    last_read, cut = ids[span - 1] if len(ids) > span else None, len(tasks) < len(rows)
    cursor = tasks[-1].id if cut or len(tasks) == which.limit else last_read
    return tasks, cursor, len(ids[:span]), cut


def _params(which: TaskSearch) -> dict[str, Any]:
    """Return the parameters of the conditions. `below`: the cursor."""
    return {
        **filter_params(which),
        "state_of_row": State.FAILED.value if which.dead else which.state,
        "below": MAX_ID if which.cursor is None else which.cursor,
        **_text_params(which.text),
    }


def _text_params(text: str | None) -> dict[str, str | None]:
    """Return the parameters of a search for a text: the text, and the text as JSON writes it (`quoted`).

    `part`: a part of the text that the stored error contains as JSON whenever "type: message" of the error contains the
    text. Only such errors are decoded.
    """
    if text is None:
        return {"text": None}
    part = max(text.strip(": ").split(": "), key=len)
    return {"text": text, "quoted": encode(text)[1:-1], "part": encode(part)[1:-1]}


def _candidates(which: TaskSearch, given: Mapping[str, Any]) -> Statements[list[int] | None]:
    """Return the ids of the tasks that can match, if an index shows that there are at most MAX_CANDIDATES; else
    None."""
    if which.id is not None:
        return [which.id]
    if which.state is None and which.key is None and not which.dead:
        return None
    rows = yield from _candidate_rows(which, given)
    return [row[0] for row in rows] if len(rows) <= MAX_CANDIDATES else None


def _candidate_rows(which: TaskSearch, given: Mapping[str, Any]) -> Statements[Rows]:
    state = STATES[which.state] if which.state else State.FAILED
    if which.key is not None:
        always, scoped = _WITH_KEY
        found = yield _few_tasks(always, given)
        return [*found, *(yield _few_tasks(scoped, given))]
    if state is State.BLOCKED:
        return (yield Statement("few_blocked", words=limited(MAX_CANDIDATES + 1)))
    if state is State.PENDING:
        return (yield from _pending_rows(given))
    return (yield _few_tasks(_DEAD if which.dead else _BY_STATE[state], given))


def _pending_rows(given: Mapping[str, Any]) -> Statements[Rows]:
    indexed = yield from _indexed_filters(given)
    claimable = yield _few_tasks(_CLAIMABLE[indexed[0]], given, indexed[0])
    if len(claimable) > MAX_CANDIDATES and len(indexed) > 1:  # the queue has many tasks, but the type may have few
        claimable = yield _few_tasks(_CLAIMABLE[indexed[1]], given, indexed[1])
    found = [*claimable]
    for column, (of_one, of_all) in _PARKED.items():
        found += yield _few_tasks(of_all if given[column] is None else of_one, given)
    found += yield _few_tasks(_IN_BACKLOGS, given)
    return found


def _indexed_filters(given: Mapping[str, Any]) -> Statements[list[str | None]]:
    """The filters for which an index exists; [None] if there are none."""
    columns = [column for column in ("queue", "type") if given[column] is not None]
    existing = (yield from existing_indexes()) if columns else frozenset()
    return [column for column in columns if _CLAIMABLE[column][0] in existing] or [None]


def _few_tasks(index_use: _IndexUse, given: Mapping[str, Any], column: str | None = None) -> Statement:
    """`column`: the first column of the index, if a filter gives its value."""
    words = zip(("index", "condition", "order"), index_use, strict=True)
    filters = conditions(given, () if column is None else (column,))
    return Statement("few_tasks", given, words=(*words, filters, *limited(MAX_CANDIDATES + 1)))


def _search_range(
    which: TaskSearch, given: Mapping[str, Any], span: int, columns: _Columns[_Found]
) -> Statements[_Result[_Found]]:
    """Return the matches among the next `span` tasks. Without filters every task matches, so one page of tasks is
    read."""
    filters = conditions(given, _CONDITIONS)
    if not filters[1]:
        span = which.limit
    above, below = yield from _bounds(given, span)
    [(highest, lowest, read)] = yield Statement("id_range", {"above": above, "below": below}, words=limited(span))
    if read == 0:
        return [], None, 0, False
    id_range = {**given, "highest": highest, "lowest": lowest}
    words = (filters, ("span", f"{2 * span:d}"), *columns.words, *limited(which.limit))
    rows = yield Statement("search_range", id_range, words=words)
    tasks = columns.decode(rows)
    cut = len(tasks) < len(rows)
    last_read = tasks[-1].id if cut or len(tasks) == which.limit else lowest
    return tasks, None if read < span and last_read == lowest else last_read, read, cut


def _bounds(given: Mapping[str, Any], span: int) -> Statements[tuple[int, int]]:
    """Return an id below and an id above the tasks that were created in the requested time; each is at most `span` ids
    away.

    Ids grow with the time of creation, within CLOCK_TOLERANCE, so a binary search passes over a million tasks of other
    days with a few reads.
    """
    since, until, below = given["since"], given["until"], given["below"]
    if since is None and until is None:
        return -1, below
    newest = yield from _task_at_or_below(below - 1)
    if newest is None:
        return -1, below
    above, below = -1, min(below, newest[0] + 1)
    if until is not None and newest[1] >= until + CLOCK_TOLERANCE:
        _, below = yield from _first_created_at(above, newest[0], until + CLOCK_TOLERANCE, span)
    if since is not None:
        above, _ = yield from _first_created_at(above, below, since - CLOCK_TOLERANCE, span)
    return above, below


def _first_created_at(low: int, high: int, time: int, span: int) -> Statements[tuple[int, int]]:
    """Find the first task created at `time` or later, by a binary search between the ids `low` and `high`.

    Returns two ids that are at most `span` apart. The tasks up to the lower id were created before `time`; the task
    with the higher id was not. An id that is still a given bound says nothing about its task.
    """
    while high - low > span:
        middle = (low + high) // 2
        task = yield from _task_at_or_below(middle)
        if task is None or task[1] < time:
            low = middle
        else:
            high = task[0]
    return low, high


def _task_at_or_below(task_id: int) -> Statements[Row | None]:
    """Return (id, created_at) of the task with this id, or else with the next lower id."""
    rows = yield Statement("at_or_below", {"id": task_id})
    return rows[0] if rows else None


def _read_summary(row: Row) -> TaskSummary:
    """Decode a row of the columns in the SQL fragment `task_summary`."""
    (task_id, type_name, state, queue, priority, attempts, max_attempts, worker_id, created_at, run_at, claimed_at,
     lease_until, finished_at, progress, workflow_id, key, cancel_requested, params, error, head,
     tags) = row  # fmt: skip
    return TaskSummary(
        id=task_id,
        type=type_name,
        state=STATES[state],
        queue=queue,
        priority=priority,
        attempts=attempts,
        max_attempts=max_attempts,
        worker_id=worker_id,
        created_at=from_micros(created_at),
        run_at=from_micros(run_at),
        claimed_at=moment(claimed_at),
        lease_until=moment(lease_until),
        finished_at=moment(finished_at),
        progress=progress,
        workflow_id=workflow_id,
        key=key,
        params=params,
        error=error,
        cancel_requested=bool(cancel_requested),
        error_head=head,
        tags=decode_tags(tags),
    )


def _read_summaries(rows: Rows) -> list[TaskSummary]:
    return [_read_summary(row) for row in rows]


def _read_tasks(rows: Rows) -> list[Task]:
    tasks: list[Task] = []
    add_tasks(tasks, rows, search.PAGE_CONTENT)
    return tasks


SUMMARY_COLUMNS = _Columns(_read_summaries)
TASK_COLUMNS = _Columns(_read_tasks, (("task_summary", "{{task}}"),))
