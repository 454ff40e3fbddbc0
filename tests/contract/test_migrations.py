"""Migrations: a database is brought up to date by whoever opens it first, once, and never by a dibs that is too old."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import dibs
from dibs.codec import fingerprint
from dibs.model.search import TaskSearch
from dibs.store.migrate import Migration
from tests.helpers.clients import run
from tests.helpers.databases import Rows, run_sql

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

AN_OLD_ENQUEUE = (
    "INSERT INTO dibs_tasks (type, queue, state, priority, params, max_attempts, backoff_base, backoff_cap,"
    " created_at, run_at, ready_at) VALUES ('resize', 'default', 'pending', 0, '{\"image\":7}', 3, 1000000,"
    " 300000000, 0, 0, 0)"
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def known(engine: str) -> tuple[Migration, ...]:
    migrations: tuple[Migration, ...] = import_module(f"dibs.store.{engine}.migrating").KNOWN
    return migrations


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
    make_version(engine, url, 1)


def make_version(engine: str, url: str, version: int) -> None:
    """The schema of this version, with a task that waits in it."""
    until = known(engine)[:version]
    run_sql(
        url,
        BOOKS[engine],
        *(part for each in until for part in (each.statements() if engine == "sqlite" else [each.sql])),
        *(note(engine, each.version, each.compatible, each.name) for each in until),
        AN_OLD_ENQUEUE,
        "INSERT INTO dibs_history (task_id, event, to_state, token, at) VALUES (1, 'enqueued', 'pending', 0, 0)",
    )


def test_an_empty_database_is_migrated_when_it_is_first_used(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url)
    assert app.claim("worker-1") is None
    assert [row[1] for row in applied(empty_url)] == names(engine)
    assert app.enqueue("resize").id == 1


def test_making_a_client_opens_nothing(tmp_path: Any, open_app: Callable[..., Any]) -> None:
    open_app(f"sqlite:///{tmp_path}/new.db")
    assert list(tmp_path.iterdir()) == []


def test_an_older_schema_is_migrated_when_it_is_opened_and_keeps_its_tasks(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    app = open_app(empty_url)
    claim = app.claim("worker-1")
    assert (claim.task.params, claim.token) == ({"image": 7}, 1)
    assert [entry.event for entry in app.history(claim.task_id)] == ["enqueued", "claimed"]
    assert [row[1] for row in applied(empty_url)] == names(engine)
    app.heartbeat("worker-1")
    app.register_type("resize", True)
    assert app.complete(claim).state == "completed"


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


def test_code_that_knows_no_request_ids_still_claims(engine: str, url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    task = app.enqueue("resize")
    old_claim = (
        "UPDATE dibs_tasks SET state = 'claimed', token = token + 1, worker_id = 'worker-old', incarnation = 'i-1',"
        " claimed_at = 1, lease_until = 9000000000000000 WHERE state = 'pending'"
    )
    run_sql(url, old_claim)
    assert app.claim("worker-old", incarnation="i-1", request="r-1") is None
    assert app.complete(dibs.ClaimRef(task.id, 1, "worker-old")).state == "completed"


def test_a_database_from_before_watching_gets_traces_sessions_and_samples(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_version(engine, empty_url, 6)
    app = open_app(empty_url)
    assert app.migrate() == names(engine)[6:]
    assert app.get(1).trace is None
    assert app.enqueue_many([dibs.NewTask("resize", trace=TRACE)])[0].trace == TRACE
    assert [line.id for line in run(app, app._store.tasks.search(TaskSearch(state="pending"))).tasks] == [2, 1]
    assert run(app, app._store.statistics.save_sample(60_000_000, "{}")) is True
    run(app, app._store.keys.create_session("digest", "key-1", 60_000_000))
    assert run(app, app._store.keys.get_session("digest")).key_id == "key-1"


def test_code_that_knows_no_traces_still_enqueues(engine: str, url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(url)
    app.queues()
    run_sql(url, AN_OLD_ENQUEUE)
    claim = app.claim("worker-1")
    assert (claim.task.trace, claim.task.params) == (None, {"image": 7})


@pytest.mark.parametrize("order", ["random", "weighted"])
def test_a_database_in_which_every_task_had_drawn_numbers_is_claimed_at_random_as_before(
    engine: str, empty_url: str, open_app: Callable[..., Any], order: str
) -> None:
    make_version(engine, empty_url, 7)  # its task has no number, as if it had been enqueued without dibs
    an_enqueue = AN_OLD_ENQUEUE.replace("ready_at)", "ready_at, random_key, weighted_key)")
    in_a_race = [an_enqueue.replace("0, 0, 0)", f"0, 0, 0, {5 + n}, {7 + n})") for n in range(10)]
    in_none = [each.replace("'default'", "'mail'") for each in in_a_race]
    race = (
        "INSERT INTO dibs_races (kind, queue, type, attempts_left, position) VALUES ('{}', 'default', 'resize', 3, 5)"
    )
    run_sql(empty_url, *in_a_race, *in_none, *(race.format(kind) for kind in ("random", "weighted")))
    app = open_app(empty_url)
    new = app.enqueue("resize", max_attempts=3)
    claimed = []
    while claims := app.claim_many("worker-1", 4, order=order):
        claimed += [claim.task_id for claim in claims]
    assert sorted(claimed) == list(range(1, new.id + 1))


def test_a_finalization_that_was_claimed_before_tokens_were_named_is_renewed_and_released_under_its_token(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_version(engine, empty_url, 8)
    run_sql(
        empty_url,
        "INSERT INTO dibs_workflows (name, on_failure, queues, created_at, due_at, finalization_token,"
        " finalization_by, finalization_until) VALUES ('order', 'fail', '[]', 0, 0, 3, 'p1', 9000000000000000)",
    )
    app = open_app(empty_url)
    assert not app.renew_finalization(1, "p1", 2).claimed
    assert app.renew_finalization(1, "p1", 3).claimed
    assert app.release_finalization(1, "p1", 3)
    token = app.claim_finalization(1, "p2").token
    assert (token, app.finalize(1, "p2", token).state) == (4, "completed")
    if engine == "postgres":  # a function that releases by name alone is gone
        old = "SELECT to_regprocedure('dibs_release_finalization(bigint, text)')"
        assert run_sql(empty_url, old) == [(None,)]


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


def test_migrate_says_what_it_applied_and_then_that_nothing_was_left(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url)
    assert app.migrate() == names(engine)
    assert app.migrate() == []


def test_migrate_applies_only_what_is_missing(engine: str, empty_url: str, open_app: Callable[..., Any]) -> None:
    make_first_version(engine, empty_url)
    assert open_app(empty_url).migrate() == names(engine)[1:]


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
def test_compatible_means_down_to_that_version(
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


def test_without_leave_to_migrate_an_empty_database_is_refused_and_stays_empty(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(empty_url, migrate=False)
    for verb in (app.stats, lambda: app.enqueue("resize"), lambda: app.claim("worker-1")):
        with pytest.raises(dibs.SchemaMissing, match="0001_tasks"):
            verb()
    assert tables(engine, empty_url) == []


def test_without_leave_to_migrate_an_older_database_is_refused_naming_what_it_lacks(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_first_version(engine, empty_url)
    with pytest.raises(dibs.SchemaMissing, match=names(engine)[1]) as refused:
        open_app(empty_url, migrate=False).stats()
    assert names(engine)[0] not in str(refused.value)


def test_without_leave_to_migrate_a_current_database_works(url: str, open_app: Callable[..., Any]) -> None:
    open_app(url).queues()
    assert open_app(url, migrate=False).enqueue("resize").state == "pending"


def test_migrate_by_hand_is_leave_enough(engine: str, empty_url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(empty_url, migrate=False)
    assert app.migrate() == names(engine)
    assert app.enqueue("resize").id == 1


def test_a_refused_client_works_as_soon_as_somebody_has_migrated(empty_url: str, open_app: Callable[..., Any]) -> None:
    app = open_app(empty_url, migrate=False)
    with pytest.raises(dibs.SchemaMissing):
        app.stats()
    open_app(empty_url).migrate()
    assert app.stats().depth == {}


def test_both_engines_have_the_same_migrations() -> None:
    versions = [[(each.version, each.name, each.compatible) for each in known(engine)] for engine in BOOKS]
    assert versions[0] == versions[1]
    assert [version for version, *_ in versions[0]] == list(range(1, len(versions[0]) + 1))


PROGRAM = """
import sys, dibs
sys.stdin.readline()
with dibs.Dibs(sys.argv[1]) as app:
    app.enqueue("resize", {"n": int(sys.argv[2])})
