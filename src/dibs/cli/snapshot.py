"""A snapshot of the whole store, for `dibs top`."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dibs.cli import text
from dibs.client import Dibs
from dibs.model.registry import QueueInfo, WorkerInfo, WorkerState
from dibs.model.statistics import Stats
from dibs.model.task import FINAL, Task
from dibs.wire import admin, tasks
from dibs.wire.fields import to_text

CLAIMED, FAILURES = 50, 10
MINUTE = 60.0
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class TopSnapshot:
    """The store at one moment."""

    url: str
    at: datetime
    took: float
    stats: Stats
    queues: list[QueueInfo]
    workers: list[WorkerInfo]
    claimed: list[Task]
    failures: list[Task]

    @property
    def per_second(self) -> float:
        """Tasks finished per second, over the last minute."""
        return sum(self.stats.finished_last_minute.values()) / MINUTE


def take_snapshot(client: Dibs) -> TopSnapshot:
    """Read the statistics, queues, workers, claimed tasks and newest failures."""
    began = time.monotonic()
    stats, queues = client.stats(), client.queues()
    workers = [worker for worker in client.workers() if worker.state is not WorkerState.GONE]
    claimed = client.list_tasks(state="claimed", limit=CLAIMED)
    failures = client.list_tasks(state="failed", limit=FAILURES)
    took = time.monotonic() - began
    return TopSnapshot(
        url=text.public_url(client.url),
        at=datetime.now(UTC),
        took=took,
        stats=stats,
        queues=queues,
        workers=workers,
        claimed=claimed,
        failures=failures,
    )


def to_json(snapshot: TopSnapshot) -> dict[str, Any]:
    """Return the snapshot for --json."""
    return {
        "url": snapshot.url,
        "at": to_text(snapshot.at),
        "stats": admin.Stats.from_model(snapshot.stats),
        "per_second": snapshot.per_second,
        "queues": [admin.Queue.from_model(queue) for queue in snapshot.queues],
        "workers": [admin.Worker.from_model(worker) for worker in snapshot.workers],
        "claimed": [tasks.Task.from_model(task) for task in snapshot.claimed],
        "failures": [tasks.Task.from_model(task) for task in snapshot.failures],
    }


class Throughput:
    """Tasks finished per second, from snapshot to snapshot, over the last minute.

    Calculated from the number of tasks in final states. Pruning and retries reduce that number, which counts as zero.
    """

    def __init__(self) -> None:
        self._rates: deque[tuple[float, float]] = deque()
        self._last: tuple[float, int] | None = None

    def add(self, snapshot: TopSnapshot) -> None:
        """Add the tasks that finished since the previous snapshot."""
        now, ended = time.monotonic(), sum(snapshot.stats.depth.get(state, 0) for state in FINAL)
        if self._last is not None:
            since, before = self._last
            self._rates.append((now, max(0, ended - before) / max(now - since, 0.001)))
        self._last = now, ended
        while self._rates and self._rates[0][0] < now - MINUTE:
            self._rates.popleft()

    def sparkline(self) -> str:
        """Return the last minute as a line of small bars."""
        rates = [rate for _, rate in self._rates]
        most = max(rates, default=0)
        return "".join(BARS[min(7, int(rate / most * 8))] if most else BARS[0] for rate in rates)
