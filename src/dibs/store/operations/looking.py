"""Look: one task, many tasks, their history, the depth of queues, and why a task does not run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from dibs.codec import decode
from dibs.errors import TaskNotFound
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.explanation import Explanation, Reason
from dibs.model.history import HistoryEntry, RecentHistory, StoreEvent
from dibs.model.registry import QueueInfo, WorkerState
from dibs.model.search import TaskFilter
from dibs.model.statistics import Percentiles, Stats
from dibs.model.task import STATES, Event, SetAside, State, Task
from dibs.model.workflow import StepKind
from dibs.store.operation import Operation, Row, Statement, Steps, limited
from dibs.store.operations.filters import conditions
from dibs.store.operations.registering import read_workers
from dibs.store.operations.rows import moment, read_task, read_workflow, seconds

PARENTS_NAMED = 10
"""Parents that an explanation names at most."""

RECENT = 1000
FURTHER = 10
"""How many times as many completed tasks are looked at where only those of some queues are wanted."""

FEW = 20

RECENT_ENTRIES = 20
"""Entries of the history among which the end of a cancelled step is looked for."""


class Looking:
    """Reading, never changing."""

    def get(self, task_id: int) -> Operation[Task | None]:
        """The task, or None."""
        return Operation("get", lambda: _get(task_id), writes=False, quick=True)

    def list_tasks(self, which: TaskFilter) -> Operation[list[Task]]:
        """A page of tasks by state, type and queue, newest first; `find` has the other filters."""
        return Operation("list", lambda: _list(which), writes=False)

    def history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """Everything that happened to the task, in order; it outlives the task itself."""
        return Operation("history", lambda: _history(Statement("history", {"id": task_id})), writes=False)

    def latest_history(self, task_id: int, limit: int) -> Operation[RecentHistory]:
        """The newest `limit` things that happened to the task, in order, and how many there were."""
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("latest_history", lambda: _latest(task_id, limit), writes=False)

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks in order, page by page."""
        statement = Statement("history_after", {"after": entry_id}, words=limited(limit))
        return Operation("history_after", lambda: _history(statement), writes=False)

    def events_after(
        self, entry_id: int, limit: int, queues: Sequence[str] | None = None
    ) -> Operation[list[StoreEvent]]:
        """The history of all tasks (or of those in these queues) in order, with their queues and types."""
        check_names(queues, "queues", "The queue")
        given = {"after": entry_id, "queues": queues if queues is None else list(queues)}
        statement = Statement("events_after", given, words=(_of_queues(queues), *limited(limit)))
        return Operation("events_after", lambda: _events(statement), writes=False)

    def last_entry(self) -> Operation[int]:
        """The id of the newest entry of the history, 0 where there is none."""
        return Operation("last_entry", _last_entry, writes=False)

    def queues_of(self, task_ids: Sequence[int]) -> Operation[dict[int, str]]:
        """The queue of each of these tasks that exists."""
        return Operation("queues_of", lambda: _queues_of(list(task_ids)), writes=False, quick=len(task_ids) <= FEW)

    def queues(self) -> Operation[list[QueueInfo]]:
        """Every queue that holds a task or has been paused."""
        return Operation("queues", _queues, writes=False)

    def stats(self, queues: Sequence[str] | None = None) -> Operation[Stats]:
        """Depth, age, throughput and latency, of all queues or of these."""
        check_names(queues, "queues", "The queue")
        return Operation("stats", lambda: _stats(queues), writes=False)

    def explain(self, task_id: int, only: Sequence[str] | None = None) -> Operation[Explanation]:
        """Why is this task not running? In words that name no steps but those in the queues `only`, if given."""
        return Operation("explain", lambda: _explain(task_id, only), writes=False)


def _get(task_id: int) -> Steps[Task | None]:
    rows = yield Statement("get", {"ids": [task_id]})
    return read_task(rows[0]) if rows else None


def _list(which: TaskFilter) -> Steps[list[Task]]:
    queues = None if which.queues is None else list(which.queues)
    state, dead = (State.FAILED.value, True) if which.dead else (which.state, None)
    given = {**msgspec.structs.asdict(which), "queues": queues, "state": state, "dead": dead}
    names = ("state", "dead", "type", "queue", "queues", "error", "cursor")
    words = (conditions(given, names), *limited(which.limit))
    rows = yield Statement("list", given, words=words)
    return [read_task(row) for row in rows]


def _history(statement: Statement) -> Steps[list[HistoryEntry]]:
    rows = yield statement
    return [_read_entry(row) for row in rows]


def _latest(task_id: int, limit: int) -> Steps[RecentHistory]:
    rows = yield Statement("latest_history", {"id": task_id}, words=limited(limit))
    return RecentHistory([_read_entry(row[:-1]) for row in reversed(rows)], rows[0][-1] if rows else 0)


def _read_entry(row: Row) -> HistoryEntry:
    entry_id, task_id, event, from_state, to_state, worker_id, token, by, at, detail = row
    return HistoryEntry(
        entry_id,
        task_id,
        Event(event),
        None if from_state is None else STATES[from_state],
        STATES[to_state],
        worker_id,
        token,
        by,
        from_micros(at),
        None if detail is None else decode(detail),
    )


