"""A paused task type is not claimed; a task whose queue or type is paused waits until both are resumed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dibs import NewTask, NotClaimable, Order, State
from dibs.model.claim import Filters
from dibs.store.operations import registry
from tests.helpers.clients import Clock, run
from tests.helpers.databases import run_sql
from tests.helpers.tasks import moment

FILTERS: list[dict[str, Any]] = [
    {},
    {"queues": ["default"]},
    {"queues": ["default", "mail"]},
    {"types": ["draw", "read"]},
    {"types": ["draw"]},
    {"queues": ["default", "mail"], "types": ["draw", "read"]},
    {"max_attempts_remaining": 2},
]


def fill(app: Any, count: int, kind: str = "draw", **options: Any) -> list[int]:
    return [task.id for task in app.enqueue_many([NewTask(kind, **options)] * count)]


def parked(url: str) -> list[int]:
    return [row[0] for row in run_sql(url, "SELECT id FROM dibs_tasks WHERE parked ORDER BY id")]


def drain(app: Any, **options: Any) -> list[int]:
    ids = []
    while claim := app.claim("worker-1", **options):
        ids.append(claim.task_id)
    return ids


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause parks two tasks itself, and a resume unparks two."""
    monkeypatch.setattr(registry, "PAUSE_BATCH", 2)
    monkeypatch.setattr(registry, "RESUME_BATCH", 2)


# Claims


@pytest.mark.parametrize("order", Order)
def test_no_claim_takes_a_task_of_a_paused_type(app: Any, order: str) -> None:
    fill(app, 3, "draw", priority=5)
    app.pause_type("draw")
    fill(app, 3, "draw", priority=5)  # these are not parked yet
    for filters in FILTERS:
        if filters.get("types") == ["draw"]:
            assert app.claim("worker-1", order=order, **filters) is None
            continue
        [free] = fill(app, 1, "read")
        assert [task.id for task in run(app, app._store.queue.peek(Filters(count=5, order=order, **filters)))] == [free]
        assert drain(app, order=order, **filters) == [free]


def test_a_resumed_type_is_claimed_again_in_its_order(app: Any) -> None:
    low, high = fill(app, 2), fill(app, 2, priority=1)
    app.pause_type("draw")
    assert drain(app) == []
    app.resume_type("draw")
    assert drain(app) == [*high, *low]


def test_tasks_of_a_paused_type_can_be_enqueued_and_running_tasks_go_on(app: Any) -> None:
    fill(app, 1)
    held = app.claim("worker-1")
    app.pause_type("draw")
    assert app.enqueue("draw").state is State.PENDING
    assert app.complete(held).state is State.COMPLETED
    assert app.claim("worker-1") is None


def test_a_claim_passes_more_tasks_of_a_paused_type_than_a_scan_reads(app: Any) -> None:
    app.pause_type("draw")
    fill(app, 700, priority=1)
    [free] = fill(app, 1, "read")
    assert drain(app) == [free]


def test_a_claim_by_id_is_refused_with_what_is_paused(app: Any) -> None:
    [task_id] = fill(app, 1)
    app.pause_type("draw")
    with pytest.raises(NotClaimable, match="its type 'draw' is paused"):
        app.claim_by_id(task_id, "worker-1")
    app.pause("default")
    with pytest.raises(NotClaimable, match="its queue 'default' is paused and its type 'draw' is paused"):
        app.claim_by_id(task_id, "worker-1")
    app.resume_type("draw")
    with pytest.raises(NotClaimable, match="its queue 'default' is paused"):
        app.claim_by_id(task_id, "worker-1")
    app.resume("default")
    assert app.claim_by_id(task_id, "worker-1").task_id == task_id


@pytest.mark.parametrize("first", ["queue", "type"])
def test_a_task_waits_until_its_queue_and_its_type_are_resumed(app: Any, first: str) -> None:
    ids = fill(app, 3)
    app.pause("default")
    app.pause_type("draw")
    resumes = [lambda: app.resume("default"), lambda: app.resume_type("draw")]
    for resume in resumes if first == "queue" else resumes[::-1]:
        assert drain(app) == []
        app.upkeep()
        assert drain(app) == []
        resume()
    assert drain(app) == ids


# What is shown


def test_paused_types_are_listed_and_explained(app: Any, clock: Clock) -> None:
    [task_id] = fill(app, 1)
    app.register_type("draw", None, {})
    app.pause_type("draw")
    app.pause_type("unknown")
    app.pause_type("draw")  # a second time changes nothing
    assert [(each.name, each.paused_at) for each in app.paused_types()] == [
        ("draw", moment(clock)), ("unknown", moment(clock)),
    ]  # fmt: skip
    assert app.get_type("draw").paused_at == moment(clock)
    assert [each.paused_at for each in app.list_types()] == [moment(clock)]
    reason = app.explain(task_id).reasons[0]
    assert (reason.code, "'draw' is paused since" in reason.message) == ("type_paused", True)
    app.resume_type("draw")
    app.resume_type("unknown")
    assert (app.paused_types(), app.get_type("draw").paused_at) == ([], None)
    assert "paused" not in str(app.explain(task_id))


