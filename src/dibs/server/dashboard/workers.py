"""Workers: who is there, since when, for what; and what each holds until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dibs.model.key import Scope
from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.search import TaskSearch, TaskSummary
from dibs.model.task import State
from dibs.server.api.admin import seen_workers
from dibs.server.dashboard.page import Content, Visit, page

SHOWN = 200
"""Workers on the page, those that are there first."""

HELD = 20
"""Tasks that are shown of each worker, the oldest it holds."""

LINES = 500
ORDER = (WorkerState.ACTIVE, WorkerState.STALE, WorkerState.GONE)
ABOUT = ("host", "pid", "dibs", "python", "concurrency")
"""What is said of a worker before anything else that it tells of itself."""


@dataclass(frozen=True, slots=True)
class Row:
    """A worker as the page shows it: what is known of its first tasks, and how many more there are."""

    info: WorkerInfo
    holds: list[tuple[int, TaskSummary | None]]

    @property
    def more(self) -> int:
        """How many tasks it holds beyond those that are shown."""
        return len(self.info.holds) - len(self.holds)

    @property
    def about(self) -> dict[str, str]:
        """What it tells of itself, as short texts."""
        told = self.info.metadata
        names = [*(name for name in ABOUT if name in told), *sorted(set(told) - {*ABOUT, "held"})]
        return {name: str(told[name])[:200] for name in names[:12]}


@page("GET", "/workers", Scope.READ)
async def workers(visit: Visit) -> Content:
    """Everybody who was heard of: those that are there, then those that fell silent, then those that left."""
    await visit.service.pulse.look_in()
    seen = sorted(await seen_workers(visit), key=lambda info: (ORDER.index(info.state), info.id))
    lines = await _lines(visit) if any(info.holds for info in seen) else {}
    rows = [_row(info, lines) for info in seen[:SHOWN]]
    counts = {state: sum(info.state == state for info in seen) for state in ORDER}
    return visit.render("workers.html", rows=rows, hidden=len(seen[SHOWN:]), counts=counts)


async def _lines(visit: Visit) -> dict[int, TaskSummary]:
    """The newest of the running tasks; of the others the page shows no more than their ids."""
    which = TaskSearch(state=State.CLAIMED, queues=visit.caller.queues, limit=LINES)
    return _by_id((await visit.run(visit.service.store.tasks.search(which))).tasks)


def _by_id(lines: Iterable[TaskSummary]) -> dict[int, TaskSummary]:
    return {line.id: line for line in lines}


def _row(info: WorkerInfo, lines: dict[int, TaskSummary]) -> Row:
    return Row(info, [(task_id, lines.get(task_id)) for task_id in info.holds[:HELD]])


PAGES = [workers]
