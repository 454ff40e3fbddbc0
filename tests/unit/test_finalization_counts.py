"""Counters of finalization claims: every reply once, with one of a few reasons."""

from __future__ import annotations

import pytest

from dibs.model.finalization import ClaimReason, FinalizationClaim
from dibs.observe import metrics
from tests.helpers.counts import watch

GRANTED = (ClaimReason.CLAIMED, ClaimReason.EXTENDED)


def claim(reason: ClaimReason) -> FinalizationClaim:
    return FinalizationClaim(1, "p1", reason in GRANTED, reason, "state", "message")


@pytest.mark.parametrize("reason", ClaimReason)
def test_a_finalization_claim_is_counted_by_its_reply(reason: ClaimReason) -> None:
    grown = watch("finalization_claim_")
    metrics.count_finalization_claim(claim(reason), 0.01)
    label = "other" if reason in (ClaimReason.NOT_FOUND, ClaimReason.NOT_CLAIMED) else reason
    refused = {"contention_total": 1, f"contention_by_reason_total {label}": 1}
    counted = {"duration_seconds": 1, "attempts_total": 1} | ({"success_total": 1} if reason in GRANTED else refused)
    assert grown() == {f"finalization_claim_{name}": count for name, count in counted.items()}


def test_releases_and_extensions_are_counted_separately() -> None:
    grown = watch("finalization_claim_")
    metrics.count_finalization_release(False, 0.01)
    metrics.count_finalization_extension(claim(ClaimReason.EXTENDED), 0.01)
    counted = (
        "release_duration_seconds",
        "release_attempts_total",
        "release_not_owned_total",
        "extend_duration_seconds",
        "extend_attempts_total",
        "extend_success_total",
    )
    assert grown() == {f"finalization_claim_{name}": 1 for name in counted}
