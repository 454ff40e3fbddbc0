"""The exact probability of a count, so that a statistical test can have a bound that fair results never reach."""

from __future__ import annotations

from collections.abc import Sequence
from math import erfc, exp, lgamma, log, sqrt

NEVER = 1e-8
"""What chance alone does less often than this, a test may call wrong: some ten of them are in each run of the suite."""


def chance_of_misfit(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """How often fair draws fit these probabilities as badly as the counts do (chi-square)."""
    draws = sum(counts)
    misfit = sum((n - draws * p) ** 2 / (draws * p) for n, p in zip(counts, probabilities, strict=True))
    return _upper_gamma((len(counts) - 1) / 2, misfit / 2)


def chance_of_count(count: int, draws: int, probability: float) -> float:
    """How often a count of fair draws lies at least as far out as this one, on either side (binomial)."""
    up_to = sum(_binomial(n, draws, probability) for n in range(count + 1))
    return min(1.0, 2 * min(up_to, 1 - up_to + _binomial(count, draws, probability)))


def _upper_gamma(a: float, x: float) -> float:
    """The regularized upper incomplete gamma function, for multiples of one half."""
    if a == 0.5:
        return erfc(sqrt(x))
    if a == 1.0:
        return exp(-x)
    return _upper_gamma(a - 1, x) + exp((a - 1) * log(x) - x - lgamma(a))


def _binomial(n: int, draws: int, p: float) -> float:
    ways = lgamma(draws + 1) - lgamma(n + 1) - lgamma(draws - n + 1)
    return exp(ways + n * log(p) + (draws - n) * log(1 - p))
