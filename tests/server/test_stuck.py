"""A server stays alive during slow validations, reports when it is stuck, and ends on SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import dibs
from dibs.server import liveness
from dibs.server.api import health
from tests.contract.test_validation_limits import ENDLESS, TREE, tree
from tests.helpers.plain_http import NO_TLS
from tests.helpers.servers import server_process
from tests.helpers.waiting import let_pass, until
from tests.server.conftest import Served
from tests.server.test_serving import no_writes


def enqueue(client: httpx.Client, task_type: str, params: dict[str, Any]) -> httpx.Response:
    return client.post("/api/tasks", json={"task_type": task_type, "params": params})


@contextlib.contextmanager
def slow_requests(url: str, count: int = 3) -> Iterator[list[httpx.Response]]:
    """Send this number of requests at once, with params that take too long to validate."""
    answers: list[httpx.Response] = []

    def send() -> None:
        with httpx.Client(verify=NO_TLS, base_url=url, timeout=60) as client, contextlib.suppress(httpx.TransportError):
            answers.append(enqueue(client, "endless", {}))

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield answers
    for thread in threads:
        thread.join()


# Slow validations


def test_too_slow_params_are_a_client_error_with_a_code_of_its_own(http: httpx.Client, app: dibs.Dibs) -> None:
    app.register_type("endless", ENDLESS)
    answer = enqueue(http, "endless", {})
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_too_slow")
    assert "takes longer than" in answer.json()["error"]
    assert answer.json()["hint"]


BETWEEN = 0.05
"""Seconds between two looks at how long others wait: without a pause the looks alone keep a processor busy."""


def test_a_server_answers_other_requests_during_a_slow_validation(
    server: Served, http: httpx.Client, app: dibs.Dibs
) -> None:
    app.register_type("endless", ENDLESS)
    app.register_type("tree", TREE)
    longest = 0.0
    with slow_requests(server.url) as answers:
        while len(answers) < 3:
            began = time.monotonic()
            assert http.get("/ready").status_code == 200
            assert enqueue(http, "plain", {}).status_code == 201
            assert enqueue(http, "tree", tree(3, {"kind": "b"})).status_code == 201
            longest = max(longest, time.monotonic() - began)
            let_pass(BETWEEN)
    assert {answer.json()["code"] for answer in answers} <= {"validation_too_slow", "store_busy"}
    assert longest < 5.0  # a server that waited for a validation would never answer


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_sigterm_ends_a_server_during_a_slow_validation(url: str, app: dibs.Dibs, tmp_path: Path) -> None:
    app.register_type("endless", ENDLESS)
    with server_process(url, tmp_path, "--no-keys", "--grace", "1") as process, slow_requests(process.url, 8):
        children = until(lambda: children_of(process.process.pid))
        process.terminate()
        assert process.ends(20) in (0, 1)
    until(lambda: not any(alive(child) for child in children))


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def alive(pid: int) -> bool:
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")


# Stuck


def on_loop(server: Served, work: Callable[[], object]) -> None:
    task = server.service.liveness._task
    assert task is not None
    task.get_loop().call_soon_threadsafe(work)


def test_readiness_reports_that_the_event_loop_was_stuck(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(liveness, "STUCK", 0.5)
    monkeypatch.setattr(liveness, "RECOVERY_SECONDS", 1.0)
    server = serve(keys=False)
    client = server.client()
    until(lambda: client.get("/ready").status_code == 200)  # on a busy machine the loop may be late by half a second
    stuck = threading.Event()
    on_loop(server, lambda: (stuck.set(), time.sleep(2.0)))
    stuck.wait()
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()["code"]) == (503, "stuck")
    until(lambda: client.get("/ready").status_code == 200)
    until(lambda: "time.sleep(2.0)" in caplog.text)


def test_readiness_reports_that_no_thread_answers(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(keys=False)
    client, free, full = server.client(), threading.Event(), threading.Event()

    def fill() -> None:
        task = server.service.liveness._task
        assert task is not None
        for _ in range(64):
            task.get_loop().run_in_executor(None, free.wait)
        full.set()

    until(lambda: client.get("/ready").status_code == 200)
    monkeypatch.setattr(health, "ANSWER_TIMEOUT", 0.3)
    on_loop(server, fill)
    full.wait()
    try:
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, "stuck")
        assert client.get("/health").status_code == 200
    finally:
        free.set()
    until(lambda: client.get("/ready").status_code == 200)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_readiness_reports_that_the_store_cannot_be_written(
    serve: Callable[..., Served], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(keys=False).client()
    until(lambda: client.get("/ready").status_code == 200)
    monkeypatch.setattr(health, "ANSWER_TIMEOUT", 0.3)
    with no_writes(url):
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    until(lambda: client.get("/ready").status_code == 200)


STUCK_SERVER = """
import signal, sys, time
from dibs.server.app import create_app
from dibs.server.config import ServerConfig
from dibs.server.run import Server, listen
from dibs.store.open import open_store
config = ServerConfig(keys=False, port=0, grace=0.2)
def stick():
    if "not interrupted" in sys.argv:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("stuck", flush=True)
    time.sleep(600)
def get_stuck():
    import asyncio
    asyncio.get_running_loop().call_soon(stick)
Server(create_app(open_store(sys.argv[1]), config), get_stuck, alone=True).run([listen("127.0.0.1", 0)])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
@pytest.mark.parametrize("sleep", ["interrupted", "not interrupted"])
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_sigterm_ends_a_server_whose_event_loop_is_stuck(url: str, app: dibs.Dibs, sleep: str) -> None:
    """Not interrupted: another thread of the process gets the signal, and the main thread runs no signal handler."""
    command = [sys.executable, "-c", STUCK_SERVER, url, sleep]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stuck\n"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "Timeout" in said  # with the stack of every thread
