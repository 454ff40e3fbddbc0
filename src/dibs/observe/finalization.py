"""How finalization claims fare: counted and timed in the process that runs them, for whoever shows the numbers.

An operation is wrapped where it is made, so that sync and async, clients, workers and servers count alike.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from dibs.step import ClaimReason, FinalizationClaim
from dibs.store.operation import Operation

T = TypeVar("T")

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds, from a claim in memory to one that waited for a lock."""

OTHER = "other"
REASONS = (
    ClaimReason.ALREADY_CLAIMED,
    ClaimReason.ALREADY_COMPLETE,
    ClaimReason.NOT_READY,
    ClaimReason.RACE_CONDITION,
    OTHER,
)
"""Why a claim was refused, as a label: there are never more than these."""


def claiming(operation: Operation[FinalizationClaim]) -> Operation[FinalizationClaim]:
    """The claim, counted with its answer."""
    return _timed(operation, _count_claim)


def extending(operation: Operation[FinalizationClaim]) -> Operation[FinalizationClaim]:
    """The renewal, counted with its answer."""
    return _timed(operation, _count_extension)


def releasing(operation: Operation[bool]) -> Operation[bool]:
    """The release, counted with its answer."""
    return _timed(operation, _count_release)


@dataclass(eq=False)
class Counter:
    """A number that only grows; one for each value of its label, where it has one."""

    name: str
    about: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    _counts: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, value: str = "") -> None:
        """One more."""
        with self._lock:
            self._counts[value] = self._counts.get(value, 0) + 1

    def read(self) -> list[tuple[str, int]]:
        """The number for each value of the label, also where it is 0."""
        with self._lock:
            return [(value, self._counts.get(value, 0)) for value in self.values]


@dataclass(eq=False)
class Histogram:
    """How many took how long."""

    name: str
    about: str
    _counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    _seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float) -> None:
        """One that took so long."""
        with self._lock:
            self._counts[bisect_left(BUCKETS, seconds)] += 1
            self._seconds += seconds

    def read(self) -> tuple[list[tuple[str, int]], float]:
        """How many took at most so many seconds, bound by bound, and how long all of them took together."""
        with self._lock:
            counts, seconds = list(accumulate(self._counts)), self._seconds
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        return list(zip(bounds, counts, strict=True)), seconds


@dataclass(frozen=True, slots=True)
class Verb:
    """The numbers of one verb."""

    seconds: Histogram
    attempts: Counter
    success: Counter
    refused: Counter


def _verb(name: str, verb: str, refused: str) -> Verb:
    return Verb(
        Histogram(f"{name}_duration_seconds", f"Seconds that it took to {verb} a finalization."),
        Counter(f"{name}_attempts_total", f"Attempts to {verb} a finalization."),
        Counter(f"{name}_success_total", f"Attempts to {verb} a finalization that were granted."),
        Counter(f"{name}_{refused}_total", f"Attempts to {verb} a finalization that were refused."),
    )


claims = _verb("finalization_claim", "claim", "contention")
releases = _verb("finalization_claim_release", "release", "not_owned")
extensions = _verb("finalization_claim_extend", "extend", "failed")
contention = Counter(
    "finalization_claim_contention_by_reason_total",
    "Attempts to claim a finalization that were refused, by reason.",
    "reason",
    REASONS,
)


def histograms() -> Iterator[Histogram]:
    """Every histogram."""
    yield from (claims.seconds, releases.seconds, extensions.seconds)


def counters() -> Iterator[Counter]:
    """Every counter."""
    for verb in (claims, releases, extensions):
        yield from (verb.attempts, verb.success, verb.refused)
    yield contention


def _timed(operation: Operation[T], count: Callable[[T, float], None]) -> Operation[T]:
    """The operation, counted when it is answered. What fails on the way is no answer."""
    began = time.perf_counter()  # it is run as soon as it is made: waiting for a connection counts as well

    def read(of_steps: Any) -> T:
        answer = operation.result(of_steps)
        count(answer, time.perf_counter() - began)
        return answer

    return replace(operation, read=read)


def _count_claim(answer: FinalizationClaim, seconds: float) -> None:
    _count(claims, answer.claimed, seconds)
    if not answer.claimed:
        contention.add(answer.reason if answer.reason in REASONS else OTHER)


def _count_extension(answer: FinalizationClaim, seconds: float) -> None:
    _count(extensions, answer.claimed, seconds)


def _count_release(released: bool, seconds: float) -> None:
    _count(releases, released, seconds)


def _count(verb: Verb, granted: bool, seconds: float) -> None:
    verb.seconds.add(seconds)
    verb.attempts.add()
    (verb.success if granted else verb.refused).add()
