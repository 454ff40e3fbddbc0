"""The pulse: what a watcher is told is the truth, and it costs nearly nothing when nobody watches."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest

import dibs
from dibs.server import pulse
from tests.helpers.browsing import Visitor
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.pulses import watching
from tests.helpers.waiting import until
from tests.server.conftest import Served

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pulse beats often, so that nobody has to wait for it."""
    monkeypatch.setattr(pulse, "EVERY", 0.02)
    monkeypatch.setattr(pulse, "ROLL_EVERY", 0.02)
    monkeypatch.setattr(pulse, "RATIO", 1)


def depth(app: dibs.Dibs) -> dict[str, int]:
    return {state: app.stats().depth.get(state, 0) for state in dibs.State}


def make_some_work(url: str, seed: int) -> None:
    with dibs.Dibs(url) as app:
        for n in range(10):
            app.enqueue_many([dibs.NewTask("resize", queue=f"queue-{(seed + n) % 3}") for _ in range(10)])
            for claim in app.claim_many(f"worker-{seed}", 7):
                app.fail(claim, "no") if claim.task.id % 3 == 0 else app.complete(claim)


def test_after_a_burst_the_live_numbers_are_the_truth(url: str, app: dibs.Dibs, serve: Callable[..., Served]) -> None:
    server = serve()
    app.enqueue("resize")
    with watching(server.client()) as heard:
        heard.until(lambda told: told["depth"]["pending"] == 1)
        writers = [threading.Thread(target=make_some_work, args=(url, seed)) for seed in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        truth = depth(app)
        told = heard.until(lambda told: told["depth"] == truth)
        assert told["rates"]["enqueued"] > 0
        assert sum(truth.values()) == 401


@ON_POSTGRES
def test_moves_alone_lead_to_the_truth_as_well(
    url: str, app: dibs.Dibs, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first count there is no other."""
    monkeypatch.setattr(pulse, "RATIO", 10**9)
    monkeypatch.setattr(pulse, "AT_MOST", 0.05)
    server = serve()
    with watching(server.client()) as heard:
        heard.until(lambda told: told["at"])
        with psycopg.connect(url) as slow:
            app.on(slow).enqueue("late")
            writers = [threading.Thread(target=make_some_work, args=(url, seed)) for seed in range(3)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            without = depth(app)
            heard.until(lambda told: told["depth"] == without)
            slow.commit()
        truth = depth(app)
        heard.until(lambda told: told["depth"] == truth)
    assert server.service.pulse.counts == 1


@pytest.mark.usefixtures("quickly")
def test_what_no_history_tells_of_is_right_again_after_the_next_count(
    url: str, app: dibs.Dibs, serve: Callable[..., Served]
) -> None:
    app.enqueue_many([dibs.NewTask("resize") for _ in range(3)])
    with watching(serve().client()) as heard:
        heard.until(lambda told: told["depth"]["pending"] == 3)
        run_sql(url, "DELETE FROM dibs_tasks")
        heard.until(lambda told: told["depth"]["pending"] == 0)


@pytest.mark.usefixtures("quickly")
def test_the_version_is_another_one_only_when_something_changed(app: dibs.Dibs, serve: Callable[..., Served]) -> None:
    with watching(serve().client()) as heard:
        first = heard.until(lambda told: told["at"])["version"]
        stream = iter(heard)
        assert {next(stream)["version"] for _ in range(5)} == {first}
        app.enqueue("resize")
        second = heard.until(lambda told: told["depth"]["pending"] == 1)["version"]
        assert second != first
        app.pause("default")
        heard.until(lambda told: told["version"] != second)


@pytest.mark.usefixtures("quickly")
def test_one_sample_is_kept_of_each_minute_however_many_servers_there_are(
    url: str, app: dibs.Dibs, serve: Callable[..., Served], clock: Clock
) -> None:
    servers = [serve(clock=clock) for _ in range(2)]
    with watching(servers[0].client()) as one, watching(servers[1].client()) as two:
        for _ in range(4):
            now = clock() / 1e6
            for heard in (one, two):
                heard.until(lambda told, now=now: told["at"] >= now)
            app.enqueue("resize")
            clock.advance(60)
    samples = run_sql(url, "SELECT at, body FROM dibs_samples ORDER BY at")
    minutes = [at for at, _ in samples]
    assert len(minutes) >= 3
    assert minutes == list(range(minutes[0], minutes[-1] + 1, 60_000_000))
    assert max(json.loads(body)["whole"][0][2] for _, body in samples) >= 2


@pytest.mark.usefixtures("quickly")
def test_nobody_looks_while_nobody_watches(
    app: dibs.Dibs, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "WATCHED_FOR", 0.1)
    monkeypatch.setattr(pulse, "JITTER", 30.0)
    server = serve()
    taken = server.service.pulse
    assert taken.looks == 0
    client = server.client()
    assert client.get("/queues").status_code == 200
    until(lambda: taken.looks > 0)
    until(lambda: not taken.watched)
    time.sleep(0.1)  # the look that was under way
    looks = taken.looks
    time.sleep(0.4)  # twenty looks, if somebody watched
    assert taken.looks <= looks + 1  # a minute may have begun
    with watching(client) as heard:
        heard.until(lambda _: taken.looks > looks + 3)
    until(lambda: not taken.watched)


@pytest.fixture
def slow_count(url: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Served], None]]:
    """Makes every count of a server last until the test is over."""
    let_go = threading.Event()
    locked: list[Any] = []

    def held(begin: Callable[[], Any]) -> Any:
        let_go.wait(20)
        return (yield from begin())

    def slow(server: Served) -> None:
        if engine == "postgres":
            locked.append(psycopg.connect(url))
            locked[0].execute("LOCK TABLE dibs_tasks IN ACCESS EXCLUSIVE MODE")
            return
        store: Any = server.service.pulse._store
        tally = store.tally

        def slow_tally() -> Any:
            operation = tally()
            return replace(operation, begin=lambda: held(operation.begin))

        monkeypatch.setattr(store, "tally", slow_tally)

    yield slow
    let_go.set()
    for connection in locked:
        connection.close()


def test_a_slow_count_slows_no_page(
    app: dibs.Dibs, serve: Callable[..., Served], slow_count: Callable[[Served], None]
) -> None:
    app.enqueue("resize")
    server = serve()
    slow_count(server)
    client = server.client()
    for _ in range(3):
        began = time.monotonic()
        page = client.get("/queues", headers={"accept": "text/html"})
        assert page.status_code == 200
        assert "Counting" in page.text
        assert time.monotonic() - began < 1.0
    assert server.service.pulse.counts == 0


# Who may hear it, and for how long


@pytest.fixture
def sign_in() -> Iterator[Callable[..., httpx.Client]]:
    """Clients with the cookie of who signed in with a new key."""
    visitors: list[Visitor] = []

    def enter(server: Served, *scopes: str, **options: Any) -> httpx.Client:
        visitors.append(Visitor(server.url))
        visitors[-1].sign_in(server.key(*scopes, **options).key)
        return visitors[-1].http

    yield enter
    for visitor in visitors:
        visitor.close()


@pytest.mark.usefixtures("quickly")
def test_who_may_see_some_queues_hears_of_nothing_else(
    app: dibs.Dibs, serve: Callable[..., Served], sign_in: Callable[..., httpx.Client]
) -> None:
    server = serve(keys=True)
    app.enqueue("resize", queue="mine")
    app.enqueue_many([dibs.NewTask("resize", queue="theirs") for _ in range(5)])
    with watching(sign_in(server, "read", queues=["mine"])) as heard:
        told = heard.until(lambda told: told["depth"]["pending"])
        assert told["depth"]["pending"] == 1
        assert told["wait"] is None
        before = told["version"]
        app.enqueue("resize", queue="theirs")
        app.enqueue("resize", queue="mine")
        told = heard.until(lambda told: told["version"] != before)
        assert told["depth"]["pending"] == 2


@pytest.mark.usefixtures("quickly")
def test_the_stream_ends_when_its_key_is_revoked(
    app: dibs.Dibs, serve: Callable[..., Served], sign_in: Callable[..., httpx.Client]
) -> None:
    server = serve(keys=True)
    with watching(sign_in(server, "read")) as heard:
        heard.until(lambda told: told["at"])
        [key] = app.keys()
        app.revoke_key(key.id)
        assert heard.ends()


def test_the_stream_ends_when_the_server_stops(serve: Callable[..., Served]) -> None:
    server = serve()
    with watching(server.client()) as heard:
        heard.until(lambda told: told["at"])
        server.service.pulse.close()
        assert heard.ends()


def test_a_stranger_hears_nothing(serve: Callable[..., Served]) -> None:
    answer = serve(keys=True).client().get("/live", headers={"accept": "text/event-stream"})
    assert answer.status_code == 401