def test_a_paused_queue_is_no_paused_type(app: Any) -> None:
    fill(app, 1, "draw", queue="draw")
    app.pause_type("draw")
    assert [(queue.name, queue.paused) for queue in app.queues()] == [("draw", False)]
    app.pause("read")
    assert [each.name for each in app.paused_types()] == ["draw"]


# Parking


@pytest.mark.database("parking is upkeep that a server does by itself")
def test_a_pause_parks_the_tasks_of_the_type_in_every_queue(app: Any, url: str, small_batches: None) -> None:
    ids = [*fill(app, 2), *fill(app, 2, queue="mail")]
    other = fill(app, 1, "read")
    app.pause_type("draw")
    assert parked(url) == ids[:2]
    app.upkeep()
    assert parked(url) == ids
    assert drain(app) == other
    app.resume_type("draw")
    assert parked(url) == ids[2:]
    assert app.explain(ids[-1]).reasons[0].code == "type_resuming"
    app.upkeep()
    assert (parked(url), run_sql(url, "SELECT count(*) FROM dibs_pauses WHERE parked")) == ([], [(0,)])


@pytest.mark.database("parking is upkeep that a server does by itself")
@pytest.mark.parametrize("parked_by", ["queue", "type"])
@pytest.mark.parametrize("resumed", ["queue", "type"])
def test_a_task_with_two_pauses_stays_parked_for_the_one_that_holds(
    app: Any, url: str, small_batches: None, parked_by: str, resumed: str
) -> None:
    """Without end, upkeep would put the tasks back for one pause and park them again for the other."""
    ids = fill(app, 7)
    pauses = [lambda: app.pause("default"), lambda: app.pause_type("draw")]
    for pause in pauses if parked_by == "queue" else pauses[::-1]:
        pause()
        app.upkeep()
    assert parked(url) == ids
    (lambda: app.resume("default"), lambda: app.resume_type("draw"))[resumed == "type"]()
    app.upkeep()
    assert parked(url) == ids
    flags = run_sql(url, "SELECT scope FROM dibs_pauses WHERE parked")
    assert flags == [("type",) if resumed == "queue" else ("queue",)]
    assert drain(app) == []
    (lambda: app.resume("default"), lambda: app.resume_type("draw"))[resumed == "queue"]()
    app.upkeep()
    assert parked(url) == []
    assert sorted(drain(app)) == ids


@pytest.mark.database("parking is upkeep that a server does by itself")
def test_a_resume_parks_only_the_tasks_with_another_pause(app: Any, url: str) -> None:
    draws, reads = fill(app, 3), fill(app, 3, "read")
    app.pause("default")
    app.pause_type("draw")
    app.resume("default")
    assert parked(url) == draws
    assert drain(app) == reads


@pytest.mark.database("parking is upkeep that a server does by itself")
def test_a_parked_task_of_a_paused_type_can_be_cancelled_and_retried(app: Any, url: str) -> None:
    [task_id] = fill(app, 1)
    app.pause_type("draw")
    assert app.cancel(task_id).state is State.CANCELLED
    assert parked(url) == []
    app.resume_type("draw")
    app.retry(task_id)
    app.pause("default")
    app.upkeep()
    app.resume("default")
    assert drain(app) == [task_id]


# Races


@pytest.mark.database("programs pause and resume while others enqueue, claim and do upkeep")
def test_no_task_is_lost_when_pauses_and_resumes_race(
    url: str, open_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PAUSE_BATCH", 3)
    monkeypatch.setattr(registry, "RESUME_BATCH", 3)
    apps = [open_app(url) for _ in range(5)]
    claimed: list[int] = []

    def enqueue(app: Any) -> None:
        for number in range(60):
            fill(app, 2, ("draw", "read")[number % 2], queue=("default", "mail")[number % 3 == 0])

    def hold(app: Any, pause: str, resume: str, name: str) -> None:
        for _ in range(15):
            getattr(app, pause)(name)
            app.upkeep()
            getattr(app, resume)(name)

    with ThreadPoolExecutor(5) as threads:
        jobs = [
            threads.submit(enqueue, apps[0]),
            threads.submit(hold, apps[1], "pause", "resume", "default"),
            threads.submit(hold, apps[2], "pause_type", "resume_type", "draw"),
            threads.submit(hold, apps[3], "pause_type", "resume_type", "draw"),
            threads.submit(lambda: [claimed.extend(drain(apps[4])) for _ in range(20)]),
        ]
        for job in jobs:
            job.result()
    apps[0].upkeep()
    claimed += drain(apps[0])
    assert len(claimed) == len(set(claimed)) == 120
    assert parked(url) == []


@pytest.mark.database("a pause and an enqueue at the same moment")
def test_a_task_that_is_enqueued_while_its_type_is_being_paused_is_not_claimed_afterwards(
    url: str, open_app: Callable[..., Any]
) -> None:
    one, two, three = (open_app(url) for _ in range(3))
    with ThreadPoolExecutor(2) as threads:
        storm = [threads.submit(fill, app, 5) for app in (one, two) for _ in range(20)]
        three.pause_type("draw")
        assert drain(three) == []
        for each in storm:
            each.result()
    assert drain(three) == []
    three.upkeep()
    assert len(parked(url)) == 200
