"""The workers page: state, heartbeat and queues of each worker, and the tasks that it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dibs.model.key import Scope
from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.search import TaskSearch, TaskSummary
from dibs.model.task import State
from dibs.server.api.admin import visible_workers
from dibs.server.dashboard.page import PageRequest, PageResult, page

SHOWN = 200
"""Maximum number of workers on the page, active ones first."""

MAX_HELD = 20
"""Maximum number of tasks shown for each worker, oldest first."""

MAX_SUMMARIES = 500
ORDER = (WorkerState.ACTIVE, WorkerState.STALE, WorkerState.GONE)
FIRST_METADATA = ("host", "pid", "dibs", "python", "concurrency")
"""The metadata of a worker that is shown first."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A row of the table: a worker, and the summaries of its first tasks."""

    info: WorkerInfo
    holds: list[tuple[int, TaskSummary | None]]

    @property
    def more(self) -> int:
        """The number of held tasks that are not shown."""
        return len(self.info.holds) - len(self.holds)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the worker, as short texts."""
        values = self.info.metadata
        names = [*(name for name in FIRST_METADATA if name in values), *sorted(set(values) - {*FIRST_METADATA, "held"})]
        return {name: str(values[name])[:200] for name in names[:12]}


@page("GET", "/workers", Scope.READ)
async def workers(request: PageRequest) -> PageResult:
    """Render all known workers: active, then stale, then gone."""
    await request.service.live_stats.for_page()
    known = sorted(await visible_workers(request), key=lambda info: (ORDER.index(info.state), info.id))
    summaries = await _summaries(request) if any(info.holds for info in known) else {}
    rows = [_row(info, summaries) for info in known[:SHOWN]]
    counts = {state: sum(info.state == state for info in known) for state in ORDER}
    return request.render("workers.html", rows=rows, hidden=len(known[SHOWN:]), counts=counts)


async def _summaries(request: PageRequest) -> dict[int, TaskSummary]:
    """Return summaries of the newest claimed tasks; of other tasks the page shows only the id."""
    criteria = TaskSearch(state=State.CLAIMED, queues=request.caller.queues, limit=MAX_SUMMARIES)
    return _by_id((await request.run(request.service.store.tasks.search(criteria))).tasks)


def _by_id(summaries: Iterable[TaskSummary]) -> dict[int, TaskSummary]:
    return {summary.id: summary for summary in summaries}


def _row(info: WorkerInfo, summaries: dict[int, TaskSummary]) -> WorkerRow:
    return WorkerRow(info, [(task_id, summaries.get(task_id)) for task_id in info.holds[:MAX_HELD]])


PAGES = [workers]
