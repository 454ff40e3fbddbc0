"""Stopping, killing and outages of a server, seen from outside: every acknowledged request holds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store.open import open_store
from tests.helpers.plain_http import NO_TLS
from tests.helpers.postgres import Cluster, new_data_folder
from tests.helpers.servers import Heard, Raw, ServerProcess, server_process
from tests.helpers.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

SENDERS = 4


@pytest.fixture
def process(url: str, app: dibs.Dibs, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server process without keys."""
    with server_process(url, tmp_path, "--no-keys") as process:
        yield process


@contextmanager
def no_writes(url: str) -> Iterator[Callable[[], None]]:
    """Block all enqueues until the block ends, or the function is called."""
    with contextlib.ExitStack() as closing:
        if url.startswith("sqlite"):
            connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection = psycopg.connect(url)
            connection.execute("LOCK TABLE dibs_tasks IN EXCLUSIVE MODE")
        closing.callback(connection.close)
        yield connection.rollback


class Storm:
    """Clients that enqueue as fast as they can, each task under a key of its own; what was acknowledged is noted."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.acknowledged: dict[str, int] = {}
        self.sent: set[str] = set()
        self.unexpected: list[tuple[int, str]] = []
        self._url, self._headers = url, headers
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=[number]) for number in range(SENDERS)]

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, number: int) -> None:
        with httpx.Client(verify=NO_TLS, base_url=self._url, headers=self._headers, timeout=20) as client:
            for count in range(100_000):
                if self._over.is_set():
                    return
                key = f"{number}-{count}"
                self.sent.add(key)
                try:
                    answer = enqueue(client, key)
                except httpx.TransportError:
                    return
                if answer.status_code == 201:
                    self.acknowledged[key] = answer.json()["task"]["id"]
                elif answer.status_code != 503:
                    self.unexpected.append((answer.status_code, answer.text))


def enqueue(client: httpx.Client, key: str) -> httpx.Response:
    body = {"task_type": "resize", "params": {"key": key}, "idempotency_key": key}
    return client.post("/api/tasks", json=body)


def stored(app: dibs.Dibs) -> dict[str, int]:
    """Every task in the store, by the key that is in its params."""
    tasks: dict[str, int] = {}
    cursor = None
    while page := app.list_tasks(limit=1000, cursor=cursor):
        assert not tasks.keys() & {task.params["key"] for task in page}, "a task is there twice"
        tasks |= {task.params["key"]: task.id for task in page}
        cursor = page[-1].id
    return tasks


# Asked to stop


def test_a_request_that_has_begun_is_answered_before_the_server_stops(
    url: str, app: dibs.Dibs, process: ServerProcess
) -> None:
    with process.connect() as connection, no_writes(url) as let_go:
        connection.request("POST", "/api/tasks", {"task_type": "resize"})
        with process.connect() as beside:  # by now the first one has been heard
            assert beside.ask("GET", "/health").status == 200
        process.terminate()
        until(process.refuses_connections)
        let_go()
        heard = connection.hear()
        assert (heard.status, heard.headers["connection"]) == (201, "close")
        assert connection.hung_up()
    assert process.ends() == 0
    assert [task.id for task in app.list_tasks()] == [heard.json["task"]["id"]]


def test_a_pipelined_request_behind_a_running_one_is_refused_because_the_server_stops(
    url: str, process: ServerProcess
) -> None:
    with process.connect() as connection, no_writes(url) as let_go:
        connection.request("POST", "/api/tasks", {"task_type": "resize"})
        connection.request("POST", "/api/tasks", {"task_type": "resize"})
        with process.connect() as beside:
            assert beside.ask("GET", "/health").status == 200
        process.terminate()
        until(process.refuses_connections)
        let_go()
        assert connection.hear().status == 201
        refused = connection.hear()
        assert (refused.status, refused.json["code"]) == (503, "stopping")
        assert (refused.headers["connection"], int(refused.headers["retry-after"]) >= 1) == ("close", True)
        assert connection.hung_up()
    assert process.ends() == 0


def test_a_stopping_server_ends_waiting_claims_at_once(app: dibs.Dibs, process: ServerProcess) -> None:
    with process.connect() as connection, process.connect() as idle:
        assert idle.ask("GET", "/health").status == 200
        connection.request("POST", "/api/tasks/claim", {"worker_id": "w", "wait_seconds": 60})
        assert idle.ask("GET", "/health").status == 200
        process.terminate()
        heard = connection.hear()
        assert (heard.status, heard.json["message"]) == (404, "No pending tasks available")
        assert heard.headers["connection"] == "close"
        assert idle.hung_up()
    assert process.ends(9) == 0  # long before the grace is over
    assert app.enqueue("resize", {}).state == "pending"


def test_a_stopping_server_ends_event_streams_and_wakeups_at_once(process: ServerProcess) -> None:
    with process.connect() as events, process.connect() as changes:
        events.request("GET", "/api/events")
        assert events.hear().headers["content-type"].startswith("text/event-stream")
        wait_for_a_change(changes)
        process.terminate()
        assert changes.hear().status == 200
        assert changes.hung_up()
        while events.socket.recv(65536):
            pass
    assert process.ends(9) == 0


def wait_for_a_change(connection: Raw) -> None:
    """Wait for the next change, for the longest allowed time."""
    known = connection.ask("GET", "/api/wakeups").json
    place = f"process={known['process']}&generation={known['generation']}"
    connection.request("GET", f"/api/wakeups?{place}&wait_seconds=60")


def test_a_request_that_does_not_end_within_the_grace_period_gets_outcome_unknown(
    url: str, app: dibs.Dibs, tmp_path: Path
) -> None:
    with server_process(url, tmp_path, "--no-keys", "--grace", "0.3") as process, no_writes(url):
        with process.connect() as connection:
            connection.request("POST", "/api/tasks", {"task_type": "resize"})
            with process.connect() as beside:
                assert beside.ask("GET", "/health").status == 200
            process.terminate()
            heard = connection.hear()
            assert (heard.status, heard.json["code"]) == (503, "outcome_unknown")
            assert connection.hung_up()
        process.ends(15)  # although the store still does not answer
        assert "Traceback" not in process.log


def test_a_second_signal_ends_the_server_at_once(url: str, process: ServerProcess) -> None:
    with process.connect() as connection, no_writes(url):
        connection.request("POST", "/api/tasks", {"task_type": "resize"})
        with process.connect() as beside:
            assert beside.ask("GET", "/health").status == 200
        process.terminate()
        until(process.refuses_connections)
        process.terminate()
        assert process.ends(9) == -signal.SIGTERM
    assert "Traceback" not in process.log


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("engine", ["sqlite"])
def test_every_stop_signal_ends_the_server_with_exit_code_0(process: ServerProcess, name: str) -> None:
    process.process.send_signal(getattr(signal, name))
    assert process.ends() == 0
    assert "Traceback" not in process.log


# Acknowledged means stored


def test_tasks_acknowledged_before_the_server_stopped_are_stored(app: dibs.Dibs, process: ServerProcess) -> None:
    with Storm(process.url) as storm:
        until(lambda: len(storm.acknowledged) > 50, 60)
        process.terminate()
        assert process.ends() == 0
    tasks = stored(app)
    assert storm.unexpected == []
    assert storm.acknowledged.items() <= tasks.items()


def test_tasks_acknowledged_before_kill_9_are_stored_and_repeating_all_requests_stores_each_once(
    url: str, app: dibs.Dibs, tmp_path: Path
) -> None:
    headers = {"X-API-Key": app.create_key("storm", ["enqueue"], rate_limit="none").key}
    with server_process(url, tmp_path) as process, Storm(process.url, headers) as storm:
        until(lambda: len(storm.acknowledged) > 50, 60)
        process.process.kill()
        process.ends()
    assert storm.unexpected == []
    assert storm.acknowledged.items() <= stored(app).items()
    with (
        server_process(url, tmp_path) as process,
        httpx.Client(verify=NO_TLS, base_url=process.url, headers=headers) as client,
    ):
        for key in storm.sent:
            answer = enqueue(client, key)
            assert answer.status_code in ((200,) if key in storm.acknowledged else (200, 201))
    tasks = stored(app)
    assert tasks.keys() == storm.sent
    assert storm.acknowledged.items() <= tasks.items()


# Several processes


def children(pid: int) -> set[int]:
    """The processes that this one has started."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@linux
