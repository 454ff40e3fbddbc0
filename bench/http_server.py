"""The servers that are measured, each a process: `dibs server`, and the bare endpoint.

The bare endpoint, `python -m bench.http_server PORT`, measures the framework alone: the same paths, the same uvicorn, a
body of the same kind decoded, an answer of the same size encoded; no keys, no store.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dibs.model.task import State
from dibs.server.config import ServerConfig
from dibs.server.run import settings
from dibs.wire.claims import ClaimBody
from dibs.wire.tasks import Task

ROOT = Path(__file__).resolve().parent.parent
SERVER = ("dibs", "server", "--no-access-log", "--log-level", "warning", "--port")
PATIENCE = 60.0
"""Seconds until a server that does not come up, or does not stop, counts as hung."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is up."""

    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def serving(url: str | None) -> Iterator[Served]:
    """A server process before this database, or (None) the bare one; it must stop well, and without complaints."""
    port = _free_port()
    command = [sys.executable, "-m", *(["bench.http_server"] if url is None else SERVER), str(port)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            command, stderr=errors, cwd=ROOT, env=os.environ | ({} if url is None else {"DIBS_URL": url})
        )
        try:
            _wait_until_up(process, port)
            yield Served(port, psutil.Process(process.pid))
            process.terminate()
            code = process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            if said:
                print(said, file=sys.stderr)
        if code not in (0, -signal.SIGTERM) or said:
            raise RuntimeError(f"The server ended with exit code {code}, with the output: {said or 'none'}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    patience = time.monotonic() + PATIENCE
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > patience:
            raise RuntimeError(f"The server did not come up (exit code {process.returncode}).")
        time.sleep(0.02)


def _answers(port: int) -> bool:
    with (
        contextlib.suppress(ConnectionRefusedError, ConnectionResetError),
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection,
    ):
        connection.sendall(f"GET /health HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n".encode())
        return b"HTTP/1.1" in connection.recv(65536)
    return False


# The bare endpoint


def main() -> None:
    """Serve until a signal."""
    uvicorn.Server(_bare(ServerConfig(port=int(sys.argv[1])))).run()


def _bare(config: ServerConfig) -> uvicorn.Config:
    """The settings of dibs' server, with another application, and uvicorn's own way to read requests."""
    found = settings(cast(Any, SimpleNamespace(service=SimpleNamespace(config=config))))
    found.http = "httptools"
    found.app = Starlette(
        routes=[Route("/api/tasks/claim", _claim, methods=["POST"]), Route("/api/tasks/{id:int}", _get)]
    )
    return found


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ClaimBody).decode
_MOMENT = "2025-11-12T10:30:00.123456Z"
_TASK = Task(
    id=12345, type="bench", state=State.CLAIMED, params={"number": 12345}, priority=0, attempts=0, max_attempts=3,
    worker_id="bench-7", claimed_at=_MOMENT, created_at=_MOMENT, queue="default", token=1, lease_until=_MOMENT,
    run_at=_MOMENT, finished_at=None, timeout=None, key=None, type_version=None, dropped=0,
    cancel_requested=False, progress=None, progress_message=None, raw_result=None, error=None,
    workflow_id=None
)  # fmt: skip


class _Claimed(msgspec.Struct):
    success: bool
    task: Task
    message: str


class _OneTask(msgspec.Struct):
    task: Task


async def _claim(request: Request) -> Response:
    _decode(await request.body())
    return Response(_encode(_Claimed(True, _TASK, "Task claimed successfully")), media_type="application/json")


async def _get(request: Request) -> Response:
    return Response(_encode(_OneTask(_TASK)), media_type="application/json")


if __name__ == "__main__":
    main()