def _events(statement: Statement) -> Steps[list[StoreEvent]]:
    rows = yield statement
    return [StoreEvent(_read_entry(row[:-2]), *row[-2:]) for row in rows]


def _last_entry() -> Steps[int]:
    [(newest,)] = yield Statement("last_entry")
    return int(newest)


def _queues_of(task_ids: list[int]) -> Steps[dict[int, str]]:
    return dict((yield Statement("queues_of", {"ids": task_ids})))


def _of_queues(queues: Sequence[str] | None) -> tuple[str, str]:
    return conditions({"queues": queues}, ("queues",))


def _queues() -> Steps[list[QueueInfo]]:
    paused = {row[0]: row[1] for row in (yield Statement("queues"))}
    depth: dict[str, Counter[str]] = {name: Counter() for name in paused}
    for queue, _, state, count, *_ in (yield Statement("counts")):
        depth.setdefault(queue, Counter())[state] += count
    return [
        QueueInfo(name, paused.get(name) is not None, moment(paused.get(name)), dict(depth[name]))
        for name in sorted(depth)
    ]


def _stats(queues: Sequence[str] | None) -> Steps[Stats]:
    given, only = {"queues": queues if queues is None else list(queues)}, _of_queues(queues)
    counts = [row for row in (yield Statement("counts")) if queues is None or row[0] in queues]
    minute = yield Statement("throughput", {**given, "window": 60_000_000}, words=(only,))
    hour = yield Statement("throughput", {**given, "window": 3_600_000_000}, words=(only,))
    finished = yield recent(queues, RECENT)
    ages = [row[4] for row in counts if row[4] is not None]
    return Stats(
        depth=_sum(counts, lambda row: row[2]),
        by_queue=_sum_nested(counts, 0),
        by_type=_sum_nested(counts, 1),
        oldest_pending_age=seconds(max(ages)) if ages else None,
        finished_last_minute={row[0]: row[1] for row in minute},
        finished_last_hour={row[0]: row[1] for row in hour},
        wait=percentiles([row[0] for row in finished]),
        run=percentiles([row[1] for row in finished]),
        dead_letter=sum(row[3] - row[5] for row in counts if row[2] == State.FAILED),
    )


