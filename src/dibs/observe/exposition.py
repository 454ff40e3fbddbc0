"""Metrics in the text format of Prometheus. Only this module and the server need prometheus_client, which is an
extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dibs.observe.instruments import Histogram
from dibs.observe.metrics import FAMILIES
from dibs.observe.sharing import Counts
from dibs.version import __version__

FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of the text format that every version of Prometheus reads."""


def render(metrics: Iterable[Metric]) -> bytes:
    """Render the metrics as a page."""
    registry = CollectorRegistry()
    registry.register(_Collector(metrics))
    return generate_latest(registry)


def build_info() -> Metric:
    """The metric with the version of dibs."""
    return InfoMetricFamily("dibs_build", "The version of dibs.", {"version": __version__})


def counted(counts: Counts) -> Iterator[Metric]:
    """Convert the counts to one metric for each family."""
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
    """The metrics page of a process without a server: build info and counts."""
    return render([build_info(), *counted(total())])


def _cumulative(bounds: Iterable[float], counts: Iterable[float]) -> list[tuple[str, float]]:
    """The cumulative counts of a histogram: for each bound the number of values up to it."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


class _Collector(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics
