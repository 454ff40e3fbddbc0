"""`/metrics` of a server: the figures of the database and the counters of the process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import dibs
from dibs.observe.instruments import OTHER
from dibs.server.statistics import store_metrics
from tests.helpers.clients import Clock
from tests.helpers.prometheus import check, samples
from tests.server.conftest import Served

pytestmark = pytest.mark.usefixtures("new_counts")


def seen(http: httpx.Client) -> dict[str, float]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    return samples(answer.text)


def test_promtool_accepts_the_metrics(http: httpx.Client, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue='odd "name"\\')
    app.complete(app.claim_by_id(app.enqueue("resize").id, "w"))
    app.fail(app.claim_by_id(app.enqueue("resize").id, "w"), "no", permanent=True)
    check(http.get("/metrics").text)


def test_each_queue_has_its_age_its_dead_letter_and_its_workers(
    lodge: Callable[..., Served], url: str, clock: Clock
) -> None:
    with dibs.Dibs(url, clock=clock) as app:
        app.enqueue("resize", queue="old")
        clock.advance(50)
        app.enqueue("resize", queue="new")
        app.fail(app.claim_by_id(app.enqueue("resize", queue="new").id, "w"), "no", permanent=True)
        app.heartbeat("everything")
        app.heartbeat("some", queues=["new", "newer"])
        app.heartbeat("gone", queues=["old"], leaving=True)
        clock.advance(10)
        page = seen(lodge(clock=clock).client())
    ages = {queue: page[f"dibs_queue_oldest_pending_age_seconds {queue}"] for queue in ("old", "new")}
    assert ages == {"old": 60, "new": 10}
    assert page["dibs_oldest_pending_age_seconds"] == 60
    assert (page["dibs_dead_letter_tasks old"], page["dibs_dead_letter_tasks new"]) == (0, 1)
    assert (page["dibs_queue_workers old"], page["dibs_queue_workers new"]) == (1, 2)


def test_schedules_and_workflows_are_counted_by_state(http: httpx.Client, app: dibs.Dibs) -> None:
    app.set_schedule("a", "@daily", "resize")
    app.set_schedule("b", "@daily", "resize")
    app.disable_schedule("b")
    step = dibs.NewStep(name="s", task=dibs.NewTask("resize"))
    for _ in range(2):
        started = app.start_workflow(dibs.NewWorkflow(name="w", steps=[step]))
    app.cancel_workflow(started.id)
    page = seen(http)
    assert (page["dibs_schedules enabled"], page["dibs_schedules disabled"]) == (1, 1)
    states = [page[f"dibs_workflows {state}"] for state in ("running", "finalizing", "completed", "failed")]
    assert states == [1, 0, 0, 0]
    assert page["dibs_workflows cancelled"] == 1


def test_an_expensive_count_of_workflows_is_cached_for_a_while() -> None:
    counts = [{"running": 1}, {"running": 2}, {"running": 3}]

    async def scrape() -> list[Mapping[str, int]]:
        page = store_metrics.MetricsPages()
        return [
            await page.workflows(dear),
            await page.workflows(cheap),
            await store_metrics.MetricsPages().workflows(cheap),
        ]

    async def dear() -> dict[str, int]:
        await asyncio.sleep(0.05)  # it then holds for three seconds
        return counts.pop(0)

    async def cheap() -> dict[str, int]:
        return counts.pop(0)

    assert asyncio.run(scrape()) == [{"running": 1}, {"running": 1}, {"running": 2}]


def test_the_metrics_of_the_database_depend_on_its_engine(http: httpx.Client, engine: str) -> None:
    page = seen(http)
    assert page["dibs_store_size_bytes"] > 10_000
    assert ("dibs_sqlite_wal_size_bytes" in page) == (engine == "sqlite")
    assert ("dibs_postgres_oldest_transaction_age_seconds" in page) == (engine == "postgres")


def test_counters_of_the_process_are_never_cached(http: httpx.Client, app: dibs.Dibs) -> None:
    before = seen(http)
    http.post("/api/tasks", json={"task_type": "resize", "queue": "counted", "params": {}}).raise_for_status()
    after = seen(http)
    name = "task_enqueued_total counted"
    assert after[name] - before.get(name, 0) == 1


def test_expensive_metrics_of_the_store_are_cached_for_longer(
    lodge: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = lodge()
    http, looks = served.client(), []
    reading = threading.Lock()
    take = served.service.store.schedules.list_schedules

    def slowly() -> Any:
        with reading:
            looks.append(time.monotonic())
            time.sleep(0.2)  # it is then cached for four seconds
        return take()

    monkeypatch.setattr(store_metrics, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(served.service.store.schedules, "list_schedules", slowly)
    ends = time.monotonic() + 1.5
    while time.monotonic() < ends:
        seen(http)
    assert len(looks) == 1  # for twenty times as long as it took


def test_a_limited_key_sees_metrics_of_its_queues_only(keyed: Served, app: dibs.Dibs) -> None:
    app.enqueue("resize", queue="mine")
    app.enqueue("resize", queue="theirs")
    names = {name.split(" ")[0] for name in seen(keyed.client("read", queues=["mine"]))}
    whole = {name.split(" ")[0] for name in seen(keyed.client("read"))}
    store_families = {"dibs_schedules", "dibs_workflows", "dibs_store_size_bytes"}
    assert store_families < whole
    assert not store_families & names
    assert not [name for name in names if name.startswith(("task_", "finalization_"))]
    assert "dibs_queue_oldest_pending_age_seconds" in names


def queues_on(page: str) -> dict[str, list[str]]:
    """The values of the label `queue` in each family about the database."""
    values: dict[str, list[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if "queue" in sample.labels and family.name.startswith("dibs_"):
                values.setdefault(family.name, []).append(sample.labels["queue"])
    return values


def test_metrics_have_at_most_a_hundred_queues_and_one_for_all_others(http: httpx.Client, app: dibs.Dibs) -> None:
    many = [dibs.NewTask("resize", queue=f"queue-{n:03}") for n in range(store_metrics.MAX_QUEUES + 20)]
    app.enqueue_many([*many, *many[-90:], dibs.NewTask("resize", queue=OTHER), dibs.NewTask("resize", queue=OTHER)])
    page = http.get("/metrics").text
    check(page)
    values = queues_on(page)
    assert {name for name in values if name.startswith("dibs_queue")} | {"dibs_tasks", "dibs_dead_letter_tasks"} == set(
        values
    )
    for queues in values.values():
        assert len(set(queues)) == store_metrics.MAX_QUEUES + 1
    assert {f"queue-{n:03}" for n in range(30, store_metrics.MAX_QUEUES + 20)} < set(values["dibs_queue_paused"])
    pending = {
        name: value for name, value in samples(page).items() if name.startswith("dibs_tasks ") and "pending" in name
    }
    assert sum(pending.values()) == store_metrics.MAX_QUEUES + 20 + 90 + 2
    assert pending["dibs_tasks other pending"] == 20 + 2


def test_a_hundred_queues_have_their_own_metrics_also_one_named_other(http: httpx.Client, app: dibs.Dibs) -> None:
    names = [OTHER, *(f"queue-{n:03}" for n in range(store_metrics.MAX_QUEUES - 1))]
    app.enqueue_many([dibs.NewTask("resize", queue=name) for name in names])
    assert set(queues_on(http.get("/metrics").text)["dibs_queue_workers"]) == set(names)


@pytest.mark.parametrize(
    ("served", "paused", "says"),
    [
        (["left", "right"], [], (1, 0, 60)),
        (["left"], [], (0, 0, 60)),
        (["left"], ["right"], (1, 0, 10)),
        ([], ["left", "right"], (0, 1, 60)),
    ],
)
def test_the_metrics_of_other_queues_are_those_of_the_worst_queue_that_is_not_paused(
    lodge: Callable[..., Served],
    url: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    served: list[str],
    paused: list[str],
    says: tuple[int, int, int],
) -> None:
    """So that an alert about it is one about each of them."""
    monkeypatch.setattr(store_metrics, "MAX_QUEUES", 1)
    with dibs.Dibs(url, clock=clock) as app:
        app.enqueue_many([dibs.NewTask("resize", queue="full") for _ in range(3)])
        app.enqueue("resize", queue="later", delay=3600)
        app.enqueue("resize", queue="right")
        clock.advance(50)
        app.enqueue("resize", queue="left")
        clock.advance(10)
        app.heartbeat("worker-1", queues=["full", *served])
        for queue in paused:
            app.pause(queue)
        page = seen(lodge(clock=clock).client())
    names = ("dibs_queue_workers", "dibs_queue_paused", "dibs_queue_oldest_pending_age_seconds")
    assert tuple(page[f"{name} other"] for name in names) == says
    assert page["dibs_oldest_pending_age_seconds"] == 60


# Limits and fair queues


def test_limits_have_their_use_their_maximum_and_what_waits(
    lodge: Callable[..., Served], url: str, clock: Clock
) -> None:
    with dibs.Dibs(url, clock=clock) as app:
        app.set_limit("stripe", max=1)
        app.set_limit("api", rate="100/minute")
        app.enqueue_many([dibs.NewTask("resize", limits=["stripe"]) for _ in range(3)])
        before = seen(lodge(clock=clock).client())
        assert len(app.claim_many("w", 9, lease=600)) == 1
        clock.advance(90)
        page = seen(lodge(clock=clock).client())
    names = ("dibs_limit_used", "dibs_limit_max", "dibs_limit_waiting", "dibs_limit_exhausted_seconds")
    assert [before[f"{name} stripe"] for name in names] == [0, 1, 3, 0]
    assert [page[f"{name} stripe"] for name in names] == [1, 1, 2, 90]
    assert [page.get(f"{name} api") for name in names] == [0, None, 0, 0]


def test_metrics_have_at_most_a_hundred_limits_and_one_for_all_others(http: httpx.Client, app: dibs.Dibs) -> None:
    names = [f"limit-{n:03}" for n in range(store_metrics.MAX_LIMITS + 20)]
    for name in (*names, OTHER):
        app.set_limit(name, max=2)
    app.enqueue_many([dibs.NewTask("resize", limits=[name]) for name in (*names[30:], *names, OTHER)])
    page = http.get("/metrics").text
    check(page)
    waiting = {name: value for name, value in samples(page).items() if name.startswith("dibs_limit_waiting ")}
    assert len(waiting) == store_metrics.MAX_LIMITS + 1
    assert {f"dibs_limit_waiting {name}" for name in names[30:]} < waiting.keys()
    assert sum(waiting.values()) == len(names) + len(names[30:]) + 1
    assert waiting["dibs_limit_waiting other"] == 20 + 1
    assert samples(page)["dibs_limit_max other"] == 2 * (20 + 1)


def test_a_fair_queue_says_how_far_a_group_is_behind_its_share(http: httpx.Client, app: dibs.Dibs) -> None:
    for queue in ("fair", "even"):
        app.set_queue(queue, fair=True)
    app.set_group("fair", "starved", weight=3)
    app.enqueue("nobody", queue="fair", group="starved")
    for queue in ("fair", "even"):
        app.enqueue_many([dibs.NewTask("resize", queue=queue, group=group) for group in "ab" for _ in range(5)])
    for _ in range(8):
        app.claim_many("w", 1, queues=["fair"], types=["resize"])
        app.claim_many("w", 1, queues=["even"])
    page = seen(http)
    assert page["dibs_fair_queue_claims_behind fair"] == 3 * 3
    assert page["dibs_fair_queue_claims_behind even"] == 0


def test_a_group_that_waits_for_a_limit_is_not_behind_its_share(http: httpx.Client, app: dibs.Dibs) -> None:
    app.set_queue("fair", fair=True)
    app.set_limit("tenant", max=1, per="group")
    app.enqueue_many([dibs.NewTask("resize", queue="fair", group="a", limits=["tenant"]) for _ in range(3)])
    app.enqueue_many([dibs.NewTask("resize", queue="fair", group="b") for _ in range(9)])
    app.claim_many("w", 9, queues=["fair"])
    assert seen(http)["dibs_fair_queue_claims_behind fair"] == 0
