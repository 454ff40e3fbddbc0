"""Live statistics: the figures of a stream are exact, and cost nearly nothing while no client watches."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import psycopg
import pytest

import dibs
from dibs.server.statistics import live_stats, trends
from tests.helpers.browsing import Visitor
from tests.helpers.clients import Clock
from tests.helpers.databases import run_sql
from tests.helpers.live_stats import watching
from tests.helpers.waiting import let_pass, until
from tests.server.conftest import Served

ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live statistics are read often, so that no test has to wait for them."""
    monkeypatch.setattr(live_stats, "INTERVAL", 0.02)
    monkeypatch.setattr(live_stats, "WORKERS_INTERVAL", 0.02)
    monkeypatch.setattr(live_stats, "PAUSE_FACTOR", 1)


def depth(app: dibs.Dibs) -> dict[str, int]:
    return {state: app.stats().depth.get(state, 0) for state in dibs.State}


def make_some_work(url: str, seed: int) -> None:
    with dibs.Dibs(url) as app:
        for n in range(10):
            app.enqueue_many([dibs.NewTask("resize", queue=f"queue-{(seed + n) % 3}") for _ in range(10)])
            for claim in app.claim_many(f"worker-{seed}", 7):
                app.fail(claim, "no") if claim.task.id % 3 == 0 else app.complete(claim)


