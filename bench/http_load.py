"""The load: clients that send requests one after the other, or at fixed times.

A separate process, `python -m bench.http_load`: it reads a Job and writes the result, as JSON. Requests are
bytes before the clock starts, and of an answer only the status and the length are read while it runs (by cycles and
exchanges also ids and tokens), so that the load costs little beside what it measures. An answer with a status that was
not expected ends the run.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import msgspec
import psutil
import uvloop

from bench.http_requests import Script, scripts
from bench.queues.processes import cpu_seconds

PATIENCE = 120.0
"""Seconds until a phase counts as hung."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask, how often, and how.

    `clients` connections, spread over the `ports`. `rate`: requests a second in all, each due at its moment; None: each
    client asks again when it was answered. `tasks`: ids and tokens of tasks that are there. `pids`: processes whose CPU
    time is counted while the clock runs.
    """

    ports: list[int]
    key: str
    verb: str
    clients: int
    count: int
    warm_up: int
    rate: float | None = None
    batch: int = 1
    tasks: list[tuple[int, int]] = []
    expected: list[int]
    pids: list[int] = []


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: milliseconds of each request, CPU seconds of the processes, how often each status came.

    `seen`: the ids and tokens of all tasks in the answers, those of the warm-up as well. `finished`: tasks that were
    completed while the clock ran.
    """

    seconds: float
    latencies: list[float]
    cpu: float
    statuses: dict[int, int]
    seen: list[tuple[int, int]]
    finished: int


