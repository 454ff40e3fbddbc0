"""Read the history: of one task, or of all tasks page by page."""

from __future__ import annotations

from collections.abc import Sequence

from dibs.json_values import decode
from dibs.model.checks import check_integer, check_names, from_micros
from dibs.model.history import EventPage, HistoryEntry, RecentHistory, StoreEvent
from dibs.model.task import STATES, Event
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.filters import conditions


class History:
    """Read the append-only record of the changes of tasks."""

    def task_history(self, task_id: int) -> Operation[list[HistoryEntry]]:
        """All entries about the task, in order. They can outlive the task."""
        return Operation("task_history", lambda: _history(Statement("history", {"id": task_id})), mode=Mode.READ)

    def latest_history(self, task_id: int, limit: int) -> Operation[RecentHistory]:
        """The newest `limit` entries about the task, in order, and the number of all its entries."""
        check_integer(limit, "limit", 1, 2**31 - 1)
        return Operation("latest_history", lambda: read_latest(task_id, limit), mode=Mode.READ)

    def history_after(self, entry_id: int, limit: int) -> Operation[list[HistoryEntry]]:
        """The history of all tasks in order, page by page."""
        statement = Statement("history_after", {"after": entry_id}, words=limited(limit))
        return Operation("history_after", lambda: _history(statement), mode=Mode.READ)

    def events_page(self, entry_id: int, limit: int, queues: Sequence[str] | None = None) -> Operation[EventPage]:
        """The history of all tasks, or of the tasks in these queues, in order, with their queues and types."""
        check_names(queues, "queues", "The queue")
        given = {"after": entry_id, "queues": queues if queues is None else list(queues)}
        statement = Statement(
            "events_after", given, words=(conditions({"queues": queues}, ("queues",)), *limited(limit))
        )
        return Operation("events_page", lambda: _events(statement), mode=Mode.READ)

    def last_entry(self) -> Operation[int]:
        """The id of the newest entry of the history, 0 where there is none."""
        return Operation("last_entry", _last_entry, mode=Mode.READ)

    def pruned_to(self) -> Operation[int]:
        """The id of the newest entry that was deleted by its retention, 0 where none was."""
        return Operation("pruned_to", _pruned_to, mode=Mode.READ)

    def history_writers(self) -> Operation[list[str]]:
        """The open transactions that have written to the history, or are about to: their entries are not visible."""
        return Operation("history_writers", _writers, mode=Mode.READ)


def _history(statement: Statement) -> Statements[list[HistoryEntry]]:
    rows = yield statement
    return [_read_entry(row) for row in rows]


def read_latest(task_id: int, limit: int) -> Statements[RecentHistory]:
    """The statements of `latest_history`."""
    rows = yield Statement("latest_history", {"id": task_id}, words=limited(limit))
    return RecentHistory([_read_entry(row[:-1]) for row in reversed(rows)], rows[0][-1] if rows else 0)


def _read_entry(row: Row) -> HistoryEntry:
    entry_id, task_id, event, from_state, to_state, worker_id, token, by, at, detail = row
    return HistoryEntry(
        id=entry_id,
        task_id=task_id,
        event=Event(event),
        from_state=None if from_state is None else STATES[from_state],
        to_state=STATES[to_state],
        worker_id=worker_id,
        token=token,
        by=by,
        at=from_micros(at),
        detail=None if detail is None else decode(detail),
    )


def _events(statement: Statement) -> Statements[EventPage]:
    rows = yield statement
    pruned_to = yield from _pruned_to()  # after the events, so that it covers what was missing from them
    return EventPage([StoreEvent(_read_entry(row[:-2]), *row[-2:]) for row in rows], pruned_to)


def _pruned_to() -> Statements[int]:
    rows = yield Statement("pruned_to")
    return int(rows[0][0]) if rows else 0


def _writers() -> Statements[list[str]]:
    return [row[0] for row in (yield Statement("history_writers"))]


def _last_entry() -> Statements[int]:
    [(newest,)] = yield Statement("last_entry")
    return int(newest)
