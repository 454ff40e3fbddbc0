"""One look at the whole store, for `dibs top`."""

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

RUNNING, FAILURES = 50, 10
MINUTE = 60.0
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Snapshot:
    """The store at one moment."""

    url: str
    at: datetime
    took: float
    stats: Stats
    queues: list[QueueInfo]
    workers: list[WorkerInfo]
    running: list[Task]
    failures: list[Task]

    @property
    def per_second(self) -> float:
        """Tasks that ended each second, over the last minute."""
        return sum(self.stats.finished_last_minute.values()) / MINUTE


def look(client: Dibs) -> Snapshot:
    """Look at everything once."""
    began = time.monotonic()
    stats, queues = client.stats(), client.queues()
    workers = [worker for worker in client.workers() if worker.state is not WorkerState.GONE]
    running = client.list_tasks(state="claimed", limit=RUNNING)
    failures = client.list_tasks(state="failed", limit=FAILURES)
    took = time.monotonic() - began
    return Snapshot(text.public_url(client.url), datetime.now(UTC), took, stats, queues, workers, running, failures)


def shaped(seen: Snapshot) -> dict[str, Any]:
    """The snapshot for scripts."""
    return {
        "url": seen.url,
        "at": to_text(seen.at),
        "stats": admin.Stats.from_model(seen.stats),
        "per_second": seen.per_second,
        "queues": [admin.Queue.from_model(queue) for queue in seen.queues],
        "workers": [admin.Worker.from_model(worker) for worker in seen.workers],
        "running": [tasks.Task.from_model(task) for task in seen.running],
        "failures": [tasks.Task.from_model(task) for task in seen.failures],
    }


class Throughput:
    """Tasks that ended per second, look by look, over the last minute.

    Counted from the depth of the final states. Pruning and redriving make them smaller, which counts as nothing ended.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, float]] = deque()
        self._last: tuple[float, int] | None = None

    def note(self, seen: Snapshot) -> None:
        """Add what ended since the last look."""
        now, ended = time.monotonic(), sum(seen.stats.depth.get(state, 0) for state in FINAL)
        if self._last is not None:
            since, before = self._last
            self._looks.append((now, max(0, ended - before) / max(now - since, 0.001)))
        self._last = now, ended
        while self._looks and self._looks[0][0] < now - MINUTE:
            self._looks.popleft()

    def sparkline(self) -> str:
        """The last minute as small bars, highest at its most."""
        rates = [rate for _, rate in self._looks]
        most = max(rates, default=0)
        return "".join(BARS[min(7, int(rate / most * 8))] if most else BARS[0] for rate in rates)
