"""Counters and histograms: numbers that a process keeps of itself, cheap enough for the busiest path, and of which
there are never more than a few, whatever names tasks have.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import product

Values = tuple[str, ...]
"""One value for each label of a family."""

Numbers = Mapping[Values, list[float]]
"""What a family says for each combination of values. Of two processes, each number is added to its like."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds, from a claim in memory to one that waited for a lock."""

OTHER = "other"
MAX_SERIES = 1000
"""Combinations of values that a family has at most; those that come later are `other` in every label."""


class Label:
    """A label, and the values that it may have: those that are given, or else the first `most` that come. Every other
    one is `other`."""

    def __init__(self, name: str, *values: str, most: int = 0) -> None:
        self.name = name
        self.fixed = values
        self._known = set(values)
        self._most = max(most, len(values))
        self._lock = threading.Lock()  # families share a label

    def admit(self, value: str) -> str:
        """The value, or `other`."""
        with self._lock:
            if value not in self._known and len(self._known) < self._most:
                self._known.add(value)
            return value if value in self._known else OTHER


class Family:
    """Numbers under one name, one set of them for each combination of its labels' values."""

    kind = "counter"

    def __init__(self, name: str, about: str, *labels: Label) -> None:
        self.name = name
        self.about = about
        self.labels = labels
        self._lock = threading.Lock()
        self._series: dict[Values, list[float]] = {values: self._nothing() for values in self._foreseen()}

    def read(self) -> Numbers:
        """The numbers of every combination of values; also zeros, where all values are known beforehand."""
        with self._lock:
            return {values: list(numbers) for values, numbers in self._series.items()}

    def _nothing(self) -> list[float]:
        return [0]

    def _foreseen(self) -> Iterator[Values]:
        """A line that begins at zero shows its first step; one that begins with the step hides it."""
        return product(*(label.fixed for label in self.labels))

    def _admit(self, values: Values) -> list[float]:
        """The numbers of values that have none yet; the lock is held."""
        known = tuple(label.admit(value) for label, value in zip(self.labels, values, strict=True))
        if known not in self._series and len(self._series) >= MAX_SERIES:
            known = (OTHER,) * len(values)
        return self._series.setdefault(known, self._nothing())


class Counter(Family):
    """A number that only grows."""

    def add(self, *values: str, times: int = 1) -> None:
        """So many more."""
        with self._lock:
            (self._series.get(values) or self._admit(values))[0] += times


class Histogram(Family):
    """How many took how long: a number for each bucket, one for all that took longer, and the seconds of all."""

    kind = "histogram"

    def __init__(self, name: str, about: str, *labels: Label, buckets: tuple[float, ...] = BUCKETS) -> None:
        self.buckets = buckets
        super().__init__(name, about, *labels)

    def add(self, seconds: float, *values: str, times: int = 1) -> None:
        """One that took so long, or several of them."""
        with self._lock:
            numbers = self._series.get(values) or self._admit(values)
            numbers[bisect_left(self.buckets, seconds)] += times
            numbers[-1] += seconds * times

    def _nothing(self) -> list[float]:
        return [0] * (len(self.buckets) + 1) + [0.0]