def test_live_statistics_are_exact_after_a_burst(url: str, app: dibs.Dibs, serve: Callable[..., Served]) -> None:
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
def test_live_statistics_are_exact_from_transitions_alone(
    url: str, app: dibs.Dibs, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first count there is no other."""
    monkeypatch.setattr(live_stats, "PAUSE_FACTOR", 10**9)
    monkeypatch.setattr(live_stats, "MAX_PAUSE", 0.05)
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
    assert server.service.live_stats.counts == 1


@pytest.mark.usefixtures("quickly")
def test_the_next_count_corrects_changes_that_are_not_in_the_history(
    url: str, app: dibs.Dibs, serve: Callable[..., Served]
) -> None:
    app.enqueue_many([dibs.NewTask("resize") for _ in range(3)])
    with watching(serve().client()) as heard:
        heard.until(lambda told: told["depth"]["pending"] == 3)
        run_sql(url, "DELETE FROM dibs_tasks")
        heard.until(lambda told: told["depth"]["pending"] == 0)


@pytest.mark.usefixtures("quickly")
def test_the_version_of_live_statistics_changes_only_with_their_content(
    app: dibs.Dibs, serve: Callable[..., Served]
) -> None:
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
def test_several_servers_keep_one_sample_per_minute(
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
def test_live_statistics_are_read_rarely_while_no_client_watches(
    app: dibs.Dibs, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_stats, "VIEW_SECONDS", 0.1)
    monkeypatch.setattr(live_stats, "MAX_SAMPLE_DELAY", 30.0)
    server = serve()
    taken = server.service.live_stats
    client = server.client()
    assert client.get("/queues").status_code == 200
    until(lambda: taken.reads > 0)
    until(lambda: not taken.watched)
    reads = taken.reads
    let_pass(0.4)  # twenty readings, if a client watched
    assert taken.reads <= reads + 2  # one was under way, and a minute may have begun
    with watching(client) as heard:
        heard.until(lambda _: taken.reads > reads + 3)
    until(lambda: not taken.watched)


def test_the_first_visitor_sees_trends_from_before_the_visit(
    app: dibs.Dibs, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IDLE_INTERVAL", "START_DELAY", "FINE_SAMPLE_INTERVAL"):
        monkeypatch.setattr(live_stats, name, 0.02)
    monkeypatch.setattr(live_stats, "IDLE_PAUSE_FACTOR", 1)
    monkeypatch.setitem(trends.WINDOWS, "15m", trends.Window(trends.FINE_SPAN, 1))  # each look is a point
    server = serve()
    app.enqueue("resize")
    until(lambda: server.service.live_stats.depths.of()["pending"] == 1)
    app.enqueue("resize")
    until(lambda: server.service.live_stats.depths.of()["pending"] == 2)
    assert not server.service.live_stats.watched
    assert {1, 2} <= set(pending(server))


def test_one_reading_is_enough_for_a_point_of_a_trend(app: dibs.Dibs, serve: Callable[..., Served]) -> None:
    app.enqueue("resize")
    server = serve()
    assert server.client().get("/metrics").status_code == 200  # for this it looks
    [[_, depth, rates, _, _]] = points(server)
    assert depth[2] == 1
    assert rates is None  # the time before is not known


def test_live_statistics_take_less_than_a_hundredth_of_a_core_while_no_client_watches() -> None:
    assert 2 / live_stats.IDLE_PAUSE_FACTOR <= 0.01
    assert live_stats.IDLE_INTERVAL >= 10


def points(server: Served, window: str = "15m") -> list[Any]:
    return list(server.client().get(f"/charts?window={window}").json()["points"])


def pending(server: Served, window: str = "15m") -> list[int]:
    return [depth[2] for _, depth, *_ in points(server, window)]


@pytest.mark.usefixtures("quickly")
def test_a_page_contains_the_version_of_its_statistics(
    app: dibs.Dibs, serve: Callable[..., Served], sign_in: Callable[..., httpx.Client]
) -> None:
    """So that what happens before it hears the first one is not missed."""
    server = serve(keys=True)
    visitor = sign_in(server, "read", queues=["mine"])
    with watching(visitor) as heard:
        before = heard.until(lambda told: told["at"])["version"]
        assert version(visitor) == before
        app.enqueue("resize", queue="mine")
        after = heard.until(lambda told: told["depth"]["pending"] == 1)["version"]
        assert version(visitor) == after != before
    assert 'name="version"' not in server.client_with(accept="text/html").get("/signin").text


def version(visitor: httpx.Client) -> str:
    found = re.search(r'<meta name="version" content="([^"]+)">', visitor.get("/queues").text)
    assert found is not None
    return found[1]


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
        statistics: Any = server.service.live_stats._store.statistics
        count_tasks = statistics.count_tasks

        def slow_count_tasks() -> Any:
            operation = count_tasks()
            return replace(operation, begin=lambda: held(operation.begin))

        monkeypatch.setattr(statistics, "count_tasks", slow_count_tasks)

    yield slow
    let_go.set()
    for connection in locked:
        connection.close()


def test_a_slow_count_delays_no_page(
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
        assert time.monotonic() - began < 10  # the count ends after the test
    assert server.service.live_stats.counts == 0


def test_until_the_first_count_has_ended_the_newest_sample_is_shown(
    url: str, engine: str, app: dibs.Dibs, serve: Callable[..., Served], slow_count: Callable[[Served], None]
) -> None:
    keep(url, seconds_ago=90, pending=4)
    keep(url, seconds_ago=30, pending=7)
    server = serve()
    slow_count(server)
    until(lambda: server.service.live_stats.depths.counted_at > 0)
    page = server.client().get("/queues", headers={"accept": "text/html"}).text
    assert "still being counted" in page
    assert ">7<" in page
    if engine == "sqlite":  # in PostgreSQL no task can be read now, and this page shows some
        page = server.client().get("/", headers={"accept": "text/html"}).text
        assert "still being counted" in page
        assert '"figure-pending">7<' in page
        assert '"figure-completed">60<' in page
    assert server.service.live_stats.counts == 0


def test_the_first_count_replaces_the_sample(url: str, app: dibs.Dibs, serve: Callable[..., Served]) -> None:
    keep(url, seconds_ago=30, pending=7)
    server = serve()
    app.enqueue("resize")
    with watching(server.client()) as heard:
        assert heard.until(lambda told: told["at"])["depth"]["pending"] == 1
    assert "still being counted" not in server.client().get("/", headers={"accept": "text/html"}).text


def test_an_old_sample_is_not_shown_as_current(
    url: str, app: dibs.Dibs, serve: Callable[..., Served], slow_count: Callable[[Served], None]
) -> None:
    keep(url, seconds_ago=1000, pending=7)
    server = serve()
    slow_count(server)
    assert "Counting" in server.client().get("/queues", headers={"accept": "text/html"}).text


@pytest.mark.parametrize(("window", "ago"), [("15m", 200), ("1h", 2000), ("24h", 20_000), ("7d", 200_000)])
def test_a_sample_that_is_written_later_is_shown_with_the_others(
    url: str, app: dibs.Dibs, serve: Callable[..., Served], window: str, ago: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read once is not read again; what came since is."""
    monkeypatch.setattr(trends, "READ_INTERVAL", 0.0)
    monkeypatch.setattr(live_stats, "START_DELAY", 1000.0)
    server = serve()
    keep(url, seconds_ago=ago, pending=4)
    assert pending(server, window)[0] == 4
    keep(url, seconds_ago=ago // 2, pending=7)
    assert pending(server, window)[:2] == [4, 7]
    assert [rates[:3] for _, _, rates, _, _ in points(server, window)[:2]] == [[2.0, 0.0, 1.0]] * 2


def keep(url: str, *, seconds_ago: int, pending: int) -> None:
    """Write down a sample, as a server does."""
    at = int(time.time() - seconds_ago) * 1_000_000
    reading = [[0, 0, pending, 0, 0, 0, 0], [120, 0, 60, 0, 0], 1.5]
    body = json.dumps({"seconds": 60.0, "whole": reading, "at": at, "queues": {"default": reading}})
    body = body.replace(" ", "")
    run_sql(url, f"INSERT INTO dibs_samples (at, body) VALUES ({at}, '{body}')")


# Access and the end of a stream


@pytest.fixture
def sign_in() -> Iterator[Callable[..., httpx.Client]]:
    """Clients with the session cookie of a new key."""
    visitors: list[Visitor] = []

    def enter(server: Served, *scopes: str, **options: Any) -> httpx.Client:
        visitors.append(Visitor(server.url))
        visitors[-1].sign_in(server.key(*scopes, **options).key)
        return visitors[-1].http

    yield enter
    for visitor in visitors:
        visitor.close()


@pytest.mark.usefixtures("quickly")
def test_a_limited_key_gets_statistics_of_its_queues_only(
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
def test_a_limited_key_does_not_learn_of_workers_of_other_queues(
    app: dibs.Dibs, serve: Callable[..., Served], sign_in: Callable[..., httpx.Client]
) -> None:
    server = serve(keys=True)
    with watching(sign_in(server, "read")) as all_of_it, watching(sign_in(server, "read", queues=["mine"])) as mine:
        before = mine.until(lambda told: told["at"])
        assert before["heartbeat"] is None
        app.heartbeat("worker-1", queues=["theirs"])
        now = all_of_it.until(lambda told: told["heartbeat"])["at"]
        told = mine.until(lambda told: told["at"] >= now)
        assert (told["heartbeat"], told["version"], told["workers"]) == (None, before["version"], 0)
        app.heartbeat("worker-2", queues=["mine", "theirs"])
        told = mine.until(lambda told: told["heartbeat"])
        assert told["version"] != before["version"]
        assert told["workers"] == 1


@ON_POSTGRES
@pytest.mark.usefixtures("quickly", "app")
def test_the_age_of_live_statistics_grows_while_the_store_does_not_answer(
    url: str, serve: Callable[..., Served]
) -> None:
    client = serve().client()

    def age() -> float:
        with watching(client) as heard:
            return float(heard.until(lambda told: told["at"])["age"])

    with watching(client) as heard, psycopg.connect(url) as holding:
        assert heard.until(lambda told: told["at"])["age"] < 1
        holding.execute("LOCK TABLE dibs_workers IN ACCESS EXCLUSIVE MODE")
        until(lambda: age() > 1.5)
        holding.commit()
        until(lambda: age() < 1)


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
        server.service.live_stats.close()
        assert heard.ends()


def test_live_statistics_need_a_key(serve: Callable[..., Served]) -> None:
    answer = serve(keys=True).client().get("/live", headers={"accept": "text/event-stream"})
    assert answer.status_code == 401
