"""How much work to do at a time: as many tasks as can be searched or changed in a short moment."""

from __future__ import annotations

from dataclasses import dataclass

STRETCH = 0.03
"""Seconds that one look through a range of tasks should take."""

FIRST_SPAN, FIRST_SPAN_OF_TEXT, LEAST_SPAN, MOST_SPAN = 5_000, 10, 10, 50_000
"""Tasks to look through at once. With a text the first look is short: params may be a megabyte each, and the time that
it took tells how many tasks can be looked through next."""

SMALLEST_BATCH, FIRST_BATCH, LARGEST_BATCH = 20, 50, 500
QUICK = 0.027
"""Seconds; a batch that was written in less is followed by a larger one."""


def first_span(text: str | None) -> int:
    """Tasks that the first look goes through."""
    return min(FIRST_SPAN if text is None else FIRST_SPAN_OF_TEXT, MOST_SPAN)


def next_span(span: int, looked: int, spent: float, left: float) -> int:
    """Tasks that the next look goes through: as many as the pace so far allows in a stretch of the time that is left,
    in several pieces, so that a machine that is suddenly busy does not make a long look of the last."""
    possible = int(looked / spent * min(left, STRETCH)) if spent else MOST_SPAN
    return max(LEAST_SPAN, min(possible, 10 * span, MOST_SPAN))


@dataclass(slots=True)
class Batches:
    """How many tasks to change at once: more while writing them goes fast."""

    size: int = FIRST_BATCH

    def took(self, seconds: float) -> None:
        """Adapt the size to the time that the last batch took."""
        wished = self.size * 2 if seconds < QUICK else self.size // 2
        self.size = min(max(wished, SMALLEST_BATCH), LARGEST_BATCH)
