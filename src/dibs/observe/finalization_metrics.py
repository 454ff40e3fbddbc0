"""How finalization claims fare: counted and timed in the process that asks for them, for whoever shows the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.model.finalization import ClaimReason, FinalizationClaim
from dibs.observe.instruments import OTHER, Counter, Family, Histogram, Label

REASONS = (
    ClaimReason.ALREADY_CLAIMED,
    ClaimReason.ALREADY_COMPLETE,
    ClaimReason.NOT_READY,
    ClaimReason.RACE_CONDITION,
    OTHER,
)
"""Why a claim was refused, as a label: there are never more than these."""


@dataclass(frozen=True, slots=True)
class Verb:
    """The numbers of one verb."""

    seconds: Histogram
    attempts: Counter
    success: Counter
    refused: Counter

    def count(self, granted: bool, seconds: float) -> None:
        """One answer."""
        self.seconds.add(seconds)
        self.attempts.add()
        (self.success if granted else self.refused).add()


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
    Label("reason", *REASONS),
)

FAMILIES: tuple[Family, ...] = (
    *(verb.seconds for verb in (claims, releases, extensions)),
    *(each for verb in (claims, releases, extensions) for each in (verb.attempts, verb.success, verb.refused)),
    contention,
)


def count_claim(answer: FinalizationClaim, seconds: float) -> None:
    """A claim was answered."""
    claims.count(answer.claimed, seconds)
    if not answer.claimed:
        contention.add(answer.reason)


def count_extension(answer: FinalizationClaim, seconds: float) -> None:
    """A renewal was answered."""
    extensions.count(answer.claimed, seconds)


def count_release(released: bool, seconds: float) -> None:
    """A release was answered."""
    releases.count(released, seconds)