def main() -> None:
    """Do the job on the standard input."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(job))))


async def run(job: Job) -> Done:
    """Connect, warm up, and ask while the clock runs."""
    loop = asyncio.get_running_loop()
    clients = [Client(frozenset(job.expected)) for _ in range(job.clients)]
    for client, port in zip(clients, itertools.cycle(job.ports), strict=False):
        await loop.create_connection(partial(_same, client), "127.0.0.1", port)
    all_scripts = scripts(job)
    all_scripts.begin(job.warm_up)
    await _talk(clients, all_scripts.of, None, job.warm_up)
    all_scripts.begin(job.count)
    servers = [psutil.Process(pid) for pid in job.pids]
    gc.collect()
    gc.disable()  # a pause of the client would look like one of the server
    cpu, began = cpu_seconds(servers), perf_counter()
    latencies = await _talk(clients, all_scripts.of, job.rate, job.count)
    seconds, cpu = perf_counter() - began, cpu_seconds(servers) - cpu
    for client in clients:
        client.leave()
    return Done(
        seconds=seconds,
        latencies=[latency * 1000 for latency in latencies],
        cpu=cpu,
        statuses=dict(sum((client.statuses for client in clients), Counter())),
        seen=all_scripts.seen(),
        finished=all_scripts.finished,
    )


def _same(client: Client) -> Client:
    return client


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, expected: frozenset[int]) -> None:
        self.statuses: Counter[int] = Counter()
        self.answered: Callable[[bytes], None] = lambda _: None
        self.failed: Callable[[Exception], None] = lambda _: None
        self._expected = expected
        self._got = b""
        self._transport: Any = None
        self._leaving = False

    def ask(self, request: bytes) -> None:
        """Send a request."""
        self._transport.write(request)

    def leave(self) -> None:
        """Close the connection."""
        self._leaving = True
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol."""
        if not self._leaving:
            self.failed(RuntimeError(f"The server closed a connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        got = self._got = self._got + data if self._got else data
        head = got.find(b"\r\n\r\n")
        if head < 0 or len(got) < head + 4 + (length := _length(got, head)):
            return
        self._got = b""
        status, body = int(got[9:12]), got[head + 4 : head + 4 + length]
        self.statuses[status] += 1
        if status in self._expected:
            self.answered(body)
        else:
            self.failed(RuntimeError(f"The server answered {status}: {body[:500].decode(errors='replace')}"))


def _length(got: bytes, head: int) -> int:
    at = got.index(b"content-length: ", 0, head) + 16
    return int(got[at : got.index(b"\r\n", at)])


class Phase:
    """What the clients of a phase do together: note how long each request took, and end when all have."""

    def __init__(self, clients: int) -> None:
        self.latencies: array[float] = array("d")
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._busy = clients

    def left(self) -> None:
        """One has ended."""
        self._busy -= 1
        if not self._busy:
            _settle(self.end)

    def failed(self, error: Exception) -> None:
        """Nothing of this counts."""
        _settle(self.end, error)


class ClosedTalk:
    """A client that asks again as soon as it was answered, until its script ends."""

    def __init__(self, client: Client, script: Script, phase: Phase) -> None:
        self._client, self._script, self._phase = client, script, phase
        self._sent = 0.0
        client.answered, client.failed = self._answered, phase.failed

    def begin(self) -> None:
        """Ask for the first time."""
        self._ask(None)

    def _answered(self, body: bytes) -> None:
        self._phase.latencies.append(perf_counter() - self._sent)
        self._ask(body)

    def _ask(self, body: bytes | None) -> None:
        request = self._script(body)
        if request is None:
            self._phase.left()
            return
        self._sent = perf_counter()
        self._client.ask(request)

    def end(self) -> None:
        """Its script has ended before."""


class OpenTalk:
    """A client that sends requests at fixed times: a request that is due while the last one is not answered waits, and
    that wait counts. No moment is skipped because the server is slow."""

    def __init__(self, client: Client, script: Script, phase: Phase, moments: Iterator[float]) -> None:
        self._client, self._script, self._phase, self._moments = client, script, phase, moments
        self._waiting: deque[float] = deque()
        self._since: float | None = None
        self._last: bytes | None = None
        self._over = False
        client.answered, client.failed = self._answered, phase.failed

    def begin(self) -> None:
        """Wait for the next moment."""
        moment = next(self._moments, None)
        if moment is None:
            self._over = True
        else:
            asyncio.get_running_loop().call_later(max(0.0, moment - perf_counter()), self._due, moment)

    def _due(self, moment: float) -> None:
        self._waiting.append(moment)
        self.begin()
        if self._since is None:
            self._ask()

    def _ask(self) -> None:
        request = self._script(self._last)
        assert request is not None
        # A timer of the loop may be half a millisecond early: then the request counts from when it was sent.
        self._since = min(self._waiting.popleft(), perf_counter())
        self._client.ask(request)

    def _answered(self, body: bytes) -> None:
        assert self._since is not None
        self._phase.latencies.append(perf_counter() - self._since)
        self._since, self._last = None, body
        if self._waiting:
            self._ask()
        elif self._over:
            self._phase.left()

    def end(self) -> None:
        """Pass the last answer to the script, when its next request is not needed any more."""
        if self._last is not None:
            self._script(self._last)


async def _talk(
    clients: list[Client], script_of: Callable[[int], Script], rate: float | None, count: int
) -> array[float]:
    """One phase, in a closed loop or (with a rate) an open one."""
    phase, size = Phase(len(clients)), len(clients)
    talks: list[ClosedTalk | OpenTalk] = []
    for number, client in enumerate(clients):
        if rate is None:
            talks.append(ClosedTalk(client, script_of(number), phase))
        else:
            talks.append(OpenTalk(client, script_of(number), phase, _moments(number, size, rate, count // size)))
    for talk in talks:
        talk.begin()
    await asyncio.wait_for(phase.end, PATIENCE)
    for talk in talks:
        talk.end()
    return phase.latencies


def _moments(number: int, clients: int, rate: float, count: int) -> Iterator[float]:
    """When a client asks: all at the same pace, each begins at another moment, the same in every run."""
    pace = clients / rate
    first = perf_counter() + 0.05 + random.Random(number).random() * pace
    return (first + place * pace for place in range(count))


def _settle(end: asyncio.Future[None], error: Exception | None = None) -> None:
    if end.done():
        return
    if error is None:
        end.set_result(None)
    else:
        end.set_exception(error)


if __name__ == "__main__":
    main()
