"""An outage of the store: the same worker process continues afterwards, and no task is lost."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from tests.helpers import handlers
from tests.helpers.consistency import assert_balanced
from tests.helpers.databases import sqlite_path
from tests.helpers.handlers import doze, heard, nap, persist, say
from tests.helpers.postgres import Cluster, new_data_folder
from tests.helpers.waiting import until
from tests.helpers.workers import worker_processes

pytestmark = pytest.mark.own_connections

LEASE = 2.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server that no other test uses."""
    folder = Path(new_data_folder())
    own = Cluster(folder)
    try:
        yield own
    finally:
        own.stop()
        shutil.rmtree(folder)


def test_a_worker_drains_the_queue_after_postgresql_died_and_came_back(cluster: Cluster, tmp_path: Path) -> None:
    with handlers.at(cluster.url) as app, worker_processes(cluster.url) as workers:
        worker = workers.start(lease=LEASE, upkeep_every=0.5, concurrency=4)
        held = persist.enqueue(folder=str(tmp_path))
        until(lambda: heard(tmp_path, "persist.1.began"), 30)
        app.enqueue_many([(nap if n % 2 else doze).new(seconds=0.01) for n in range(1000)])
        until(lambda: app.stats().depth.get("completed", 0) > 100, 30)
        cluster.stop()
        until(lambda: "the store does not answer" in worker.log, 30)
        say(tmp_path, "persist.go")  # it ends while the store cannot be reached
        until(lambda: heard(tmp_path, "persist.ended"))
        cluster.start()
        began = time.monotonic()
        until(lambda: depth(app) == {"completed": 1001}, 60)
        print(f"{time.monotonic() - began:.1f} s from the server's return to the last task")
        assert app.wait(held.id, 0).result["token"] in (1, 2)
        assert "the store answers again" in worker.log
        assert worker.process.poll() is None
        worker.terminate()
        assert worker.exit_code() == 0
        assert_balanced(app)


def test_a_worker_continues_after_the_sqlite_file_was_locked_for_longer_than_a_lease(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dibs.db"
    with handlers.at(url) as app, worker_processes(url) as workers:
        worker = workers.start(lease=1, upkeep_every=0.2, concurrency=4)
        persist.enqueue(folder=str(tmp_path))
        until(lambda: heard(tmp_path, "persist.1.began"), 30)
        app.enqueue_many([(nap if n % 2 else doze).new(seconds=0.01) for n in range(500)])
        until(lambda: app.stats().depth.get("completed", 0) > 50, 30)
        with contextlib.closing(sqlite3.connect(sqlite_path(url), isolation_level=None, timeout=10)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            say(tmp_path, "persist.go")
            until(lambda: heard(tmp_path, "persist.ended"))
            expired = "SELECT count(*) = 0 FROM dibs_tasks WHERE state = 'claimed' AND lease_until > ?"
            until(lambda: somebody.execute(expired, [time.time_ns() // 1000]).fetchone()[0])
            somebody.execute("ROLLBACK")
        until(lambda: app.stats().depth == {"completed": 501}, 30)
        worker.terminate()
        assert worker.exit_code() == 0
        assert_balanced(app)


def depth(app: dibs.Dibs) -> dict[str, int]:
    with contextlib.suppress(dibs.StoreError):
        return app.stats().depth
    return {}
