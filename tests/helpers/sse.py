"""A client of server-sent events, as a browser is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Heard:
    """One event."""

    id: int
    event: str
    data: dict[str, Any]


class Stream:
    """The events of one connection, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()
        self.retry = self._block()

    def __iter__(self) -> Iterator[Heard]:
        return self

    def __next__(self) -> Heard:
        while (block := self._block()) is not None:
            assert block != [": keep-alive"], "nothing was heard for a long time"
            fields = dict(line.split(": ", 1) for line in block)
            return Heard(int(fields["id"]), fields["event"], json.loads(fields["data"]))
        raise StopIteration

    def take(self, count: int) -> list[Heard]:
        """The next events, this number of them."""
        return [next(self) for _ in range(count)]

    def _block(self) -> list[str] | None:
        """The lines up to the next empty one; None at the end."""
        block: list[str] = []
        for line in self._lines:
            if not line:
                return block
            block.append(line)
        return None


@contextmanager
def listening(client: httpx.Client, after: int | None = None, **query: str) -> Iterator[Stream]:
    """An open stream of events; its first lines have been read, so no later event is missed."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", "/api/events", params=query, headers=headers) as response:
        response.raise_for_status()
        yield Stream(response)
