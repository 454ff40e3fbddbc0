"""The figures of a worker: its outcomes, what waits for it in the store, and what holds tasks up."""

from __future__ import annotations

from typing import Any

import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.worker import figures
from dibs.worker.figures import OutcomeTotals, WaitingReader, WaitingTasks, WorkerFigures
from dibs.worker.store_access import StoreAccess
from tests.helpers.waiting import until

FREE = WorkerFigures(free=1)


@pytest.fixture(autouse=True)
def _read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "REST", 0)
    monkeypatch.setattr(figures, "SERVED_INTERVAL", 0.0)


def reader(app: dibs.Dibs, *queues: str) -> WaitingReader:
    return WaitingReader(StoreAccess(app._store, None), queues or None, ["mail", "pay", "nap"])


def held_up_by(app: dibs.Dibs, *queues: str) -> list[str]:
    waiting = reader(app, *queues).read(FREE)
    assert waiting is not None
    return list(waiting.held_up_by)


def test_the_waiting_counts_the_pending_tasks_of_the_queues_that_the_worker_serves(app: dibs.Dibs) -> None:
    assert reader(app).read(FREE) == WaitingTasks(0)
    app.enqueue_many([dibs.NewTask("mail", queue=queue) for queue in ("a", "b", "b")])
    counted = {queues: reader(app, *queues).read(FREE) for queues in ((), ("b",), ("c",))}
    assert [each and each.count for each in counted.values()] == [3, 2, 0]
    oldest = counted[()].oldest  # type: ignore[union-attr]
    assert oldest is not None
    assert 0 <= oldest < 60


def test_pauses_and_bounds_that_hold_tasks_up_are_named(app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask("mail", queue=queue) for queue in ("a", "b")])
    assert held_up_by(app) == []
    app.pause("a")
    app.pause("empty")
    app.pause_type("mail")
    app.pause_type("unknown")
    assert held_up_by(app) == ["queue a is paused", "type mail is paused"]
    assert held_up_by(app, "b") == ["type mail is paused"]
    full = reader(app, "b").read(WorkerFigures(free=1, full_queues=["b"]))
    assert full is not None
    assert full.held_up_by[0] == "queue b runs as many tasks as its bound allows"
    busy = reader(app).read(WorkerFigures(free=0))
    assert busy is not None
    assert busy.held_up_by == []


def test_limits_that_hold_tasks_up_are_named_with_the_next_start_of_a_rate(app: dibs.Dibs) -> None:
    app.set_limit("stripe", max=1)
    app.set_limit("sms", rate="1/hour")
    app.set_limit("account", max=1, per="group")
    app.set_limit("wide", max=100)
    for limit in ("stripe", "sms", "account", "wide"):
        app.enqueue_many([dibs.NewTask("pay", limits=[limit], group="g") for _ in range(2)])
    app.claim_many("worker-1", 100)
    app.enqueue("pay", limits=["wide"])
    account, sms, stripe = sorted(held_up_by(app))
    assert account == "limit account is at its maximum for 1 of 1 waiting groups"
    assert sms.startswith("limit sms allows the next start at ")
    assert sms.endswith(" UTC (rate 1/hour)")
    assert stripe == "limit stripe is at its maximum (1 of 1)"


def test_totals_count_completed_failed_and_retried_attempts(app: dibs.Dibs) -> None:
    @app.task(name="figures", max_attempts=2, backoff=[0])
    def handle(ok: bool) -> None:
        if not ok:
            raise OSError

    for ok in (True, True, False):
        handle.enqueue(ok)
    worker = app.worker()
    worker.totals = OutcomeTotals()
    with worker:
        until(lambda: app.stats().depth == {"completed": 2, "failed": 1}, 30)
        until(lambda: worker.figures.failed == 2)
        shown = worker.figures
        assert (shown.completed, shown.failed, shown.retried, shown.running) == (2, 2, 1, 0)


def test_over_http_a_key_that_may_read_has_the_waiting_and_the_key_of_a_worker_goes_without(
    app: dibs.Dibs, server_host: Any
) -> None:
    app.set_limit("stripe", max=1)
    app.enqueue_many([dibs.NewTask("pay", limits=["stripe"]) for _ in range(3)])
    app.claim("worker-1")
    worker, reads = (app.create_key("test", scopes, rate_limit="none").key for scopes in (["work"], ["work", "read"]))
    with server_host.serving(app.url, ServerConfig(port=0, access_log=False, upkeep=False)) as url:
        with dibs.Dibs(url, api_key=worker) as client:
            assert reader(client).read(FREE) is None
        with dibs.Dibs(url, api_key=reads) as client:
            assert reader(client).read(FREE) == WaitingTasks(2, None, ["limit stripe is at its maximum (1 of 1)"])


def test_the_waiting_of_a_large_store_is_read_rarely(app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "REST", 1e9)
    slow = reader(app)
    assert slow.read(FREE) == WaitingTasks(0)
    app.enqueue("mail")
    assert slow.read(FREE) == WaitingTasks(0)  # as it was read
    assert reader(app).read(FREE) != WaitingTasks(0)
