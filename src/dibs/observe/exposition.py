"""Counts in the words of Prometheus. Only here and in the server is its client needed, which is an extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dibs.observe.instruments import Histogram
from dibs.observe.sharing import FAMILIES, Counts
from dibs.version import __version__

FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The format that every Prometheus reads; nothing here needs a newer one."""


def render(metrics: Iterable[Metric]) -> bytes:
    """A page of these."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return generate_latest(registry)


def build_info() -> Metric:
    """Which dibs it is that answers."""
    return InfoMetricFamily("dibs_build", "The dibs that answers.", {"version": __version__})


def counted(counts: Counts) -> Iterator[Metric]:
    """A metric of each family that is counted."""
    for family in FAMILIES:
        labels = [label.name for label in family.labels]
        numbers = sorted(counts.get(family.name, {}).items())
        if isinstance(family, Histogram):
            histogram = HistogramMetricFamily(family.name, family.about, labels=labels)
            for values, (*buckets, seconds) in numbers:
                histogram.add_metric(list(values), _cumulative(family.buckets, buckets), seconds)
            yield histogram
        else:
            counter = CounterMetricFamily(family.name, family.about, labels=labels)
            for values, (count,) in numbers:
                counter.add_metric(list(values), count)
            yield counter


def page_of(total: Callable[[], Counts]) -> bytes:
    """The page of a process that has nothing to tell but what was counted."""
    return render([build_info(), *counted(total())])


def _cumulative(bounds: Iterable[float], counts: Iterable[float]) -> list[tuple[str, float]]:
    """How many took at most so many seconds, bound by bound."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


class _Collector(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics
