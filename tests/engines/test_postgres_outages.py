"""Outages of PostgreSQL: the first call of a process waits as long as every other call, and the log stays readable."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.store.postgres import outages
from dibs.store.postgres import store as postgres_store
from tests.helpers.postgres import Cluster, database_url, new_data_folder
from tests.helpers.silent import silent_server
from tests.helpers.waiting import let_pass, until

pytestmark = pytest.mark.own_connections

AWAY = "postgresql://me@127.0.0.1:1/nothing"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server that no other test uses."""
    folder = Path(new_data_folder())
    own = Cluster(folder)
    try:
        yield own
    finally:
        own.stop()
        shutil.rmtree(folder)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """A second of patience instead of half a minute."""
    monkeypatch.setattr(postgres_store, "POOL_TIMEOUT", 1.0)
    return 1.0


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Reset the state of the log of outages, as in a new process."""
    monkeypatch.setattr(outages, "_outages", outages.Outages())
    caplog.set_level(logging.WARNING)
    return caplog


def test_the_first_call_waits_for_the_end_of_an_outage(cluster: Cluster, open_app: Callable[..., Any]) -> None:
    cluster.stop()
    with ThreadPoolExecutor(1) as pool:
        app = open_app(cluster.url)
        first = pool.submit(app.enqueue, "t")
        with pytest.raises(TimeoutError):
            first.result(1)
        cluster.start()
        assert first.result(30).state == "pending"


def test_the_first_call_gives_up_after_the_same_time_as_other_calls(
    impatient: float, open_app: Callable[..., Any]
) -> None:
    app = open_app(AWAY)
    for verb in (lambda: app.enqueue("t"), app.stats, app.migrate):
        began = time.monotonic()
        with pytest.raises(dibs.StoreUnavailable, match=r"within 1 seconds .*Connection refused"):
            verb()
        assert impatient <= time.monotonic() - began < impatient + 5


def test_concurrent_first_calls_wait_for_one_connection_attempt(impatient: float) -> None:
    """The callers share each attempt. One after the other, ten attempts of two seconds would take twenty seconds."""
    with silent_server() as address:
        url = f"postgresql://me@{address}/db?connect_timeout=2&sslmode=disable"
        with dibs.Dibs(url) as app, ThreadPoolExecutor(10) as pool:
            began = time.monotonic()
            calls = [pool.submit(app.stats) for _ in range(10)]
            assert all(isinstance(call.exception(40), dibs.StoreUnavailable) for call in calls)
            assert time.monotonic() - began < 12


def test_an_event_loop_continues_while_the_first_call_waits(impatient: float) -> None:
    async def ask() -> int:
        async with dibs.AsyncDibs(AWAY) as app:
            call = asyncio.ensure_future(app.claim("w", wait=1))
            turns = 0
            while not call.done():
                await asyncio.sleep(0.01)
                turns += 1
            assert isinstance(call.exception(), dibs.StoreUnavailable)
            return turns

    assert asyncio.run(ask()) > 5  # of a hundred; a loop that waits has one


@pytest.mark.parametrize("wrong", ["/no_such_database", "?user=no_such_user"])
def test_an_invalid_url_is_refused_at_once(postgres_server: str, open_app: Callable[..., Any], wrong: str) -> None:
    url = database_url(postgres_server, "no_such_database")
    if "user" in wrong:
        url = database_url(postgres_server, "postgres").replace("postgres@", "no_such_user@")
    began = time.monotonic()
    with pytest.raises(dibs.StoreUnavailable, match="does not exist"):
        open_app(url).stats()
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("option", ["sslmode=bogus", "target_session_attrs=bogus"])
def test_a_url_with_an_invalid_option_is_refused_at_once(
    postgres_server: str, open_app: Callable[..., Any], option: str
) -> None:
    url = database_url(postgres_server, "postgres")
    began = time.monotonic()
    with pytest.raises(dibs.StoreUnavailable, match="bogus"):
        open_app(f"{url}{'&' if '?' in url else '?'}{option}").stats()
    assert time.monotonic() - began < 15


def test_a_worker_that_never_reached_the_store_wakes_its_claimer_without_waiting_for_the_store() -> None:
    with dibs.Dibs(AWAY) as app:
        began = time.monotonic()
        app._store.wakeups.wake()
        assert time.monotonic() - began < 15


# The log


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    """The log entries of dibs and its libraries at the level WARNING or above."""
    return [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]


def test_an_outage_is_logged_once_a_minute_for_all_callers(cluster: Cluster, log: pytest.LogCaptureFixture) -> None:
    with dibs.Dibs(cluster.url) as app, ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: app.enqueue("t"), range(50)))
        cluster.stop()
        calls = [pool.submit(app.enqueue, "t", key=str(number)) for number in range(12)]
        until(lambda: lines(log), 20)
        let_pass(4)  # the pool tries many times without further log entries
        assert len(lines(log)) == 1
        assert "PostgreSQL cannot be reached" in lines(log)[0]
        cluster.start()
        for call in calls:
            error = call.exception(40)
            assert error is None or isinstance(error, dibs.OutcomeUnknown)  # the connection broke under some
    assert len(lines(log)) == 1


def test_the_first_call_logs_what_it_waits_for(log: pytest.LogCaptureFixture, impatient: float) -> None:
    with dibs.Dibs(AWAY) as app:
        for _ in range(2):
            with pytest.raises(dibs.StoreUnavailable):
                app.stats()
    [line] = lines(log)
    assert "Connection refused" in line


def test_an_outage_that_lasts_is_logged_again_after_a_minute(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, impatient: float
) -> None:
    monkeypatch.setattr(outages, "LOG_INTERVAL", 0.5)
    with dibs.Dibs(AWAY) as app, pytest.raises(dibs.StoreUnavailable):
        app.stats()
    assert 2 <= len(lines(log)) <= 4


def test_connection_pools_of_the_user_log_as_before(log: pytest.LogCaptureFixture) -> None:
    import psycopg_pool

    with psycopg_pool.ConnectionPool(AWAY, min_size=1, open=False) as pool:
        pool.open()
        until(lambda: [line for line in lines(log) if line.startswith("error connecting in")])


def test_the_error_names_the_reason(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with dibs.Dibs(cluster.url) as app:
        app.enqueue("t")
        monkeypatch.setattr(postgres_store, "POOL_TIMEOUT", 1.0)
        cluster.stop()
        with pytest.raises(dibs.StoreUnavailable, match=r"No such file or directory|Connection refused"):
            app.stats()
        cluster.start()
