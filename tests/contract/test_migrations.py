"""Migrations: the first client that opens a database migrates it, once; a dibs that is too old never does."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.store.migrate import Migration
from tests.helpers.databases import Rows, run_sql
from tests.helpers.processes import ROOT
from tests.helpers.starting import start

pytestmark = [
    pytest.mark.database("a server migrates its database itself"),
    pytest.mark.own_connections,  # kept connections have looked at the schema before
]

# As the first release makes it.
BOOKS = {
    "sqlite": "CREATE TABLE dibs_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
    " compatible INTEGER NOT NULL, applied_at INTEGER NOT NULL) STRICT",
    "postgres": "CREATE TABLE dibs_migrations (version integer PRIMARY KEY, name text NOT NULL,"
    " compatible integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
}
NOW = {"sqlite": "0", "postgres": "now()"}

A_TASK = (
    "INSERT INTO dibs_tasks (type, queue, state, priority, params, max_attempts, backoff_base, backoff_cap,"
    " created_at, run_at, ready_at) VALUES ('resize', 'default', 'pending', 0, '{\"image\":7}', 3, 1000000,"
    " 300000000, 0, 0, 0)"
)

LATER = (
    Migration(2, "0002_notes", "CREATE TABLE dibs_notes (task_id bigint NOT NULL);", 1),
    Migration(
        3,
        "0003_colors",
        "ALTER TABLE dibs_tasks ADD COLUMN color text;\n-- A comment; it ends here.\n"
        "INSERT INTO dibs_notes (task_id) SELECT id FROM dibs_tasks;",
        1,
    ),
)
"""Migrations of a dibs that does not exist: a table, a column, and a statement that reads what is stored."""

DEVELOPMENT = ("0001_tasks", "0002_workers_and_types", "0003_claims_ahead")
"""Migrations of development versions, before they were squashed into 0001_initial."""


def known(engine: str) -> tuple[Migration, ...]:
    migrations: tuple[Migration, ...] = import_module(f"dibs.store.{engine}.migrations").KNOWN
    return migrations


@pytest.fixture
def later(engine: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Migration, ...]:
    """This dibs has further migrations."""
    monkeypatch.setattr(f"dibs.store.{engine}.migrations.KNOWN", (*known(engine), *LATER))
    return LATER


def names(engine: str) -> list[str]:
    return [migration.name for migration in known(engine)]


def applied(url: str) -> Rows:
    return run_sql(url, "SELECT version, name, compatible FROM dibs_migrations ORDER BY version")


def note(engine: str, version: int, compatible: int, name: str = "from_the_future") -> str:
    """The row of a migration."""
    return f"INSERT INTO dibs_migrations VALUES ({version}, '{name}', {compatible}, {NOW[engine]})"


def tables(engine: str, url: str) -> Rows:
    """The whole schema, as the database describes it."""
    if engine == "sqlite":
        return run_sql(url, "SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
    return run_sql(
        url,
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
    )


def make_first_version(engine: str, url: str) -> None:
    """The schema of version 1, with a task that waits in it."""
    first = known(engine)[0]
    run_sql(
        url,
        BOOKS[engine],
        *(first.statements() if engine == "sqlite" else [first.sql]),
        note(engine, first.version, first.compatible, first.name),
        A_TASK,
        "INSERT INTO dibs_history (task_id, event, to_state, token, at) VALUES (1, 'enqueued', 'pending', 0, 0)",
    )


def test_an_empty_database_is_migrated_when_it_is_first_used(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url)
    assert app.claim("worker-1") is None
    assert [row[1] for row in applied(empty_url)] == names(engine)
    assert app.enqueue("resize").id == 1


def test_constructing_a_client_opens_no_database(tmp_path: Any, open_app: Callable[..., Any]) -> None:
    open_app(f"sqlite:///{tmp_path}/new.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("later")
def test_an_older_schema_is_migrated_when_it_is_opened_and_keeps_its_tasks(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    app = open_app(empty_url)
    claim = app.claim("worker-1")
    assert (claim.task.params, claim.token) == ({"image": 7}, 1)
    assert [entry.event for entry in app.history(claim.task_id)] == ["enqueued", "claimed"]
    assert [row[1] for row in applied(empty_url)] == names(engine) == ["0001_initial", "0002_notes", "0003_colors"]
    assert run_sql(empty_url, "SELECT task_id FROM dibs_notes") == [(1,)]
    assert app.complete(claim).state == "completed"


@pytest.mark.usefixtures("later")
def test_a_task_that_is_claimed_while_its_database_is_migrated_stays_claimed(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    claimed = (
        "UPDATE dibs_tasks SET state = 'claimed', token = 1, worker_id = 'worker-1', lease_until = 9000000000000000"
    )
    run_sql(empty_url, claimed)
    app = open_app(empty_url)
    assert app.claim("worker-1", request="r-1") is None
    assert app.complete(dibs.ClaimRef(1, 1, "worker-1")).state == "completed"
    assert app.enqueue("resize").id == 2
    assert app.claim("worker-1", request="r-1") == app.claim("worker-1", request="r-1")


def test_a_task_that_sql_inserts_with_the_required_columns_alone_is_claimed(
    url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(url)
    app.queues()
    run_sql(url, A_TASK)
    claim = app.claim("worker-1", request="r-1")
    assert (claim.task.trace, claim.task.params, claim.task.dropped) == (None, {"image": 7}, 0)
    assert app.complete(claim).state == "completed"


@pytest.mark.usefixtures("later")
def test_a_migrated_old_schema_is_the_same_as_a_new_one(
    engine: str, empty_url: str, url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    for each in (empty_url, url):
        open_app(each).queues()
    books = "dibs_migrations"  # whose text is this test's own
    assert [row for row in tables(engine, empty_url) if books not in row] == [
        row for row in tables(engine, url) if books not in row
    ]


def test_migrate_returns_the_applied_migrations_and_then_none(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url)
    assert app.migrate() == names(engine)
    assert app.migrate() == []


@pytest.mark.usefixtures("later")
def test_migrate_applies_only_what_is_missing(engine: str, empty_url: str, open_app: Callable[..., Any]) -> None:
    make_first_version(engine, empty_url)
    assert open_app(empty_url).migrate() == ["0002_notes", "0003_colors"]


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    engine: str, empty_url: str, open_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_first_version(engine, empty_url)
    before = tables(engine, empty_url), applied(empty_url)
    broken = Migration(3, "0003_broken", "INSERT INTO dibs_notes (task_id) VALUES (NULL);", 1)
    monkeypatch.setattr(f"dibs.store.{engine}.migrations.KNOWN", (*known(engine), LATER[0], broken))
    with pytest.raises(dibs.StoreError):
        open_app(empty_url).migrate()
    assert (tables(engine, empty_url), applied(empty_url)) == before


def test_a_database_from_before_the_squashed_migrations_is_refused_and_left_as_it_is(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    old = [note(engine, version, version, name) for version, name in enumerate(DEVELOPMENT, 1)]
    run_sql(empty_url, BOOKS[engine], "CREATE TABLE dibs_tasks (id bigint)", *old)
    before = tables(engine, empty_url), applied(empty_url)
    app, careful = open_app(empty_url), open_app(empty_url, migrate=False)
    for verb in (app.stats, app.migrate, lambda: app.enqueue("resize"), careful.stats):
        with pytest.raises(dibs.StoreError, match="0001_tasks, and this dibs has 0001_initial") as refused:
            verb()
        assert "Open an empty database" in refused.value.hint
    assert (tables(engine, empty_url), applied(empty_url)) == before


def test_the_doctor_finds_a_database_from_before_the_squashed_migrations(
    engine: str, url: str, open_app: Callable[..., Any]
) -> None:
    open_app(url).queues()
    run_sql(url, "UPDATE dibs_migrations SET name = '0001_tasks' WHERE version = 1")
    [found] = [check for check in open_app(url).doctor() if check.name == "schema"]
    assert found.verdict is dibs.Verdict.FAIL
    assert "Open an empty database" in found.hint


def test_a_database_of_a_newer_dibs_is_refused_and_left_as_it_is(
    engine: str, url: str, open_app: Callable[..., Any]
) -> None:
    open_app(url).enqueue("resize")
    run_sql(url, note(engine, 999, 999))
    before = tables(engine, url), applied(url), run_sql(url, "SELECT * FROM dibs_tasks")
    app = open_app(url)
    for verb in (app.stats, app.migrate, lambda: app.enqueue("resize")):
        with pytest.raises(dibs.SchemaTooNew, match="version 999"):
            verb()
    assert (tables(engine, url), applied(url), run_sql(url, "SELECT * FROM dibs_tasks")) == before


def test_a_database_of_a_newer_dibs_is_refused_even_if_older_migrations_are_missing(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    run_sql(empty_url, BOOKS[engine], note(engine, 999, 999))
    before = tables(engine, empty_url)
    with pytest.raises(dibs.SchemaTooNew):
        open_app(empty_url).stats()
    assert tables(engine, empty_url) == before


def test_a_newer_but_compatible_database_works(engine: str, url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).queues()
    newest = known(engine)[-1].version
    run_sql(url, note(engine, newest + 1, 1))
    app = open_app(url)
    task = app.enqueue("resize")
    assert app.complete(app.claim("worker-1")).task_id == task.id
    assert app.migrate() == []


@pytest.mark.parametrize("compatible", ["newest", "newest + 1"])
def test_a_newer_schema_states_the_oldest_version_that_can_use_it(
    engine: str, url: str, open_app: Callable[..., Any], compatible: str
) -> None:
    open_app(url).queues()
    newest = known(engine)[-1].version
    run_sql(url, note(engine, newest + 2, newest + (compatible != "newest")))
    app = open_app(url)
    verdicts = {check.name: check.verdict for check in open_app(url).doctor()}
    if compatible == "newest":
        assert app.queues() == []
        assert verdicts["schema"] is dibs.Verdict.OK
    else:
        with pytest.raises(dibs.SchemaTooNew):
            app.queues()
        assert verdicts["schema"] is dibs.Verdict.FAIL


def test_without_permission_to_migrate_an_empty_database_is_refused_and_stays_empty(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url, migrate=False)
    for verb in (app.stats, lambda: app.enqueue("resize"), lambda: app.claim("worker-1")):
        with pytest.raises(dibs.SchemaMissing, match="0001_initial"):
            verb()
    assert tables(engine, empty_url) == []


@pytest.mark.usefixtures("later")
def test_without_permission_to_migrate_an_older_database_is_refused_and_the_error_names_the_missing_migrations(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    with pytest.raises(dibs.SchemaMissing, match=names(engine)[1]) as refused:
        open_app(empty_url, migrate=False).stats()
    assert names(engine)[0] not in str(refused.value)


def test_without_permission_to_migrate_a_current_database_works(url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).queues()
    assert open_app(url, migrate=False).enqueue("resize").state == "pending"


def test_a_call_of_migrate_needs_no_other_permission(engine: str, empty_url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(empty_url, migrate=False)
    assert app.migrate() == names(engine)
    assert app.enqueue("resize").id == 1


def test_a_refused_client_works_as_soon_as_the_database_is_migrated(
    empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url, migrate=False)
    with pytest.raises(dibs.SchemaMissing):
        app.stats()
    open_app(empty_url).migrate()
    assert app.stats().depth == {}


def test_both_engines_have_the_same_migrations() -> None:
    versions = [[(each.version, each.name, each.compatible) for each in known(engine)] for engine in BOOKS]
    assert versions[0] == versions[1]
    assert [version for version, *_ in versions[0]] == list(range(1, len(versions[0]) + 1))


def test_eight_processes_open_an_empty_database_concurrently_and_each_migration_is_applied_once(
    engine: str, empty_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "errors"
    hears, tells = os.pipe()  # all of them begin when its other end is closed
    with log.open("wb") as errors:
        program = "tests.helpers.open_and_enqueue"
        programs = [start(program, empty_url, str(n), stdin=hears, stderr=errors, cwd=ROOT) for n in range(8)]
    os.close(hears)
    os.close(tells)
    assert [program.wait(60) for program in programs] == [0] * 8
    assert log.read_text() == ""
    assert [row[1] for row in applied(empty_url)] == names(engine)
    with dibs.Dibs(empty_url) as app:
        assert sorted(task.params["n"] for task in app.list_tasks()) == list(range(8))
