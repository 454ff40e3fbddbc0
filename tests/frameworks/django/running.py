"""A Django project in a folder: its commands, its server and its worker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import dibs
from tests.helpers.waiting import until


class Project:
    """A project in a folder. At the end of the `with` block its processes are stopped. `store`: its URL."""

    def __init__(self, folder: Path, store: str, **environment: str) -> None:
        self.folder = folder
        self.store = store
        kept = {name: value for name, value in os.environ.items() if name not in ("DJANGO_SETTINGS_MODULE", "DIBS_URL")}
        self.environment = {**kept, "PYTHONWARNINGS": "error::ResourceWarning", **environment}
        self._started: list[subprocess.Popen[str]] = []
        self._port = 0

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._started:
            each.terminate()
        for each in self._started:
            each.wait(30)

    def run(self, *command: str, code: int = 0) -> str:
        """What a command prints. It must end with this code."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=90
        )
        assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def manage(self, *arguments: str, code: int = 0) -> str:
        """What `manage.py` prints."""
        return self.run(sys.executable, "manage.py", *arguments, code=code)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A process that runs until the end of the block. Its output is in the file `output-N`."""
        with (self.folder / f"output-{len(self._started)}").open("w") as output:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.STDOUT, text=True
            )
        self._started.append(process)
        return process

    def output(self, number: int) -> str:
        """What the process of this number has printed."""
        return (self.folder / f"output-{number}").read_text()

    def serve(self) -> None:
        """Start the development server, and wait until it answers."""
        self._port = free_port()
        self.start(sys.executable, "manage.py", "runserver", "--noreload", str(self._port))
        until(lambda: answers(self._port), 60)

    def work(self) -> None:
        """Start a worker."""
        self.start(sys.executable, "manage.py", "dibs", "worker")

    def order(self, data: str, url: str) -> None:
        """Send a form as the guide does, and wait until both tasks of the order have ended."""
        request = urllib.request.Request(url.replace("8000", str(self._port)), data.encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
            assert set(json.load(answer)) == {"order", "task"}
        until(lambda: self._states() == ["completed", "completed"], 60)

    def _states(self) -> list[str]:
        with dibs.Dibs(self.store, migrate=False) as app:
            return [str(each.state) for each in app.list_tasks()]


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(port: int) -> bool:
    """True if a server listens at the port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
