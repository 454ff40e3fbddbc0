"""The doctor finds damage, changes by other SQL and risky settings, and nothing in a healthy database."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Check, NewTask, Verdict
from dibs.store.postgres.connection import SQL
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql, sqlite_path
from tests.helpers.retention import keep
from tests.helpers.tasks import STATES, task_in

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


def checks(app: Any) -> dict[str, Check]:
    return {check.name: check for check in app.doctor()}


def failures(app: Any) -> dict[str, Check]:
    return {name: check for name, check in checks(app).items() if check.verdict is Verdict.FAIL}


def test_a_healthy_database_has_no_failure(app: Any, clock: Clock) -> None:
    for state in STATES:
        task_in(app, state)
    task_in(app, "claimed", max_attempts=1)
    clock.advance(60)
    app.recover()
    app.retry(task_in(app, "failed").id)
    app.cancel(task_in(app, "claimed").id)
    assert failures(app) == {}


def test_every_check_reports_what_it_found(app: Any) -> None:
    app.queues()
    found = app.doctor()
    assert len({check.name for check in found}) == len(found) > 5
    assert all(check.message for check in found)
    assert all(check.hint for check in found if check.verdict is not Verdict.OK)


def test_a_database_whose_old_tasks_and_history_were_pruned_is_healthy(app: Any, clock: Clock) -> None:
    task_in(app, "completed")
    task_in(app, "claimed")
    clock.advance(100)
    keep(app, completed=50, history=50)
    app.upkeep()
    assert failures(app) == {}


@pytest.mark.parametrize("state", ["pending", "claimed", "completed"])
def test_the_doctor_finds_a_token_that_was_changed_by_other_sql(app: Any, url: str, state: str) -> None:
    task_in(app, state)
    app.enqueue("untouched", delay=5)
    run_sql(url, f"UPDATE dibs_tasks SET token = token + 5 WHERE state = '{state}'")
    found = failures(app)
    assert list(found) == ["books tokens"]
    assert "1 tasks" in found["books tokens"].message
    assert "another program" in found["books tokens"].hint


def test_the_doctor_finds_a_token_that_was_set_back_by_other_sql(app: Any, url: str) -> None:
    task_in(app, "claimed")
    run_sql(url, "UPDATE dibs_tasks SET token = 0")
    assert list(failures(app)) == ["books tokens"]


@pytest.mark.parametrize(
    ("before", "after"), [("claimed", "pending"), ("completed", "pending"), ("failed", "completed")]
)
def test_the_doctor_finds_a_state_that_was_changed_by_other_sql(app: Any, url: str, before: str, after: str) -> None:
    task_in(app, before)
    run_sql(url, f"UPDATE dibs_tasks SET state = '{after}'")
    found = failures(app)
    assert list(found) == ["books states"]
    assert "1 tasks" in found["books states"].message


def test_every_task_that_was_tampered_with_is_counted(app: Any, url: str) -> None:
    app.enqueue_many([NewTask("resize") for _ in range(7)])
    run_sql(url, "UPDATE dibs_tasks SET state = 'cancelled' WHERE id <= 3")
    assert "3 tasks" in failures(app)["books states"].message


@pytest.mark.database("a server does not start on an empty database without migrating it")
def test_the_doctor_reports_missing_tables_in_an_empty_database(empty_url: str, open_app: Callable[..., Any]) -> None:
    with pytest.raises(dibs.SchemaMissing):
        open_app(empty_url).doctor()


def test_the_doctor_changes_nothing(app: Any) -> None:
    task_in(app, "claimed")
    before = app.list_tasks(), app.all_history(), app.stats()
    app.doctor()
    assert (app.list_tasks(), app.all_history(), app.stats()) == before


def test_the_doctor_shows_the_schema_version_and_finds_an_old_one(app: Any, url: str) -> None:
    app.queues()
    newest = run_sql(url, "SELECT max(version) FROM dibs_migrations")[0][0]
    assert f"schema version {newest} of {newest}" in checks(app)["schema"].message
    run_sql(url, f"DELETE FROM dibs_migrations WHERE version = {newest}")
    assert list(failures(app)) == ["schema"]


# SQLite


@on_sqlite
def test_the_settings_that_make_sqlite_durable_are_shown(app: Any) -> None:
    app.queues()
    found = checks(app)
    assert (found["journal mode"].verdict, found["journal mode"].message) == (Verdict.OK, "journal_mode is wal")
    assert found["integrity"].verdict is Verdict.OK


@on_sqlite
def test_the_version_of_sqlite_is_shown_and_one_with_a_known_bug_is_a_warning(app: Any) -> None:
    import sqlite3

    app.queues()
    found = checks(app)["sqlite version"]
    assert sqlite3.sqlite_version in found.message
    assert found.verdict in (Verdict.OK, Verdict.WARN)
    assert (found.verdict is Verdict.WARN) == ("WAL-reset bug" in found.hint)


def closed_copy(app: Any, url: str, to: Path) -> Path:
    """A complete copy of the file that no process has open."""
    app.enqueue_many([NewTask("resize", {"text": "x" * 500}) for _ in range(200)])
    app.close()
    run_sql(url, "PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(shutil.copy(sqlite_path(url), to))


def overwrite(path: Path, start: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * (end - start))


@on_sqlite
def test_a_damaged_file_is_found(app: Any, url: str, tmp_path: Path, open_app: Callable[..., Any]) -> None:
    path = closed_copy(app, url, tmp_path / "damaged.db")
    size = path.stat().st_size
    overwrite(path, size // 4, size // 2)
    damaged = open_app(f"sqlite:///{path}")
    with contextlib.suppress(dibs.StoreError):  # so damaged that it cannot be examined, which is an answer as well
        assert "integrity" in failures(damaged)


@on_sqlite
def test_an_undamaged_copy_of_a_file_is_healthy(
    app: Any, url: str, tmp_path: Path, open_app: Callable[..., Any]
) -> None:
    path = closed_copy(app, url, tmp_path / "copy.db")
    assert failures(open_app(f"sqlite:///{path}")) == {}


@on_sqlite
@pytest.mark.parametrize(
    "content", [b"This is no database, it is a letter. " * 200, b"\x00" * 8192], ids=["text", "zeros"]
)
def test_a_file_that_is_not_a_database_is_refused_clearly_and_left_alone(
    engine: str, tmp_path: Path, open_app: Callable[..., Any], content: bytes
) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(content)
    app = open_app(f"sqlite:///{path}")
    for verb in (app.doctor, app.stats, app.migrate, lambda: app.enqueue("resize")):
        with pytest.raises(dibs.StoreError, match="not a database") as refused:
            verb()
        assert refused.value.hint
    assert path.read_bytes() == content


@on_sqlite
def test_the_error_reports_that_the_folder_of_the_file_does_not_exist(
    engine: str, tmp_path: Path, open_app: Callable[..., Any]
) -> None:
    app = open_app(f"sqlite:///{tmp_path}/nowhere/dibs.db")
    for verb in (app.doctor, app.stats):
        with pytest.raises(dibs.StoreUnavailable, match="folder"):
            verb()


@on_sqlite
def test_the_error_reports_that_the_path_is_a_folder(engine: str, tmp_path: Path, open_app: Callable[..., Any]) -> None:
    with pytest.raises(dibs.StoreError):
        open_app(f"sqlite:///{tmp_path}").doctor()


@on_sqlite
def test_a_call_on_a_damaged_file_fails_with_a_store_error(
    app: Any, url: str, tmp_path: Path, open_app: Callable[..., Any]
) -> None:
    path = closed_copy(app, url, tmp_path / "damaged.db")
    overwrite(path, 4096, path.stat().st_size)
    with pytest.raises(dibs.StoreError, match="damaged"):
        open_app(f"sqlite:///{path}").list_tasks()


# PostgreSQL


@on_postgres
def test_the_settings_that_make_postgres_durable_are_shown(app: Any) -> None:
    found = checks(app)
    assert {"fsync", "full_page_writes", "autovacuum", "durability", "primary"} <= set(found)
    assert found["durability"].message.startswith("synchronous_commit is ")


@on_postgres
def test_the_doctor_finds_a_database_that_acknowledges_before_it_stores(app: Any, url: str) -> None:
    database = run_sql(url, "SELECT current_database()")[0][0]
    run_sql(url, f"ALTER DATABASE {database} SET synchronous_commit = off")
    assert list(failures(app)) == ["durability"]


@on_postgres
def test_every_call_reports_that_the_server_cannot_be_reached(
    engine: str, tmp_path: Path, open_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.store.postgres.store.POOL_TIMEOUT", 0.5)  # instead of half a minute
    app = open_app(f"postgresql://nobody@/nothing?host={tmp_path}")
    for verb in (app.doctor, app.stats, app.migrate):
        with pytest.raises(dibs.StoreUnavailable):
            verb()


@on_postgres
@pytest.mark.parametrize("books", ["books_states", "books_tokens"])
def test_the_doctor_compares_tasks_and_history_by_an_index_also_before_planner_statistics_exist(
    empty_url: str, books: str
) -> None:
    with dibs.Dibs(empty_url) as app:
        app.enqueue_many([NewTask("t") for _ in range(100)])
    with psycopg.connect(empty_url) as connection:
        connection.execute(
            "INSERT INTO dibs_history (task_id, event, to_state, token, at)"
            " SELECT n, 'enqueued', 'pending', 0, 0 FROM generate_series(1, 50000) AS n"
        )
        plan = connection.execute(f"EXPLAIN {SQL.text(books)}".encode()).fetchall()
    assert "dibs_history_task" in str(plan), plan