def _sum(counts: list[Row], key: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for row in counts:
        total[key(row)] += row[3]
    return dict(total)


def _sum_nested(counts: list[Row], column: int) -> dict[str, dict[str, int]]:
    names = sorted({row[column] for row in counts})
    return {name: _sum([row for row in counts if row[column] == name], lambda row: row[2]) for name in names}


def recent(queues: Sequence[str] | None, limit: int) -> Statement:
    """How long the last completed tasks waited and ran; of these queues among the last of all, never further back."""
    given = {"queues": None if queues is None else list(queues)}
    reach = limit if queues is None else FURTHER * limit
    return Statement("recent", given, words=(_of_queues(queues), ("reach", f"{reach:d}"), *limited(limit)))


def percentiles(values: list[int | None]) -> Percentiles:
    """Of those microseconds that are known, in seconds."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Percentiles()
    p50, p95, p99 = (known[min(len(known) - 1, len(known) * percent // 100)] / 1e6 for percent in (50, 95, 99))
    return Percentiles(p50, p95, p99)


def _explain(task_id: int, only: Sequence[str] | None) -> Steps[Explanation]:
    task = yield from _get(task_id)
    if task is None:
        raise TaskNotFound(task_id)
    if task.state is State.PENDING:
        reasons = yield from _reasons_pending(task)
    elif task.state is State.SCHEDULED:
        reasons = [(yield from _reason_scheduled(task))]
    elif task.state is State.BLOCKED:
        reasons = yield from _reasons_blocked(task, only)
    elif task.state is State.CANCELLED and task.workflow_id is not None:
        reasons = [(yield from _reason_cancelled_step(task, task.workflow_id, only))]
    else:
        reasons = [_reason(task)]
    return Explanation(task.id, task.state, reasons)


def _reason_scheduled(task: Task) -> Steps[Reason]:
    [[now]] = yield Statement("clock")
    due_at = f"{task.run_at:%Y-%m-%d %H:%M:%S} UTC"
    after = f" (attempt {task.attempts} of {task.max_attempts} failed)" if task.attempts else ""
    if task.run_at <= from_micros(now):
        return Reason("due", f"It is due since {due_at}{after}: the next claim or upkeep makes it pending.")
    return Reason("not_due", f"It is not due until {due_at}{after}.")


def _reason(task: Task) -> Reason:
    if task.state is State.CLAIMED:
        asked = " It has been asked to stop." if task.cancel_requested else ""
        if task.lease_until is None:  # a sub-workflow has no lease: it ends with its steps
            return Reason("claimed", f"It is running: it stands for a workflow ({task.worker_id}).{asked}")
        until = f"{task.lease_until:%Y-%m-%d %H:%M:%S} UTC"
        return Reason("claimed", f"It is running: claimed by {task.worker_id} until {until}.{asked}")
    if task.state is State.FAILED:
        cause = f": {task.error.type}: {task.error.message}" if task.error else ""
        after = _AFTER_FAILURE[task.set_aside]
        if task.error and task.error.permanent:
            return Reason("failed", f"{_permanent(task)}{cause}. {after}")
        return Reason("failed", f"It failed after {_attempts(task.attempts)}{cause}. {after}")
    return Reason(task.state.value, f"It is {task.state} since {task.finished_at:%Y-%m-%d %H:%M:%S} UTC.")


_AFTER_FAILURE = {
    None: "Retry it to run it again.",
    SetAside.IGNORED: "Its workflow ignored the failure and went on without it.",
    SetAside.DISCARDED: "It was discarded from the dead letter. Retry it to run it again.",
}


def _reason_cancelled_step(task: Task, workflow_id: int, only: Sequence[str] | None) -> Steps[Reason]:
    """A step that its workflow cancelled says why the workflow stopped."""
    past = yield from _latest(task.id, RECENT_ENTRIES)
    ends = [entry for entry in past.entries if entry.event is Event.CANCELLED]
    if not ends or (ends[-1].detail or {}).get("by") != "workflow":
        return _reason(task)
    cause = yield from _why_stopped(workflow_id, only)
    if cause is None:
        return _reason(task)
    return Reason("cancelled", f"It was cancelled at {task.finished_at:%Y-%m-%d %H:%M:%S} UTC because {cause}.")


def _why_stopped(workflow_id: int, only: Sequence[str] | None) -> Steps[str | None]:
    """Why the workflow begins nothing more; a part of another workflow stops with that one."""
    rows = yield Statement("get_workflow", {"id": workflow_id})
    workflow = read_workflow(rows[0]) if rows else None
    if workflow is None or workflow.stopping is None:
        return None
    if workflow.stopping == "failed":
        return (yield from _first_failure(workflow_id, only))
    if workflow.stopping == "deadline":
        return f"workflow {workflow_id} passed its deadline"
    if workflow.step_of is not None:
        around = yield from _get(workflow.step_of)
        if around is not None and around.workflow_id is not None:
            return (yield from _why_stopped(around.workflow_id, only))
    return f"workflow {workflow_id} was cancelled"


def _first_failure(workflow_id: int, only: Sequence[str] | None) -> Steps[str]:
    found = yield Statement("first_failure", {"id": workflow_id})
    step = (yield from _get(found[0][1])) if found else None
    if step is None or (only is not None and step.queue not in only):
        return f"another step of workflow {workflow_id} failed"
    error = f": {step.error.type}: {step.error.message}" if step.error and step.state is State.FAILED else ""
    how = "failed" if step.state is State.FAILED else "was cancelled"
    return f"step {found[0][0]!r} (task {step.id}) of workflow {workflow_id} {how}{error}"


def _permanent(task: Task) -> str:
    """An attempt that failed permanently is the last one, whatever was left."""
    return f"It failed permanently in attempt {task.attempts} of {task.max_attempts}, so no further attempt was made"


def _attempts(count: int) -> str:
    return f"{count} attempt" if count == 1 else f"{count} attempts"


def _reasons_blocked(task: Task, only: Sequence[str] | None) -> Steps[list[Reason]]:
    waits = yield Statement("waits_for", {"id": task.id}, words=limited(PARENTS_NAMED))
    if waits:
        return list(dict.fromkeys(_reason_blocked(parent, only) for parent in waits))
    step = yield Statement("step", {"ids": [task.id]})
    if step and step[0][3] == StepKind.FINALIZER:
        return [Reason("blocked", f"It is the finalizer of workflow {step[0][1]}: it runs when all steps are done.")]
    return [Reason("blocked", f"It is a step of workflow {task.workflow_id}, which has not begun.")]


def _reason_blocked(row: Row, only: Sequence[str] | None) -> Reason:
    name, parent, state, queue = row
    if only is not None and queue not in only:
        return Reason("blocked", "It waits for another step.")
    return Reason("blocked", f"It waits for step {name!r} (task {parent}), which is {state}.")


def _reasons_pending(task: Task) -> Steps[list[Reason]]:
    reasons = []
    paused = {row[0]: row[1] for row in (yield Statement("queues"))}.get(task.queue)
    if paused is not None:
        since = f"{from_micros(paused):%Y-%m-%d %H:%M:%S} UTC"
        reasons.append(Reason("queue_paused", f"Its queue {task.queue!r} is paused since {since}."))
    workers = yield from read_workers()
    serving = [worker for worker in workers if worker.state is WorkerState.ACTIVE and worker.serves(task)]
    if not serving:
        message = f"No live worker serves queue {task.queue!r} and type {task.type!r}."
        reasons.append(Reason("no_worker", message))
    return reasons or [Reason("ready", f"Nothing holds it back: {len(serving)} live worker(s) will come to it.")]
