"""Counters and histograms of a process: cheap enough for the busiest path, with a bounded number of series."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import product

Values = tuple[str, ...]
"""One value for each label of a family."""

Numbers = Mapping[Values, list[float]]
"""The numbers of a family for each combination of label values. Numbers of several processes can be added up."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Histogram buckets in seconds, from a claim in memory to one that waited for a lock."""

OTHER = "other"
MAX_SERIES = 1000
"""The largest number of combinations of label values in a family; later ones are `other` in every label."""


class Label:
    """A label and its allowed values: the given ones, or the first `most` that occur. Every other value is `other`."""

    def __init__(self, name: str, *values: str, most: int = 0) -> None:
        self.name = name
        self.fixed = values
        self._known = set(values)
        self._most = max(most, len(values))
        self._lock = threading.Lock()  # families share a label

    def admit(self, value: str) -> str:
        """The value if it is allowed, else `other`."""
        with self._lock:
            if value not in self._known and len(self._known) < self._most:
                self._known.add(value)
            return value if value in self._known else OTHER


class Family:
    """A metric with labels: a list of numbers for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, about: str, *labels: Label) -> None:
        self.name = name
        self.about = about
        self.labels = labels
        self._lock = threading.Lock()
        self._series: dict[Values, list[float]] = {values: self._zeros() for values in self._fixed_combinations()}

    def read(self) -> Numbers:
        """The numbers of every combination of values. A combination of fixed values is included even if it is zero."""
        with self._lock:
            return {values: list(numbers) for values, numbers in self._series.items()}

    def _zeros(self) -> list[float]:
        return [0]

    def _fixed_combinations(self) -> Iterator[Values]:
        """The combinations of fixed values. They start at zero, so that a graph shows the first increase."""
        return product(*(label.fixed for label in self.labels))

    def _admit(self, values: Values) -> list[float]:
        """The numbers of a new combination of values. The caller holds the lock."""
        known = tuple(label.admit(value) for label, value in zip(self.labels, values, strict=True))
        if known not in self._series and len(self._series) >= MAX_SERIES:
            known = (OTHER,) * len(values)
        return self._series.setdefault(known, self._zeros())


class Counter(Family):
    """A number that only increases."""

    def add(self, *values: str, times: int = 1) -> None:
        """Increase the counter."""
        with self._lock:
            (self._series.get(values) or self._admit(values))[0] += times


class Histogram(Family):
    """Durations: a count for each bucket, a count for longer ones, and the sum of all seconds."""

    kind = "histogram"

    def __init__(self, name: str, about: str, *labels: Label, buckets: tuple[float, ...] = BUCKETS) -> None:
        self.buckets = buckets
        super().__init__(name, about, *labels)

    def add(self, seconds: float, *values: str, times: int = 1) -> None:
        """Add a duration, `times` times."""
        with self._lock:
            numbers = self._series.get(values) or self._admit(values)
            numbers[bisect_left(self.buckets, seconds)] += times
            numbers[-1] += seconds * times

    def _zeros(self) -> list[float]:
        return [0] * (len(self.buckets) + 1) + [0.0]
