"""The reference of metrics has every family with its labels, as in the code, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.core import Metric

from dibs.model.finalization import ClaimReason
from dibs.model.statistics import DatabaseHealth, Percentiles
from dibs.observe import metrics
from dibs.observe.instruments import Histogram
from dibs.server.statistics import store_metrics
from dibs.server.statistics.store_metrics import LimitNumbers, QueueNumbers, StoreNumbers, StoreSnapshot

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
ROWS = {
    name: (set(re.findall(r"`(\w+)`", labels)), about)
    for name, labels, about in re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
}


def of_database() -> dict[str, Metric]:
    """A family of each kind that a server reads from the database."""
    known = Percentiles(1.0, 1.0, 1.0)
    snapshot = StoreSnapshot(
        queues={"q": QueueNumbers({}, 0.0, 0, paused=False)},
        oldest=0.0,
        finished_last_minute={},
        wait=known,
        run=known,
        workers=[],
        paused_types=["resize"],
        whole_store=StoreNumbers(
            [], {}, DatabaseHealth(1, 1, 1.0), {"stripe": LimitNumbers(1, 5, 2, 60.0)}, {"mail": 1.0}
        ),
    )
    return {sample.name: family for family in store_metrics.of_store(snapshot) for sample in family.samples}


def test_every_metric_is_described_with_its_labels() -> None:
    counted = {family.name: {label.name for label in family.labels} for family in metrics.FAMILIES}
    read = {name: set(family.samples[0].labels) for name, family in of_database().items()}
    assert {name: labels for name, (labels, _) in ROWS.items()} == counted | read


def test_histograms_are_described_as_histograms() -> None:
    histograms = {family.name for family in metrics.FAMILIES if isinstance(family, Histogram)}
    assert {name for name, (_, about) in ROWS.items() if about.startswith("histogram")} == histograms


def test_the_values_of_labels_with_few_values_are_listed() -> None:
    for family in metrics.FAMILIES:
        for value in (value for label in family.labels for value in label.fixed):
            assert f"`{value}`" in ROWS[family.name][1]
    assert ClaimReason.ALREADY_CLAIMED in ROWS["finalization_claim_contention_by_reason_total"][1]


def test_every_metric_has_a_help_text() -> None:
    for family in (*metrics.FAMILIES, *of_database().values()):
        about = family.about if hasattr(family, "about") else family.documentation
        assert about.endswith(".")
