"""A client of the live statistics, as a page of the dashboard is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

Pulse = dict[str, Any]


class Heard:
    """The pulses of one connection, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Pulse]:
        for line in self._lines:
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))

    def until(self, true: Callable[[Pulse], object], timeout: float = 15.0) -> Pulse:
        """The first pulse of which this is true."""
        deadline = time.monotonic() + timeout
        last = None
        for last in self:
            if true(last):
                return last
            assert time.monotonic() < deadline, f"still {last} after {timeout} seconds"
        raise AssertionError(f"the stream has ended after {last}")

    def ends(self, timeout: float = 15.0) -> bool:
        """True once the stream has ended; False if it is still open after the timeout."""
        deadline = time.monotonic() + timeout
        return all(time.monotonic() < deadline for _ in self)


@contextmanager
def watching(client: httpx.Client) -> Iterator[Heard]:
    """An open stream; its reader counts as a watching client of the server."""
    with client.stream("GET", "/live", headers={"accept": "text/event-stream"}) as response:
        response.raise_for_status()
        yield Heard(response)
