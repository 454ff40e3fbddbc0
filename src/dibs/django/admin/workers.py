"""The list of workers, and the page of a worker with the tasks that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dibs.client import Dibs
from dibs.django.admin.base import StoreAdmin, paged
from dibs.django.admin.html import Html, badge, link, listed, moment, soft, text
from dibs.django.admin.one_task import value
from dibs.django.admin.parts import ListColumn, ListPage, ObjectPage, PageSection
from dibs.django.models import Task, Worker
from dibs.errors import InvalidValue
from dibs.model.registry import WorkerInfo, WorkerState
from dibs.server.dashboard.texts import pretty

HELD = 100
ORDER = (WorkerState.ACTIVE, WorkerState.STALE, WorkerState.GONE)

_Row = tuple["WorkerAdmin", WorkerInfo]


class WorkerAdmin(StoreAdmin):
    """The workers. A worker that reuses an id is another incarnation; the page of an id has all of them."""

    columns = (
        ListColumn("Worker", lambda row: link(row[0].address(Worker, row[1].id), row[1].id)),
        ListColumn("State", lambda row: badge(row[1].state)),
        ListColumn("Queues", lambda row: _names(row[1].queues_with_bounds if row[1].queues is not None else None)),
        ListColumn("Types", lambda row: _names(row[1].types)),
        ListColumn("Tasks", lambda row: text(len(row[1].holds))),
        ListColumn("Heartbeat", lambda row: moment(row[1].heartbeat_at)),
        ListColumn("Started", lambda row: moment(row[1].started_at)),
    )

    def key_of_row(self, row: _Row) -> str:
        """Return the id of a worker."""
        return row[1].id

    def read_list(self, request: Any, app: Dibs) -> ListPage:
        """Return the workers: active, then stale, then gone."""
        known = sorted(app.workers(), key=lambda info: (ORDER.index(info.state), info.id))
        return paged(request, [(self, info) for info in known])

    def read_object(self, request: Any, app: Dibs, key: str) -> ObjectPage:
        """Return the page of a worker."""
        found = [info for info in app.workers() if info.id == key]
        if not found:
            raise WorkerNotFound(key)
        sections = [self._section(info) for info in sorted(found, key=lambda info: ORDER.index(info.state))]
        return ObjectPage(f"Worker {key}", found[0], sections)

    def _section(self, info: WorkerInfo) -> PageSection:
        held = listed(link(self.address(Task, task_id), task_id) for task_id in info.holds[:HELD])
        facts = [
            ("State", badge(info.state)),
            ("Queues", _names(info.queues_with_bounds if info.queues is not None else None)),
            ("Types", _names(info.types)),
            ("Started", moment(info.started_at)),
            ("Heartbeat", moment(info.heartbeat_at)),
            ("Stopped", moment(info.stopped_at)),
            ("Holds tasks", held),
            ("Metadata", value(pretty(info.metadata))),
        ]
        return PageSection(f"Worker {info.incarnation}".strip(), facts=facts)


class WorkerNotFound(InvalidValue, LookupError):
    """No worker with this id is registered."""

    code = "worker_not_found"

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            f"There is no worker {worker_id!r}.", hint="Workers that have stopped are deleted after their retention."
        )


def _names(names: Sequence[str] | None) -> Html:
    return soft("all") if names is None else listed(text(name, 60) for name in names[:20])
