"""A store as after a busy month: tasks in every state, their history, workflows, workers, a week of samples.

Rows are made in SQL from their number, the same on both engines.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from dibs import Dibs, NewStep, NewTask, NewWorkflow
from dibs.model.registry import Heartbeat
from dibs.server.statistics.queue_depths import Reading
from dibs.server.statistics.trends import MINUTE, FullSample
from tests.helpers.million import RECURSION, SERIES

STATES = {
    "completed": 31, "pending": 20, "failed": 3, "cancelled": 3, "scheduled": 2, "claimed": 1
}  # fmt: skip
"""Of each sixty tasks in a row."""

QUEUES = 20
WORKERS = 20
WEEK = 7 * 24 * 60
WIDE = 10_000
"""Steps of the largest workflow that is looked at; the other has 100."""


def fill(url: str, tasks: int) -> None:
    """Everything that a page can show."""
    with Dibs(url) as app:
        app.migrate()
        _insert(url, tasks)
        _start_workflows(app)
        for number in range(QUEUES):
            app.set_schedule(f"every-{number}", f"{number} * * * *", f"type-{number % 7}")
        _be_alive(app)


def _insert(url: str, tasks: int) -> None:
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        source = RECURSION.format(first=1, last=tasks)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA cache_size = -262144")
            for statement in (_tasks(source), _history(source)):
                connection.execute(statement)
            connection.commit()
        return
    source = SERIES.format(first=1, last=tasks)
    with psycopg.connect(url, options="-c synchronous_commit=off") as server:
        for statement in (_tasks(source), _history(source), NEXT_ID):
            server.execute(statement.encode())


def _tasks(source: str) -> str:
    begun = f"({time.time_ns() // 1000} - (2000000 - n) * 1000000)"  # a task each second, up to some days ago
    columns = {
        "id": "n",
        "type": "'type-' || (n % 7)",
        "queue": f"'queue-' || (n * 7919 / 3 % {QUEUES})",
        "state": "state",
        "priority": "n % 5",
        "params": """'{"picture":' || n || ',"width":800,"to":"visitor-' || (n * 7919 % 1000003) || '@example.com"}'""",
        "max_attempts": "3",
        "attempts": "CASE WHEN state IN ('completed', 'failed') THEN 1 ELSE 0 END",
        "backoff_base": "1000000",
        "backoff_cap": "300000000",
        "created_at": begun,
        "run_at": f"CASE state WHEN 'scheduled' THEN {begun} + 90000000000000 ELSE {begun} END",
        "ready_at": begun,
        "claimed_at": f"CASE WHEN state IN ('completed', 'failed', 'claimed') THEN {begun} + 200000 END",
        "lease_until": f"CASE state WHEN 'claimed' THEN {begun} + 90000000000000 END",
        "finished_at": f"CASE WHEN state IN ('completed', 'failed', 'cancelled') THEN {begun} + 900000 END",
        "worker_id": f"CASE WHEN state IN ('completed', 'failed', 'claimed') THEN 'worker-' || (n % {WORKERS}) END",
        "token": "CASE WHEN state IN ('completed', 'failed', 'claimed') THEN 1 ELSE 0 END",
        "key": "CASE WHEN n % 10 = 3 THEN 'key-' || n END",
        "error": f"CASE state WHEN 'failed' THEN {ERROR} END",
        "result": """CASE state WHEN 'completed' THEN '{"bytes":' || n || '}' END""",
        "random_key": "n * 2654435761 % 4294967296 / 4294967296.0",
        "weighted_key": "n * 2246822519 % 4294967296 / 4294967296.0",
    }
    made = f"(SELECT n, {_state()} AS state FROM {source}) AS made"  # noqa: S608 - our own words
    return f"INSERT INTO dibs_tasks ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {made}"  # noqa: S608


def _state() -> str:
    cases, upto = [], 0
    for state, share in STATES.items():
        upto += share
        cases.append(f"WHEN n % 60 < {upto} THEN '{state}'")
    return f"CASE {' '.join(cases)} END"


def _history(source: str) -> str:
    at = f"({time.time_ns() // 1000} - (2000000 - n) * 1000000)"
    columns = "task_id, event, from_state, to_state, token, at"
    return f"INSERT INTO dibs_history ({columns}) SELECT n, 'enqueued', NULL, 'pending', 0, {at} FROM {source}"  # noqa: S608


TRACEBACK = "Traceback (most recent call last):" + r"\n  File \"pictures.py\", line 7, in scale" * 20
ERROR = (
    """'{"type":"Error' || (n / 60 % 9) || '","message":"picture ' || n || ' is broken","traceback":"""
    f"""\"{TRACEBACK}"}}'"""
)
NEXT_ID = "SELECT setval('dibs_tasks_id_seq', (SELECT max(id) FROM dibs_tasks))"


def _start_workflows(app: Dibs) -> None:
    for size in (100, WIDE):
        parts = [f"part {number}" for number in range(size - 2)]
        steps = [_step("first"), *(_step(name, ["first"]) for name in parts), _step("last", parts)]
        app.start_workflow(NewWorkflow(name=f"{size} steps", steps=steps))


def _step(name: str, after: list[str] | None = None) -> NewStep:
    return NewStep(name=name, task=NewTask(name.partition(" ")[0], queue="flows"), after=after or [])


def _be_alive(app: Dibs) -> None:
    store: Any = app._store
    for number in range(WORKERS):
        queues = [f"queue-{number}", f"queue-{(number + 1) % QUEUES}"]
        about = {"host": "bench", "pid": os.getpid() + number, "concurrency": 8}
        store.run(store.registry.heartbeat(Heartbeat(worker_id=f"worker-{number}", queues=queues, metadata=about)))
    now = time.time_ns() // 1000 // MINUTE * MINUTE
    for minute in range(WEEK):
        store.run(store.statistics.save_sample(now - minute * MINUTE, _sample(minute)))


def _sample(minute: int) -> str:
    reading = Reading([minute % 97, 3, 20, 8, 500_000, 50_000, 1], [60, 60, 55, 5, 0], 12.5)
    queues = {f"queue-{number}": reading for number in range(QUEUES)}
    sample = FullSample(seconds=60.0, whole=reading, wait=[0.01, 0.2, 0.9], run=[0.1, 0.7, 2.0], queues=queues)
    return msgspec.json.encode(sample).decode()
