"""Many real processes on one store (see member.py), started at the same time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.starting import start

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.helpers.member"


class Member:
    """A process that waits for commands."""

    def __init__(self, url: str, name: str, program: str = PROGRAM) -> None:
        self.name = name
        (hears, told), (heard, says) = os.pipe(), os.pipe()
        self._fields_of, self._heard = os.fdopen(told, "wb"), os.fdopen(heard, "rb")
        self.process = start(program, url, name, stdin=hears, stdout=says, cwd=ROOT)
        os.close(hears)
        os.close(says)

    def send(self, **command: Any) -> None:
        """Send it a command."""
        self._fields_of.write(json.dumps(command).encode() + b"\n")
        self._fields_of.flush()

    def hear(self) -> Any:
        """Its next answer; EOFError if it died instead."""
        line = self._heard.readline()
        if not line.endswith(b"\n"):
            raise EOFError(f"{self.name} ended with status {self.process.wait()} instead of answering.")
        return json.loads(line)

    def hear_the_rest(self) -> list[Any]:
        """The rest of its output, up to its end."""
        return [json.loads(line) for line in self._heard if line.endswith(b"\n")]

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()

    def close(self) -> None:
        """Let it end, and wait for that."""
        self._fields_of.close()
        self._heard.close()
        self.process.wait()


@contextmanager
def processes(url: str, count: int, program: str = PROGRAM) -> Iterator[list[Member]]:
    """That many processes, all of them ready."""
    members = [Member(url, f"process-{n}", program) for n in range(count)]
    try:
        for member in members:
            assert member.hear() == "ready"
        yield members
    finally:
        for member in members:
            member.close()


def ask_all(members: list[Member], commands: list[dict[str, Any]]) -> list[Any]:
    """Let all of them go at once; their answers."""
    with ThreadPoolExecutor(len(members)) as pool:
        for member, command in zip(members, commands, strict=True):
            member.send(**command)
        return list(pool.map(Member.hear, members))
