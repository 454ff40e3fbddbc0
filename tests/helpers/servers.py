"""`dibs server` as real processes, and clients that send raw bytes to them."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import COMMAND, environment
from tests.helpers.starting import Started, start
from tests.helpers.waiting import until

PLACE = re.compile(r"listening on http://(\[\S+?\]|[^\s:]+):(\d+)")


class ServerProcess:
    """A server that was started by its command."""

    def __init__(self, process: Started | subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        host, port = until(self._place, 30)
        self.host, self.port = host.strip("[]"), int(port)
        until(self._answers, 30)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def log(self) -> str:
        """Everything it has logged."""
        return self._log.read_text(encoding="utf-8")

    def connect(self) -> Raw:
        """A connection to it."""
        return Raw(self.host, self.port)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.process.send_signal(signal.SIGTERM)

    def ends(self, timeout: float = 30) -> int:
        """Its exit code."""
        return self.process.wait(timeout)

    def refuses_connections(self) -> bool:
        """True once it does not listen any more."""
        try:
            with socket.create_connection((self.host, self.port), timeout=5):
                return False
        except OSError:
            return True

    def voices(self, tries: int = 40) -> set[str]:
        """The names of the processes that answer on the port, without keys; each is asked sooner or later."""
        found: set[str] = set()
        for _ in range(tries):
            with contextlib.suppress(OSError, EOFError), self.connect() as connection:
                found.add(connection.ask("GET", "/api/wakeups").json["process"])
        return found

    def _place(self) -> tuple[str, str] | None:
        assert self.process.poll() is None, self.log
        found = PLACE.search(self.log)
        return (found[1], found[2]) if found else None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), self.connect() as connection:
            return connection.ask("GET", "/health").status == 200
        return False


@contextmanager
def server_process(
    url: str, folder: Path, *options: str, under: Sequence[str] = (), **env: str
) -> Iterator[ServerProcess]:
    """A server on any free port that is always killed at the end. `under`: a program that runs it."""
    log = folder / f"server-{len(list(folder.glob('server-*')))}.log"
    words = ["server", *options, *([] if "--port" in options else ["--port", "0"])]
    with log.open("wb") as err, _start(under, words, cwd=folder, stderr=err, env=environment(url, **env)) as process:
        try:
            yield ServerProcess(process, log)
        finally:
            if process.poll() is None:
                process.terminate()  # twice, should it hang: the second does not ask
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _start(under: Sequence[str], words: list[str], **options: Any) -> Started | subprocess.Popen[bytes]:
    return subprocess.Popen([*under, *COMMAND, *words], **options) if under else start("dibs", *words, **options)


@dataclass(frozen=True)
class Heard:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """A connection whose every byte is ours."""

    def __init__(self, host: str, port: int, timeout: float = 20) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self._rest = b""

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Heard:
        """One request, and its answer."""
        self.request(method, path, body, **headers)
        return self.hear()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        """One request; headers with underscores for dashes."""
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    def send(self, data: bytes) -> None:
        """These bytes."""
        self.socket.sendall(data)

    def hear(self) -> Heard:
        """The next answer; EOFError if the server hung up instead."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Heard(int(first.split()[1]), headers, self._exactly(int(headers.get("content-length", "0"))))

    def hung_up(self) -> bool:
        """True if the server closes the connection without another word."""
        if self._rest:
            return False
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _until(self, end: bytes) -> bytes:
        while end not in self._rest:
            self._read()
        found, _, self._rest = self._rest.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._rest) < size:
            self._read()
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _read(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(f"The server hung up after {self._rest!r}.")
        self._rest += data