def test_several_processes_share_a_port_and_one_that_is_killed_is_started_again(
    url: str, app: dibs.Dibs, tmp_path: Path
) -> None:
    with server_process(url, tmp_path, "--no-keys", "--processes", "2") as process:
        before = until(lambda: found if len(found := process.voices()) == 2 else None, 60)
        with Storm(process.url) as storm:
            until(lambda: len(storm.acknowledged) > 20, 60)
            killed, lives = sorted(children(process.process.pid))
            os.kill(killed, signal.SIGKILL)
            until(lambda: len(found := process.voices()) == 2 and found != before, 60)
            assert lives in children(process.process.pid)
        assert "server process" in process.log
        assert "died with exit code -9; again in 1 s" in process.log
        assert storm.unexpected == []
        assert storm.acknowledged.items() <= stored(app).items()
        pids = children(process.process.pid)
        process.terminate()
        assert process.ends() == 0
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_several_server_processes_stop_like_one(url: str, app: dibs.Dibs, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--no-keys", "--processes", "2") as process:
        until(lambda: len(process.voices()) == 2, 60)
        with process.connect() as waiting, process.connect() as writing, no_writes(url) as let_go:
            wait_for_a_change(waiting)
            writing.request("POST", "/api/tasks", {"task_type": "resize"})
            until(lambda: len(process.voices()) == 2, 60)  # both have had time to hear them
            process.terminate()
            until(process.refuses_connections)
            assert waiting.hear().status == 200
            let_go()
            assert writing.hear().status == 201
        assert process.ends() == 0
        assert "Traceback" not in process.log


@linux
@pytest.mark.parametrize("engine", ["sqlite"])
def test_server_processes_stop_when_their_supervisor_is_killed(url: str, app: dibs.Dibs, tmp_path: Path) -> None:
    with server_process(url, tmp_path, "--no-keys", "--processes", "2") as process:
        process.process.kill()
        process.ends()
        until(process.refuses_connections, 30)


# Outages


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


def test_readiness_reports_an_outage_of_the_store_and_a_write_waits_for_its_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    with server_process(cluster.url, tmp_path, "--no-keys") as process:
        assert ask(process, "GET", "/ready").status == 200
        first = ask(process, "POST", "/api/tasks", {"task_type": "resize"})
        cluster.stop()
        away = until(lambda: heard if (heard := ask(process, "GET", "/ready")).status == 503 else None, 60)
        assert int(away.headers["retry-after"]) >= 1
        assert ask(process, "GET", "/health").status == 200
        with Raw(process.host, process.port, timeout=90) as patient:
            patient.request("POST", "/api/tasks", {"task_type": "resize"})
            cluster.start()
            until(lambda: ask(process, "GET", "/ready").status == 200, 60)
            assert patient.hear().status == 201
        task = ask(process, "GET", f"/api/tasks/{first.json['task']['id']}")
        assert task.json["task"]["status"] == "pending"
        process.terminate()
        assert process.ends() == 0
        assert "Traceback" not in process.log


def test_requests_are_refused_during_an_outage_of_the_store_and_served_after_it(tmp_path: Path) -> None:
    file = tmp_path / "dibs.db"
    file.mkdir()  # nothing that could be opened
    config = ServerConfig(port=0, keys=False)
    store: Any = open_store(f"sqlite:///{file}")
    with serving(store, config) as place, httpx.Client(verify=NO_TLS, base_url=place, timeout=20) as client:
        for refused in (client.get("/ready"), client.get("/api/tasks"), enqueue(client, "a")):
            assert refused.status_code == 503
            assert refused.json()["code"] in ("store_unavailable", "store_error")
            assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/health").status_code == 200
        file.rmdir()
        assert client.get("/ready").status_code == 200
        assert enqueue(client, "a").status_code == 201


def ask(process: ServerProcess, method: str, path: str, body: Any = None) -> Heard:
    """One request on a connection of its own, and its answer."""
    with Raw(process.host, process.port, timeout=90) as connection:
        return connection.ask(method, path, body)
