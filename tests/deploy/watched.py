"""A dibs that is watched: a server with keys and a worker, both as real processes, and the pages that they show."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

import dibs
from tests.cli.running import environment
from tests.helpers.servers import ServerProcess, server_process
from tests.helpers.starting import Started, start
from tests.helpers.waiting import until

PLACE = re.compile(r"http://(127\.0\.0\.1:\d+)/metrics")
PROGRAM = """
import dibs

app = dibs.Dibs()

@app.task
def work() -> None:
    pass

@app.task(max_attempts=1)
def fall() -> None:
    raise ValueError("down")
"""


@dataclass(frozen=True)
class Watched:
    """`app`: past the server. `far`: through it. `hand`: the worker's process, which serves the queue `default`."""

    app: dibs.Dibs
    far: dibs.Dibs
    key: str
    server: ServerProcess
    hand: Started | subprocess.Popen[bytes]
    places: dict[str, list[str]]
    """Where Prometheus finds them, by the name of the job."""

    def pages(self) -> dict[str, str]:
        """The metrics of both, requested with the key."""
        [server], [worker] = self.places["dibs-server"], self.places["dibs-workers"]
        bearer = {"Authorization": f"Bearer {self.key}"}
        return {
            "server": httpx.get(f"http://{server}/metrics", headers=bearer).raise_for_status().text,
            "worker": httpx.get(f"http://{worker}/metrics").raise_for_status().text,
        }


@contextmanager
def watched(url: str, folder: Path) -> Iterator[Watched]:
    """Both of them, before the database at this URL."""
    with contextlib.ExitStack() as closing:
        app = closing.enter_context(dibs.Dibs(url))
        app.migrate()
        key = app.create_key("prometheus", ["read"], rate_limit="none").key
        everything = app.create_key("test", ["admin"], rate_limit="none").key
        server = closing.enter_context(server_process(url, folder))
        far = closing.enter_context(dibs.Dibs(server.url, api_key=everything))
        hand, place = closing.enter_context(_worker(url, folder))
        places = {"dibs-server": [f"{server.host}:{server.port}"], "dibs-workers": [place]}
        yield Watched(app, far, key, server, hand, places)


@contextmanager
def _worker(url: str, folder: Path) -> Iterator[tuple[Started | subprocess.Popen[bytes], str]]:
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    log = folder / "worker.log"
    options = ["--queues", "default", "--metrics-port", "0"]
    with (
        log.open("wb") as err,
        start("dibs", "worker", "program:app", *options, stderr=err, cwd=folder, env=environment(url)) as process,
    ):
        try:
            yield process, until(lambda: _place(log), 30)[1]
        finally:
            process.terminate()
            process.wait(30)


def _place(log: Path) -> re.Match[str] | None:
    return PLACE.search(log.read_text(encoding="utf-8"))
