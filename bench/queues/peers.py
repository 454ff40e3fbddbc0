"""The other queues: how each is measured, where its documentation says so, and what it does not do that dibs does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Count = str | Callable[[Any], int]
"""How many: an SQL query for one number, or a function of a client of Redis."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another queue on one engine.

    `settings` are those with which it drains, in words; with the first it also waits and idles. `share` is how many of
    the tasks it gets: a slow one would take all day. `unfinished` counts what is not durably done, `completed` what its
    books say was done (None: it keeps none).
    """

    name: str
    engine: str
    module: str
    package: str
    settings: dict[str, str]
    unfinished: Count
    completed: Count | None
    source: str
    lacks: str
    share: float = 1.0
    at_once: str = ""
    bulk: bool = False
    processes: tuple[int, ...] = (1, 2)
    python: tuple[int, int] = (3, 11)
    stop_with: signal.Signals = signal.SIGTERM
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> str:
        """The name of its virtual environment, and of its file of requirements."""
        return self.module.removesuffix("_queue")


PEERS = (
    Peer(
        name="Huey",
        engine="SQLite",
        module="huey_queue",
        package="huey",
        settings={"1": "1 thread", "4": "4 threads"},
        unfinished="SELECT count(*) FROM task",
        completed=None,
        source="huey.readthedocs.io/en/latest/consumer.html, SqliteHuey with fsync=True",
        lacks="deletes a task before it runs: lost if the worker dies; no fencing, no history",
        at_once="threads",
        stop_with=signal.SIGINT,  # lets what runs end
    ),
    Peer(
        name="PGQueuer",
        engine="PostgreSQL",
        module="pgqueuer_queue",
        package="pgqueuer",
        settings={"1x10": "as it comes, batch 10", "5x10": "5 consumers, batch 10", "1x500": "batch 500"},
        unfinished="SELECT count(*) FROM pgqueuer",
        completed="SELECT count(DISTINCT job_id) FROM pgqueuer_log WHERE status = 'successful'",
        source="its own tools/benchmark.py (uvloop, asyncpg, 5 consumers, batch 10); batch 500 is our tuning",
        lacks="completions are not fenced and are written in batches; a job is deleted when it is done",
        at_once="coroutines",
        bulk=True,
    ),
)
