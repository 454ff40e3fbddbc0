"""The cost of claims with limits depends neither on the number of blocked tasks nor on the number of full groups.

In `make proof`: 100,000 blocked tasks in 10,000 full groups stand before the task that is claimed. A claim in another
order than `priority` also reads some hundreds of the backlogs that wait for a permit, and no more.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Completed, NewTask
from dibs.model.claim import ClaimRequest
from dibs.store.open import open_store
from dibs.store.operations.admission import ALL_ORDERS_REACH
from dibs.store.sqlite.connection import clock, connect
from tests.helpers.databases import run_sql, sqlite_path
from tests.helpers.million import TABLES
from tests.helpers.plans import Work, explain_postgres, explain_sqlite

pytestmark = [pytest.mark.own_connections, pytest.mark.timeout(600)]

FLOW_TABLES = {"dibs_backlogs", "dibs_counters", "dibs_groups", "dibs_signals"}
"""Tables whose rows a claim may not all read."""

HOUR = 3600.0

FULL, BLOCKED = 10_000, 100_000
"""Groups without a free permit, and tasks that wait for them, all before the tasks that are claimed."""

FEW_FULL, FEW_BLOCKED = 100, 1000
"""The database with which the large one is compared."""


def crowded(app: dibs.Dibs, full: int, blocked: int) -> None:
    """Let so many tasks of so many full groups wait, ten more in groups with room, and one permit be returned."""
    app.set_limit("tenant", max=1, per="group")
    app.set_limit("stripe", max=full + 5)
    app.set_queue("fair", fair=True)
    each = blocked // full
    for start in range(0, full, 500):
        groups = [f"group-{n}" for n in range(start, min(start + 500, full))]
        for queue in ("default", "fair"):
            app.enqueue_many(
                NewTask("t", queue=queue, limits=["tenant", "stripe"], group=group, priority=5)
                for group in groups
                for _ in range(1 + each // 2)
            )
    held = []
    while claims := app.claim_many("w", 1000, queues=["default"], lease=HOUR):
        held += claims
    app.claim_many("w", 1, queues=["fair"], lease=HOUR)
    assert len(held) == full
    for queue in ("default", "fair"):
        app.enqueue_many(NewTask("t", queue=queue, limits=["tenant"], group=f"free-{n}") for n in range(10))
    app.claim_many("w", 2, lease=HOUR)
    app.complete(held[full // 2])


def claims() -> dict[str, ClaimRequest]:
    return {
        "one": ClaimRequest(worker_id="w"),
        "of a queue": ClaimRequest(worker_id="w", queues=["default"]),
        "of a fair queue": ClaimRequest(worker_id="w", queues=["fair"]),
        "ten of a type": ClaimRequest(worker_id="w", types=["t"], count=10),
        "the oldest": ClaimRequest(worker_id="w", order="fifo"),
        "the newest of a fair queue": ClaimRequest(worker_id="w", queues=["fair"], order="lifo"),
    }


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_claim_on_postgres_passes_over_full_groups_without_reading_them(url: str) -> None:
    with dibs.Dibs(url) as app:
        crowded(app, FULL, BLOCKED)
        run_sql(url, "VACUUM ANALYZE")
    with closing(open_store(url)) as store, psycopg.connect(url) as connection:
        for planned in ("force_custom_plan", "force_generic_plan"):
            connection.execute(f"SET plan_cache_mode = {planned}".encode())
            connection.commit()
            for what, request in claims().items():
                works = explain_postgres(connection, store.queue.claim(request))
                assert any(work.name == "claim_limited" for work in works), what
                for work in works:
                    rows = sum(rows_of_flow(work.plan))
                    print(planned, what, work.name, f"{work.rows:.0f} rows, {rows:.0f} of flow, {work.pages} pages")
                    assert work.rows + rows <= 500, (planned, what, work)
                    assert work.pages <= 3000, (planned, what, work)
                    assert not work.scanned & set(TABLES), (planned, what, work)
                assert len(works) <= 30, [work.name for work in works]


def rows_of_flow(plan: dict[str, Any]) -> list[float]:
    """The rows of the tables of backlogs and counters that each part of a plan reads."""
    rows = [count for child in plan.get("Plans", ()) for count in rows_of_flow(child)]
    if plan.get("Relation Name") in FLOW_TABLES and plan["Node Type"].endswith("Scan"):
        rows.append((plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"])
    return rows


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_claim_on_sqlite_takes_no_more_steps_past_full_groups(url: str, tmp_path: Any) -> None:
    few = f"sqlite:///{tmp_path}/few.db"
    with dibs.Dibs(url) as many_app, dibs.Dibs(few) as few_app:
        crowded(many_app, FULL, BLOCKED)
        crowded(few_app, FEW_FULL, FEW_BLOCKED)
    for what, request in claims().items():
        small, large = explained(few, request), explained(url, request)
        assert any(work.name == "claim_limited" for work in large), what
        steps = [sum(work.rows for work in works) for works in (small, large)]
        print(what, steps, [(work.name, work.rows) for work in large])
        assert steps[1] <= 1.5 * steps[0] + 500, (what, steps)
        assert len(large) <= len(small) + 2


def explained(url: str, request: ClaimRequest) -> list[Work]:
    with closing(open_store(url)) as store, closing(connect(Path(sqlite_path(url)))) as connection:
        return explain_sqlite(connection, store.queue.claim(request), clock())


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_every_free_permit_is_used_past_full_groups(url: str) -> None:
    """The claim that reads few rows takes all that it may take: ten groups of each queue have room."""
    with dibs.Dibs(url) as app:
        crowded(app, FEW_FULL, FEW_BLOCKED)
        claims = app.claim_many("w", 1000)
        groups = [claim.task.group for claim in claims]
        assert len(groups) == len(set(groups))
        assert sum(group.startswith("free-") for group in groups if group) >= 8
        app.finish([(claim, Completed()) for claim in claims])


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_claim_on_sqlite_takes_no_more_steps_beside_many_groups_with_room(url: str, tmp_path: Path) -> None:
    few = f"sqlite:///{tmp_path}/few.db"
    for where, groups in ((few, 50), (url, 2000)):
        with dibs.Dibs(where) as app:
            app.set_limit("tenant", max=1, per="group")
            app.enqueue_many(NewTask("t", limits=["tenant"], group=f"group-{n}") for n in range(groups))
            app.claim("w")
    small, large = (sum(work.rows for work in explained(where, ClaimRequest(worker_id="w"))) for where in (few, url))
    assert large <= 1.5 * small, (small, large)


def shared(app: dibs.Dibs, groups: int) -> None:
    """Let tasks of so many groups wait for one limit, of which one permit is returned."""
    app.set_limit("stripe", max=5)
    for start in range(0, groups, 1000):
        app.enqueue_many(NewTask("t", limits=["stripe"], group=f"group-{start + n}") for n in range(1000))
    held: list[Any] = []
    for _ in range(3):  # register all signals, and close all backlogs
        held += app.claim_many("w", 1000, lease=HOUR)
    assert len(held) == 5
    app.complete(held[0])


IN_OTHER_ORDERS = {order: ClaimRequest(worker_id="w", order=order) for order in ("fifo", "lifo", "priority_asc")}


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_claim_in_another_order_on_postgres_reads_a_part_of_the_backlogs_that_wait(url: str) -> None:
    with dibs.Dibs(url) as app:
        shared(app, FULL)
        run_sql(url, "VACUUM ANALYZE")
    with closing(open_store(url)) as store, psycopg.connect(url) as connection:
        for order, request in IN_OTHER_ORDERS.items():
            works = explain_postgres(connection, store.queue.claim(request))
            assert any(work.name == "open_these" for work in works), order
            for work in works:
                rows = work.rows + sum(rows_of_flow(work.plan))
                print(order, work.name, f"{rows:.0f} rows, {work.pages} pages")
                assert rows <= 3 * ALL_ORDERS_REACH, (order, work)
                assert work.pages <= 10 * ALL_ORDERS_REACH, (order, work)
                assert not work.scanned & set(TABLES), (order, work)
            assert len(works) <= 30, [work.name for work in works]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_claim_in_another_order_on_sqlite_takes_no_more_steps_past_backlogs_that_wait(
    url: str, tmp_path: Path
) -> None:
    few = f"sqlite:///{tmp_path}/few.db"
    with dibs.Dibs(url) as many_app, dibs.Dibs(few) as few_app:
        shared(many_app, FULL)
        shared(few_app, 1000)
    for order, request in IN_OTHER_ORDERS.items():
        small, large = explained(few, request), explained(url, request)
        assert any(work.name == "open_these" for work in large), order
        steps = [sum(work.rows for work in works) for works in (small, large)]
        print(order, steps, [(work.name, work.rows) for work in large])
        assert steps[1] <= 1.1 * steps[0], (order, steps)
        assert len(large) == len(small)
