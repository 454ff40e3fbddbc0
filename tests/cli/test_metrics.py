"""`/metrics` of real processes: a worker, workers under a supervisor, servers that share a port; some are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import dibs
from tests.cli.running import Run, environment
from tests.helpers.prometheus import check, page_at, samples
from tests.helpers.servers import server_process
from tests.helpers.starting import Started, start
from tests.helpers.waiting import until

unix = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)

PROGRAM = """
import dibs

app = dibs.Dibs()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
async def fail() -> None:
    raise ValueError("no")
"""


class Working:
    """A worker that serves metrics."""

    def __init__(self, process: Started | subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.url = until(self._place, 30)[1]

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def samples(self) -> dict[str, float]:
        status, page = page_at(f"{self.url}/metrics")
        assert status == 200
        return samples(page)

    def pids(self) -> list[int]:
        """The processes that it has started, in their order."""
        return [int(pid) for pid in re.findall(r"started \(pid (\d+)\)", self.log)]

    def _place(self) -> re.Match[str] | None:
        assert self.process.poll() is None, self.log
        return re.search(r"metrics are at (http://\S+)/metrics", self.log)


@contextmanager
def working(url: str, folder: Path, *options: str) -> Iterator[Working]:
    """A worker process with metrics on any free port, stopped in the end."""
    (folder / "program.py").write_text(PROGRAM)
    log = folder / "worker.log"
    words = ["worker", "program", "--url", url, "--metrics-port", "0", *options]
    with log.open("wb") as err, start("dibs", *words, stderr=err, cwd=folder, env=environment()) as process:
        try:
            yield Working(process, log)
        finally:
            process.terminate()


@unix
def test_a_worker_counts_its_claims_and_outcomes(url: str, client: dibs.Dibs, tmp_path: Path) -> None:
    client.enqueue_many([dibs.NewTask("add", {"a": n, "b": 1}, queue="sums") for n in range(20)])
    client.enqueue("fail", max_attempts=1)
    with working(url, tmp_path) as worker:
        until(lambda: client.stats().depth == {"completed": 20, "failed": 1}, 30)
        seen = until(lambda: worker.samples() if "task_dead_letter_total default fail" in worker.samples() else None)
        assert seen["task_completed_total sums add"] == 20
        assert seen["task_claim_tasks_total"] == 21
        assert seen["task_failed_total default fail"] == seen["task_dead_letter_total default fail"] == 1
        assert seen["task_run_duration_seconds_count sums add"] == 20
        assert seen["task_run_duration_seconds_count default fail"] == 1
        assert seen["task_claim_attempts_total"] == seen["task_claim_duration_seconds_count"] >= 2
        assert seen[f"dibs_build_info {dibs.__version__}"] == 1
        check(page_at(f"{worker.url}/metrics")[1])


@unix
@sqlite
def test_a_worker_serves_metrics_and_health_and_no_other_path(url: str, client: dibs.Dibs, tmp_path: Path) -> None:
    with working(url, tmp_path, "--worker-id", "w") as worker:
        until(lambda: page_at(f"{worker.url}/health")[0] == 200)
        health = json.loads(page_at(f"{worker.url}/health")[1])
        assert (health["worker_id"], health["running"], health["held"]) == ("w", True, 0)
        assert page_at(f"{worker.url}/metrics?x=1")[0] == 200
        assert page_at(f"{worker.url}/")[0] == 404
        assert worker.url.startswith("http://127.0.0.1:")


@unix
@sqlite
def test_workers_under_a_supervisor_share_their_metrics_and_no_counter_decreases(
    url: str, client: dibs.Dibs, tmp_path: Path
) -> None:
    client.enqueue_many([dibs.NewTask("add", {"a": n, "b": 1}) for n in range(500)])
    with working(url, tmp_path, "--processes", "2") as worker:
        until(lambda: client.stats().depth == {"completed": 500}, 60)
        until(lambda: worker.samples().get("task_completed_total default add") == 500)  # written within a second
        first, second = worker.pids()
        os.kill(first, signal.SIGKILL)
        until(lambda: json.loads(page_at(f"{worker.url}/health")[1]) == {"processes": 2, "running": 1})
        assert worker.samples()["task_completed_total default add"] == 500
        until(lambda: len(worker.pids()) == 3, 30)
        before = worker.samples()["task_claim_attempts_total"]
        client.enqueue_many([dibs.NewTask("add", {"a": n, "b": 1}) for n in range(100)])
        until(lambda: worker.samples()["task_completed_total default add"] == 600, 60)
        assert worker.samples()["task_run_duration_seconds_count default add"] == 600
        assert worker.samples()["task_claim_attempts_total"] > before
        check(page_at(f"{worker.url}/metrics")[1])
        [folder] = _folders(second)
        until(lambda: len(list(folder.glob("*.json"))) == 2)  # also of the one that had nothing to do, within a second
        worker.process.terminate()
        assert worker.process.wait(30) == 0
        assert not folder.exists()


def _folders(pid: int) -> list[Path]:
    """The file in which this process keeps its counts, from the environment with which it was started."""
    env = Path(f"/proc/{pid}/environ")
    if not env.exists():
        pytest.skip("the system does not tell the environment of processes")
    return [
        Path(word.partition("=")[2]).parent for word in env.read_text().split("\0") if word.startswith("DIBS_COUNTS=")
    ]


@unix
@sqlite
def test_servers_that_share_a_port_have_the_same_metrics_and_no_counter_decreases(
    url: str, client: dibs.Dibs, tmp_path: Path
) -> None:
    with server_process(url, tmp_path, "--processes", "2", "--no-keys") as server:
        until(lambda: len(server.voices()) == 2, 30)
        for n in range(40):
            with server.connect() as connection:  # a connection each, so that both are asked
                assert connection.ask("POST", "/api/tasks", {"task_type": "add", "params": {"a": n}}).status == 201
        told: list[float] = []
        until(lambda: told.append(_enqueued(server.url)) or told[-10:] == [40] * 10)  # each writes once a second
        assert told == sorted(told)
        pid = int(re.findall(r"started \(pid (\d+)\)", server.log)[0])
        os.kill(pid, signal.SIGKILL)
        until(lambda: server.log.count("started (pid") == 3, 30)
        assert {_enqueued(server.url) for _ in range(10)} == {40}
        until(lambda: len(server.voices()) == 2, 30)
        with server.connect() as connection:
            assert connection.ask("POST", "/api/tasks", {"task_type": "add", "params": {}}).status == 201
        until(lambda: {_enqueued(server.url) for _ in range(10)} == {41})


def _enqueued(url: str) -> float:
    return samples(page_at(f"{url}/metrics")[1]).get("task_enqueued_total default", 0.0)


@sqlite
def test_a_metrics_port_in_use_is_reported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        for processes in ("1", "2"):
            done = run("worker", "program", "--burst", "--metrics-port", port, "--processes", processes)
            assert done.code == 2
            assert f"error: Metrics cannot be served on 127.0.0.1 port {port}: " in done.err
            assert "--metrics-port" in done.err


@sqlite
def test_a_missing_package_is_reported_with_the_extra_to_install(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('no prometheus_client here')")
    done = run("worker", "program", "--burst", "--metrics-port", "0", PYTHONPATH=str(tmp_path))
    assert done.code == 2
    assert "error: --metrics-port needs a package that is not installed (no prometheus_client here)." in done.err
    assert "pip install 'dibs[metrics]'" in done.err
    assert run("worker", "program", "--burst", PYTHONPATH=str(tmp_path)).code == 0
