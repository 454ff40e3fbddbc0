"""Indexes of streams are created when claims need them. Claims are right before, meanwhile, afterwards and without
them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest

import dibs
from dibs import NewTask, Released, Verdict
from dibs.store.operations import stream_indexes
from dibs.store.operations.stream_indexes import NEEDED, STREAM_INDEXES
from dibs.store.postgres import index_builder
from tests.helpers.databases import run_sql, sqlite_path
from tests.helpers.processes import ask_all, processes
from tests.helpers.tasks import enqueue_all
from tests.helpers.waiting import until

AHEAD = 700
"""More than a claim of one scans."""

on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def looks_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that needs an index always looks whether it exists."""
    monkeypatch.setattr(stream_indexes, "LOOK_EVERY", 0.0)


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url) as app:
        yield app


def indexes(url: str) -> set[str]:
    """The indexes of streams that the store has."""
    sqlite = url.startswith("sqlite")
    names = run_sql(url, f"SELECT {'name FROM sqlite_master' if sqlite else 'indexname FROM pg_indexes'}")
    return {name for (name,) in names} & set(STREAM_INDEXES)


def fill(app: dibs.Dibs, served: int = 40) -> list[int]:
    """Tasks that no claim here serves come first in every order; then some of two queues and types."""
    ahead = [NewTask("other", queue="other", priority=9, max_attempts=1)] * AHEAD
    enqueue_all(app, ahead)
    new = [NewTask(f"type-{n % 2}", queue=f"queue-{n % 3}", priority=n % 5 - 2) for n in range(served)]
    ids = [task.id for task in enqueue_all(app, new)]
    enqueue_all(app, [NewTask("other", queue="other", priority=-9, max_attempts=1)] * AHEAD)
    return ids


FILTERS: dict[str, dict[str, Any]] = {
    "type": {"types": ["type-0", "type-1"]},
    "queue": {"queues": ["queue-0", "queue-1", "queue-2"]},
    "pair": {"queues": ["queue-0", "queue-1", "queue-2"], "types": ["type-0", "type-1"]},
    "attempts": {"max_attempts_remaining": 2},
}


def needing(app: dibs.Dibs, **options: Any) -> list[int]:
    """As many claims of one as it takes until an index is provided, and one more."""
    claims = [app.claim("worker-1", **options) for _ in range(NEEDED + 1)]
    return [claim.task_id for claim in claims if claim]


def by_priority(ids: list[int]) -> list[int]:
    """The tasks of `fill` in the order of their priorities."""
    return [ids[n] for n in sorted(range(len(ids)), key=lambda n: (-(n % 5 - 2), n))]


def test_a_new_store_has_no_index_of_streams(app: dibs.Dibs, url: str) -> None:
    app.enqueue("resize")
    assert app.claim("worker-1", queues=["default"], types=["resize"])
    assert indexes(url) == set()


@pytest.mark.parametrize("family", FILTERS)
@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_claims_that_often_need_an_index_get_it_and_take_the_same_tasks(
    app: dibs.Dibs, url: str, family: str, order: str
) -> None:
    ids = fill(app)
    expected = by_priority(ids) if order == "priority" else ids
    taken = needing(app, order=order, **FILTERS[family])
    app.upkeep()
    index = f"dibs_tasks_by_{family}" + ("_age" if order == "fifo" else "")
    assert indexes(url) == {index}
    while claims := app.claim_many("worker-1", 3, order=order, **FILTERS[family]):
        taken += [claim.task_id for claim in claims]
    assert taken == expected


