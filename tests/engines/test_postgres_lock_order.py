"""A write to several claimed tasks locks them in the order of their ids, with every plan of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from dibs import Failure
from dibs.model.claim import Cancelled, Claim, ClaimRequest, Failed, Released
from dibs.model.task import NewTask
from dibs.store.contract import Store
from dibs.store.open import open_store
from tests.helpers.databases import run_sql
from tests.helpers.waiting import until

pytestmark = pytest.mark.own_connections

TASKS = 300
AS_THEY_LIE = ("enable_indexscan", "enable_bitmapscan", "enable_nestloop", "enable_mergejoin")
"""Without these the planner reads the whole table, row by row as they lie there."""

SPEAKERS: dict[str, Callable[[Store, list[Claim]], Any]] = {
    "start": lambda store, claims: store.queue.start(claims),
    "renew": lambda store, claims: store.queue.renew(claims, 60_000_000),
    "progress": lambda store, claims: store.queue.progress([(claim, 1, None) for claim in claims]),
    "fail": lambda store, claims: store.queue.finish([(claim, Failed(Failure("Broken", "no"))) for claim in claims]),
    "release": lambda store, claims: store.queue.finish([(claim, Released()) for claim in claims]),
    "stop": lambda store, claims: store.queue.finish([(claim, Cancelled()) for claim in claims]),
}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("speaker", SPEAKERS)
def test_a_statement_that_waits_for_a_task_has_locked_the_lower_ids_and_no_higher_ids(url: str, speaker: str) -> None:
    store, claims = claimed(url)
    middle = sorted(claim.task_id for claim in claims)[TASKS // 2]
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url) as somebody:
        somebody.execute("SELECT FROM dibs_tasks WHERE id = %s FOR UPDATE", [middle])
        speaking = pool.submit(store.run, SPEAKERS[speaker](store, claims))
        until(lambda: run_sql(url, WAITING) == [(1,)])
        free = {task_id for (task_id,) in run_sql(url, FREE)}
        somebody.rollback()
        speaking.result(30)
    store.close()
    assert free == {claim.task_id for claim in claims if claim.task_id > middle}


def claimed(url: str) -> tuple[Store, list[Claim]]:
    """Claims on tasks that lie in the table in another order than that of their ids."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    run_sql(url, *(f"ALTER DATABASE {name} SET {setting} = off" for setting in AS_THEY_LIE))
    store = open_store(url)
    store.run(store.queue.enqueue([NewTask("t") for _ in range(20 * TASKS)]))
    claims = store.run(store.queue.claim(ClaimRequest(worker_id="w", count=TASKS, lease=60.0)))
    run_sql(url, UPSIDE_DOWN, "ANALYZE dibs_tasks")
    return store, claims


UPSIDE_DOWN = """
    DO $$ DECLARE task record; BEGIN
        FOR task IN SELECT id FROM dibs_tasks WHERE state = 'claimed' ORDER BY id DESC LOOP
            UPDATE dibs_tasks SET progress_message = repeat('x', 2000) WHERE id = task.id;
        END LOOP;
    END $$"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"""
FREE = "SELECT id FROM dibs_tasks WHERE state = 'claimed' FOR UPDATE SKIP LOCKED"
