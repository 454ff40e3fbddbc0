"""Search tasks by their properties.

One operation reads a limited number of tasks, however many there are; the next operation continues at the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from dibs.codec import encode
from dibs.model.checks import check_integer, from_micros
from dibs.model.search import MAX_ID, SEARCH_SPAN, FoundTasks, TaskPage, TaskSearch, TaskSummary
from dibs.model.task import STATES, State, Task
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.filters import SEARCH_FILTERS, conditions, filter_params
from dibs.store.operations.rows import decode_tags, moment, read_task

SLACK = 3600 * 1_000_000
"""Microseconds by which tasks may have been created out of the order of their ids, because a clock was set back."""

FEW = 2000
"""If an index finds up to this number of candidates, only these are searched, instead of all tasks."""

_FINISHED = (
    "dibs_tasks_finished",
    "state IN ('completed', 'failed', 'cancelled') AND state = :state",
    "finished_at DESC",
)
_FEW = {
    State.PENDING: ("dibs_tasks_by_age", "state = 'pending' {{conditions}}", "queue, type, attempts_left, id"),
    State.SCHEDULED: ("dibs_tasks_due", "state = 'scheduled'", "run_at"),
    State.CLAIMED: ("dibs_tasks_leases", "state = 'claimed'", "lease_until"),
    State.COMPLETED: _FINISHED,
    State.FAILED: _FINISHED,
    State.CANCELLED: _FINISHED,
}
_FEW_DEAD = ("dibs_tasks_dead", "state = 'failed' AND set_aside IS NULL", "finished_at DESC")
_FEW_WITH_KEY = ("dibs_tasks_key", "key = :key", "key, queue")
"""Index, condition and order of `few_tasks`. Blocked tasks are found among the open steps (`few_blocked`)."""
_CONDITIONS = ("state_of_row", *SEARCH_FILTERS)


_Each = TypeVar("_Each", TaskSummary, Task)
_Result = tuple[list[_Each], int | None, int]


class _Form(msgspec.Struct, Generic[_Each], frozen=True):
    """What a search reads of each task that it finds. `words`: the columns, if they are not those of a summary."""

    read: Callable[[Row], _Each]
    words: tuple[tuple[str, str], ...] = ()


class Search:
    """Find tasks by their properties."""

    def search(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[FoundTasks]:
        """The newest matching tasks, as summaries, among the next `span` candidates of an index, else of all tasks."""
        check_integer(span, "span", 1, 2**31 - 1)
        return Operation(
            "search", lambda: _search(which, span, SUMMARIES), mode=Mode.READ, decode=lambda found: FoundTasks(*found)
        )

    def find(self, which: TaskSearch, span: int = SEARCH_SPAN) -> Operation[TaskPage]:
        """As `search`, with whole tasks instead of summaries."""
        check_integer(span, "span", 1, 2**31 - 1)
        return Operation(
            "find", lambda: _search(which, span, TASKS), mode=Mode.READ, decode=lambda found: TaskPage(*found)
        )


def _search(which: TaskSearch, span: int, form: _Form[_Each]) -> Statements[_Result[_Each]]:
    if which.dead and which.state not in (None, State.FAILED):
        return [], None, 0
    given = _given(which)
    ids = yield from _candidates(which, given)
    if ids is None:
        return (yield from _search_range(which, given, span, form))
    ids = sorted((task_id for task_id in ids if task_id < given["below"]), reverse=True)
    return (yield from _search_ids(which, given, ids[: span + 1], span, form))


def _search_ids(
    which: TaskSearch, given: Mapping[str, Any], ids: list[int], span: int, form: _Form[_Each]
) -> Statements[_Result[_Each]]:
    """The matches among the first `span` of these tasks. Also a few tasks can have a gigabyte of params."""
    words = (conditions(given, _CONDITIONS), *form.words, *limited(which.limit))
    rows = yield Statement("search_ids", {**given, "ids": ids[:span]}, words=words)
    tasks = [form.read(row) for row in rows]
    reached = ids[span - 1] if len(ids) > span else None
    return tasks, tasks[-1].id if len(tasks) == which.limit else reached, len(ids[:span])


def _given(which: TaskSearch) -> dict[str, Any]:
    return {
        **filter_params(which),
        "state_of_row": State.FAILED.value if which.dead else which.state,
        "below": MAX_ID if which.cursor is None else which.cursor,
        **_texts(which.text),
    }


def _texts(text: str | None) -> dict[str, str | None]:
    """The text as it is and as JSON writes it, and the longest part of it that the JSON of an error must contain if its
    "type: message" contains the text."""
    if text is None:
        return {"text": None}
    part = max(text.strip(": ").split(": "), key=len)
    return {"text": text, "quoted": encode(text)[1:-1], "part": encode(part)[1:-1]}


def _candidates(which: TaskSearch, given: Mapping[str, Any]) -> Statements[list[int] | None]:
    """The ids of the tasks that can match, if an index shows that they are few; else None."""
    if which.id is not None:
        return [which.id]
    if which.state is None and which.key is None and not which.dead:
        return None
    rows = yield _few(which, given)
    return [row[0] for row in rows] if len(rows) <= FEW else None


def _few(which: TaskSearch, given: Mapping[str, Any]) -> Statement:
    state = STATES[which.state] if which.state else State.FAILED
    if which.key is None and state is State.BLOCKED:
        return Statement("few_blocked", words=limited(FEW + 1))
    few = _FEW_WITH_KEY if which.key is not None else _FEW_DEAD if which.dead else _FEW[state]
    words = zip(("index", "condition", "order"), few, strict=True)
    return Statement("few_tasks", given, words=(*words, _index_conditions(given), *limited(FEW + 1)))


def _index_conditions(given: Mapping[str, Any]) -> tuple[str, str]:
    """The conditions on the first columns of the index of pending tasks."""
    if given["queue"] is None:
        return conditions({}, ())
    return conditions(given, ("queue", "type"))


def _search_range(
    which: TaskSearch, given: Mapping[str, Any], span: int, form: _Form[_Each]
) -> Statements[_Result[_Each]]:
    """The matches among the next `span` tasks. Without filters all tasks match, and a page of them is enough."""
    filters = conditions(given, _CONDITIONS)
    if not filters[1]:
        span = which.limit
    above, below = yield from _bounds(given, span)
    [(highest, lowest, looked)] = yield Statement("id_range", {"above": above, "below": below}, words=limited(span))
    if looked == 0:
        return [], None, 0
    id_range = {**given, "highest": highest, "lowest": lowest}
    words = (filters, ("span", f"{2 * span:d}"), *form.words, *limited(which.limit))
    rows = yield Statement("search_range", id_range, words=words)
    tasks = [form.read(row) for row in rows]
    reached = tasks[-1].id if len(tasks) == which.limit else lowest
    return tasks, None if looked < span and reached == lowest else reached, looked


def _bounds(given: Mapping[str, Any], span: int) -> Statements[tuple[int, int]]:
    """The bounds of the ids of tasks that were created in the requested time, to within `span` ids. Ids grow with time,
    except for `SLACK`, so a binary search skips a million tasks of other days with a few reads."""
    since, until, below = given["since"], given["until"], given["below"]
    if since is None and until is None:
        return -1, below
    newest = yield from _probe(below - 1)
    if newest is None:
        return -1, below
    above, below = -1, min(below, newest[0] + 1)
    if until is not None and newest[1] >= until + SLACK:
        _, below = yield from _first_at(above, newest[0], until + SLACK, span)
    if since is not None:
        above, _ = yield from _first_at(above, below, since - SLACK, span)
    return above, below


def _first_at(low: int, high: int, time: int, span: int) -> Statements[tuple[int, int]]:
    """Binary search between `low` and `high` for the first task created at `time` or later. Returns two ids, at most
    `span` apart: tasks at or below the lower id are older, the task with the higher id is not, unless the ids are the
    given bounds."""
    while high - low > span:
        middle = (low + high) // 2
        task = yield from _probe(middle)
        if task is None or task[1] < time:
            low = middle
        else:
            high = task[0]
    return low, high


def _probe(task_id: int) -> Statements[Row | None]:
    """(id, created_at) of the task with this id, or of the next lower id."""
    rows = yield Statement("at_or_below", {"id": task_id})
    return rows[0] if rows else None


def _read_summary(row: Row) -> TaskSummary:
    """The summary in a row of the `{{task_summary}}` columns."""
    (task_id, type_name, state, queue, priority, attempts, max_attempts, worker_id, created_at, run_at, claimed_at,
     lease_until, finished_at, progress, workflow_id, key, cancel_requested, params, error, head,
     tags) = row  # fmt: skip
    return TaskSummary(
        task_id, type_name, STATES[state], queue, priority, attempts, max_attempts, worker_id, from_micros(created_at),
        from_micros(run_at), moment(claimed_at), moment(lease_until), moment(finished_at), progress, workflow_id, key,
        params, error, bool(cancel_requested), head, decode_tags(tags)
    )  # fmt: skip


SUMMARIES = _Form(_read_summary)
TASKS = _Form(read_task, (("task_summary", "{{task}}"),))