"""


def test_eight_processes_open_an_empty_database_at_once_and_each_migration_is_applied_once(
    engine: str, empty_url: str
) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, empty_url, str(n)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    errors = [program.communicate(timeout=60)[1] for program in programs]
    assert errors == [""] * 8
    assert [row[1] for row in applied(empty_url)] == names(engine)
    with dibs.Dibs(empty_url) as app:
        assert sorted(task.params["n"] for task in app.list_tasks()) == list(range(8))


# Keys belong to queues


def before_queue_keys(engine: str) -> int:
    """How many migrations come before it."""
    return names(engine).index("0009_queue_keys")


def test_a_database_from_before_queues_had_their_own_keys_keeps_its_keys(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_version(engine, empty_url, before_queue_keys(engine))
    content = fingerprint("resize", {"image": 7})
    run_sql(
        empty_url,
        f"UPDATE dibs_tasks SET key = 'k', key_content = '{content}'",
        "INSERT INTO dibs_workflows (name, on_failure, queues, created_at, key, key_content)"
        """ VALUES ('order', 'fail', '["default"]', 0, 'k', 'another graph'), ('empty', 'fail', '[]', 0, 'e', 'x')""",
        "INSERT INTO dibs_workers (id, incarnation, metadata, started_at, heartbeat_at)"
        " VALUES ('w', 'i-1', '{\"host\":\"a\"}', 0, 0)",
    )
    app = open_app(empty_url)
    again = app.enqueue("resize", {"image": 7}, key="k")
    assert (again.id, again.deduplicated) == (1, True)
    with pytest.raises(dibs.KeyConflict):
        app.enqueue("other", key="k")
    assert not app.enqueue("other", key="k", queue="mail").deduplicated
    with pytest.raises(dibs.KeyConflict) as refused:
        app.start_workflow(dibs.NewWorkflow(name="order", steps=[], key="k"))
    assert refused.value.workflow_id == 1
    assert app.get_workflow(2).queues == ["default"]
    assert [(worker.id, worker.metadata) for worker in app.workers()] == [("w", {"host": "a"})]
    app.heartbeat("w", incarnation="i-1")
    assert len(app.workers()) == 1


def test_a_step_whose_failure_was_ignored_before_the_migration_is_no_dead_letter(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_version(engine, empty_url, before_queue_keys(engine))
    failed = AN_OLD_ENQUEUE.replace("'pending'", "'failed'").replace("ready_at)", "ready_at, finished_at, workflow_id)")
    run_sql(
        empty_url,
        *(failed.replace("0, 0, 0)", f"0, 0, 0, 1, {workflow})") for workflow in ("1", "1", "NULL")),
        "INSERT INTO dibs_workflows (name, on_failure, queues, created_at) VALUES ('order', 'ignore', '[]', 0)",
        "INSERT INTO dibs_steps (task_id, workflow_id, name, kind, on_failure, waits, passed)"
        " VALUES (2, 1, 'a', 'task', 'ignore', 0, true), (3, 1, 'b', 'task', 'fail', 0, false)",
    )
    app = open_app(empty_url)
    assert sorted(task.id for task in app.list_dead()) == [3, 4]


def test_a_database_without_retention_rules_keeps_its_tasks_and_gets_the_defaults(
    engine: str, empty_url: str, open_app: Callable[..., Any]
) -> None:
    make_version(engine, empty_url, 8)
    run_sql(empty_url, "UPDATE dibs_tasks SET state = 'completed', finished_at = 1, ready_at = NULL")
    app = open_app(empty_url)
    app.set_retention("completed", None, type="resize")
    assert app.upkeep().pruned == 0
    assert app.get(1).state == "completed"
    app.remove_retention("completed", type="resize")
    assert app.upkeep().pruned == 1
