"""Wrong keys: whether the time of a refusal reveals how much of a key is right.

Keys of all kinds take turns in random order, on blocking sockets, one request at a time. A server refuses an address
that is wrong too often, so the requests come from many addresses of the loopback network (on Linux all of 127.0.0.0/8).
"""

from __future__ import annotations

import contextlib
import math
import random
import socket
from collections.abc import Iterator
from statistics import median, quantiles
from time import perf_counter_ns

from bench.contest import Figures
from bench.http_requests import request
from dibs.model.key import join, mint, split

SHARED = (1, 20, 42)
"""How many characters of the right secret the wrong ones begin with."""

UNKNOWN = 0
PER_ADDRESS = 10
"""Tries of each kind from one address: together they stay below what a server forgives a stranger."""


def compare_keys(port: int, key: str, tries: int) -> Figures:
    """Microseconds of a 401 for each kind of wrong key, and the probability of such differences at random."""
    took: dict[int, list[float]] = {kind: [] for kind in (UNKNOWN, *SHARED)}
    for place in range(math.ceil(tries / PER_ADDRESS)):
        with _connection(port, place) as connection:
            _time(connection, port, key, 200)  # the server knows the key, as it knows one that is in use
            for kind in _shuffled(took):
                took[kind].append(_time(connection, port, _wrong(key, kind), 401))
    base = took[SHARED[0]]
    cuts = quantiles(base, n=4)
    figures = {
        "unknown": median(took[UNKNOWN]),
        "spread": cuts[2] - cuts[0],
        "p_unknown": mann_whitney(base, took[UNKNOWN]),
    }
    figures |= {f"shared_{kind}": median(took[kind]) for kind in SHARED}
    return figures | {f"p_{kind}": mann_whitney(base, took[kind]) for kind in SHARED[1:]}


def mann_whitney(one: list[float], other: list[float]) -> float:
    """The probability that values of one kind differ so much in rank at random (two-sided, normal approximation)."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks, ties = 0.0, 0.0
    for first, last in _runs([value for value, _ in ranked]):
        size = last - first
        ties += size**3 - size
        ranks += (first + last + 1) / 2 * sum(side == 0 for _, side in ranked[first:last])
    total, pairs = len(ranked), len(one) * len(other)
    larger = ranks - len(one) * (len(one) + 1) / 2
    deviation = math.sqrt(pairs / 12 * (total + 1 - ties / (total * (total - 1))))
    return math.erfc(abs(larger - pairs / 2) / deviation / math.sqrt(2)) if deviation else 1.0


def _runs(values: list[float]) -> Iterator[tuple[int, int]]:
    """Where equal values begin and end."""
    first = 0
    for place in range(1, len(values) + 1):
        if place == len(values) or values[place] != values[first]:
            yield first, place
            first = place


@contextlib.contextmanager
def _connection(port: int, place: int) -> Iterator[socket.socket]:
    address = f"127.{1 + place // 62500 % 250}.{place // 250 % 250}.{2 + place % 250}"
    with socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(address, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def _shuffled(took: dict[int, list[float]]) -> list[int]:
    kinds = [kind for kind in took for _ in range(PER_ADDRESS)]
    random.shuffle(kinds)
    return kinds


def _wrong(key: str, kind: int) -> str:
    """A wrong key: with an unknown id, or with this number of right characters of the secret."""
    other_id, other, _ = mint()
    if kind == UNKNOWN:
        return join(other_id, other)
    parts = split(key)
    assert parts is not None
    key_id, secret = parts
    differs = next(letter for letter in "ab" if letter != secret[kind])
    return join(key_id, secret[:kind] + differs + other[kind + 1 :])


def _time(connection: socket.socket, port: int, key: str, status: int) -> float:
    """Microseconds until the answer is there."""
    asked = request(f"127.0.0.1:{port}", key, "GET", "/api/tasks?limit=1")
    began = perf_counter_ns()
    connection.sendall(asked)
    answer = connection.recv(65536)
    took = perf_counter_ns() - began
    while not _whole(answer):
        answer += connection.recv(65536)
    if int(answer[9:12]) != status:
        raise RuntimeError(f"{status} was expected, not this answer: {answer.decode(errors='replace')[:500]}")
    return took / 1000


def _whole(answer: bytes) -> bool:
    head, found, body = answer.partition(b"\r\n\r\n")
    return bool(found) and len(body) >= int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