@pytest.mark.parametrize("family", ["type", "queue"])
def test_claims_in_random_order_get_an_index_of_that_order(
    app: dibs.Dibs, url: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a claim the order has advanced past most of the tasks that stood ahead, so few claims need the index."""
    monkeypatch.setattr(stream_indexes, "NEEDED", 1)
    ids = fill(app, served=200)
    enqueue_all(app, [NewTask("other", queue="other", priority=9)] * 4 * AHEAD)  # ten times as likely as the others
    for _ in range(3):
        claims = app.claim_many("worker-1", 60, order="weighted", **FILTERS[family])
        assert len({claim.task_id for claim in claims} & set(ids)) == 60
        app.finish([(claim, Released()) for claim in claims])
    app.upkeep()
    assert indexes(url) == {f"dibs_tasks_by_weight_{family}"}
    taken = []
    while claims := app.claim_many("worker-1", 30, order="weighted", **FILTERS[family]):
        taken += [claim.task_id for claim in claims]
    assert sorted(taken) == ids


def test_claims_that_find_their_tasks_at_the_head_of_the_store_get_no_index(app: dibs.Dibs, url: str) -> None:
    enqueue_all(app, [NewTask(f"type-{n % 10}", queue=f"queue-{n % 7}") for n in range(300)])
    for family in FILTERS.values():
        needing(app, **family)
    app.upkeep()
    assert indexes(url) == set()


def test_another_process_uses_an_index_that_exists_without_asking_for_it(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    needing(app, **FILTERS["type"])
    app.upkeep()
    with dibs.Dibs(url) as other:
        claim = other.claim("worker-2", **FILTERS["type"])
        assert claim is not None
        assert claim.task_id == by_priority(ids)[NEEDED + 1]
        dialect: Any = other._store._operations.claims._dialect  # type: ignore[attr-defined]
        assert dialect.indexes.is_known("dibs_tasks_by_type")


def test_claims_go_on_after_somebody_has_dropped_an_index(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    taken = needing(app, **FILTERS["type"])
    app.upkeep()
    taken += [claim.task_id for claim in app.claim_many("worker-1", 2, **FILTERS["type"])]
    run_sql(url, "DROP INDEX dibs_tasks_by_type")
    while claims := app.claim_many("worker-1", 3, **FILTERS["type"]):
        taken += [claim.task_id for claim in claims]
    assert taken == by_priority(ids)


def test_a_pause_of_a_queue_in_a_large_store_gets_the_index_by_queue(app: dibs.Dibs, url: str) -> None:
    enqueue_all(app, [NewTask("resize", queue=f"queue-{n % 2}") for n in range(5000)])
    app.pause("queue-0")
    app.upkeep()
    app.upkeep()
    assert indexes(url) == {"dibs_tasks_by_queue"}
    assert run_sql(url, "SELECT count(*) FROM dibs_tasks WHERE parked") == [(2500,)]


def test_eight_processes_claim_each_task_once_while_indexes_are_created(app: dibs.Dibs, url: str) -> None:
    fill(app, served=0)
    new = [NewTask(f"type-{n % 4}", queue=f"queue-{n % 9}", priority=n % 3) for n in range(1200)]
    ids = [task.id for task in enqueue_all(app, new)]
    filters = [
        {"types": ["type-0", "type-1", "type-2", "type-3"]},
        {"queues": [f"queue-{n}" for n in range(9)]},
        {"types": ["type-0", "type-1"], "queues": ["queue-0", "queue-1", "queue-2"]},
        {"max_attempts_remaining": 2},
    ]
    with processes(url, 8) as members, upkeep_all_the_time(app):
        answers = ask_all(members, [{"do": "drain", "seed": n, "filters": filters[n % 4]} for n in range(8)])
    claimed = {(task_id, token) for answer in answers for task_id, token, event in answer if event == "claimed"}
    assert len(claimed) == sum(event == "claimed" for answer in answers for _, _, event in answer)
    assert {task_id for task_id, _ in claimed} == set(ids)
    assert indexes(url)
    assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []


@contextmanager
def upkeep_all_the_time(app: dibs.Dibs) -> Iterator[None]:
    """Build indexes as soon as they are requested."""
    ends = threading.Event()

    def keep() -> None:
        while not ends.is_set():
            app._store.maintain()
            ends.wait(0.02)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


# SQLite


CREATE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE INDEX dibs_tasks_by_type ON dibs_tasks (type, priority DESC, id, state, parked)"
                   " WHERE state = 'pending' AND parked = 0")
print("created", flush=True)
sys.stdin.read()
"""


@on_sqlite
def test_a_process_that_is_killed_while_it_creates_an_index_leaves_nothing_behind(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    command = [sys.executable, "-c", CREATE, sqlite_path(url)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"created"
        process.kill()
    taken = needing(app, **FILTERS["type"])
    assert indexes(url) == {"dibs_tasks_by_type"}
    assert taken == by_priority(ids)[: NEEDED + 1]
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# PostgreSQL


@on_postgres
def test_the_planner_knows_the_numbers_of_a_random_order_once_their_index_is_built(
    app: dibs.Dibs, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics from before the numbers let it expect none, and read the index of the whole store for each stream."""
    monkeypatch.setattr(stream_indexes, "NEEDED", 1)
    fill(app, served=200)
    run_sql(url, "ALTER TABLE dibs_tasks SET (autovacuum_enabled = false)", "ANALYZE dibs_tasks")
    assert numbered_share(url) == 0
    enqueue_all(app, [NewTask("other", queue="other", priority=9)] * 4 * AHEAD)
    for _ in range(3):
        claims = app.claim_many("worker-1", 60, order="weighted", **FILTERS["queue"])
        app.finish([(claim, Released()) for claim in claims])
    app.upkeep()
    assert indexes(url) == {"dibs_tasks_by_weight_queue"}
    assert numbered_share(url) > 0.9


def numbered_share(url: str) -> float:
    """The share of tasks with a number of the weighted order, as the planner estimates it."""
    query = "SELECT 1 - null_frac FROM pg_stats WHERE tablename = 'dibs_tasks' AND attname = 'weighted_key'"
    [(share,)] = run_sql(url, query)
    return float(share)


@on_postgres
def test_others_write_and_claim_while_an_index_is_built(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    needing(app, **FILTERS["type"])
    with psycopg.connect(url) as writer:
        writer.execute("UPDATE dibs_tasks SET progress = 1 WHERE id = %s", [ids[-1]])  # the build waits for its end
        building = threading.Thread(target=app.upkeep)
        building.start()
        until(lambda: waits_for_a_writer(url))
        app.enqueue("type-0", queue="queue-0")
        claim = app.claim("worker-1", **FILTERS["type"])
        assert claim is not None
        assert claim.task_id == by_priority(ids)[NEEDED + 1]
        assert building.is_alive()
        writer.rollback()
    building.join()
    assert indexes(url) == {"dibs_tasks_by_type"}
    assert run_sql(url, "SELECT count(*) FROM dibs_stream_indexes") == [(0,)]


def waits_for_a_writer(url: str) -> bool:
    query = "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE datname = current_database()"
    return run_sql(url, f"{query} AND phase LIKE 'waiting for writers%')") == [(True,)]


@on_postgres
def test_an_index_that_a_killed_build_left_is_built_again(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    taken = needing(app, **FILTERS["type"])
    with psycopg.connect(url) as writer:
        writer.execute("UPDATE dibs_tasks SET progress = 1 WHERE id = %s", [ids[-1]])
        building = threading.Thread(target=upkeep_that_fails, args=(app,))
        building.start()
        until(lambda: waits_for_a_writer(url))
        run_sql(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index")
        building.join()
        writer.rollback()
    assert run_sql(url, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'dibs_tasks_by_type'::regclass") == [
        (False,)
    ]
    claims = app.claim_many("worker-1", 2, **FILTERS["type"])
    assert taken + [claim.task_id for claim in claims] == by_priority(ids)[: NEEDED + 3]
    app.upkeep()
    assert run_sql(url, "SELECT indisvalid FROM pg_index WHERE indexrelid = 'dibs_tasks_by_type'::regclass") == [
        (True,)
    ]


def upkeep_that_fails(app: dibs.Dibs) -> None:
    with suppress(dibs.StoreError):
        app.upkeep()


@on_postgres
def test_a_build_goes_on_after_its_process_was_killed_and_nobody_disturbs_it(app: dibs.Dibs, url: str) -> None:
    ids = fill(app)
    needing(app, **FILTERS["type"])
    with psycopg.connect(url) as writer:
        writer.execute("UPDATE dibs_tasks SET progress = 1 WHERE id = %s", [ids[-1]])
        program = "import dibs, sys; dibs.Dibs(sys.argv[1]).upkeep()"
        process = subprocess.Popen([sys.executable, "-c", program, url])
        until(lambda: waits_for_a_writer(url))
        process.kill()
        process.wait()
        app.upkeep()  # returns at once: the index is not valid, and the server is still building it
        assert waits_for_a_writer(url)
        writer.rollback()
    until(lambda: is_valid(url))
    app.upkeep()
    assert run_sql(url, "SELECT count(*) FROM dibs_stream_indexes") == [(0,)]


def is_valid(url: str) -> bool:
    rows = run_sql(url, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('dibs_tasks_by_type')")
    return rows == [(True,)]


@on_postgres
def test_only_one_process_builds_at_a_time(app: dibs.Dibs, url: str) -> None:
    fill(app)
    needing(app, **FILTERS["type"])
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [index_builder.LOCK])
        assert index_builder.build_requested(url) == 0
        assert indexes(url) == set()
    assert index_builder.build_requested(url) == 1


@on_postgres
@pytest.mark.own_connections
def test_a_role_that_does_not_own_the_tables_claims_without_the_index_and_the_doctor_says_what_to_run(
    app: dibs.Dibs, url: str
) -> None:
    ids = fill(app)
    with guest(url) as guest_url, dibs.Dibs(guest_url, migrate=False) as other:
        taken = needing(other, **FILTERS["type"])
        other.upkeep()
        assert indexes(url) == set()
        run_sql(url, "UPDATE dibs_stream_indexes SET requested_at = requested_at - 61000000")
        check = next(check for check in other.doctor() if check.name == "indexes of claims")
        assert check.verdict is Verdict.WARN
        assert "own" in check.message
        run_sql(url, check.hint.partition(": ")[2].removesuffix(";"))
        taken += [claim.task_id for claim in other.claim_many("worker-1", 3, **FILTERS["type"])]
        assert taken == by_priority(ids)[: NEEDED + 4]
        assert next(check for check in other.doctor() if check.name == "indexes of claims").verdict is Verdict.OK


@contextmanager
def guest(url: str) -> Iterator[str]:
    """The URL of a role with rights on the rows only."""
    name = f"guest_{time.monotonic_ns()}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN".encode())
        admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}".encode())
        admin.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {name}".encode())
    user = psycopg.conninfo.conninfo_to_dict(url)["user"]
    try:
        yield url.replace(f"//{user}@", f"//{name}@")
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {name}".encode())
            admin.execute(f"DROP ROLE {name}".encode())
