"""Adaptive batch sizes: the number of tasks that can be searched or changed in a short time."""

from __future__ import annotations

from dataclasses import dataclass

READ_TIME = 0.03
"""Target duration, in seconds, of the search through one range of tasks."""

FIRST_SPAN, FIRST_TEXT_SPAN, MIN_SPAN, MAX_SPAN = 5_000, 10, 10, 50_000
"""Number of tasks to search at once. The first search for a text is short, because the params of a task may have a
megabyte; its duration determines the size of the next search."""

MIN_BATCH, FIRST_BATCH, MAX_BATCH = 20, 50, 500
FAST_WRITE = 0.027
"""Seconds; after a batch that was written in less time the next batch is larger."""


def first_span(text: str | None) -> int:
    """Number of tasks in the first search."""
    return min(FIRST_SPAN if text is None else FIRST_TEXT_SPAN, MAX_SPAN)


def next_span(span: int, searched: int, spent: float, left: float) -> int:
    """Number of tasks in the next search: as many as the rate so far allows in READ_TIME or the time that is left.

    Short searches keep the last one short on a machine that is suddenly busy.
    """
    possible = int(searched / spent * min(left, READ_TIME)) if spent else MAX_SPAN
    return max(MIN_SPAN, min(possible, 10 * span, MAX_SPAN))


@dataclass(slots=True)
class BatchSize:
    """The number of tasks to change in one batch: grows while writes are fast."""

    size: int = FIRST_BATCH

    def took(self, seconds: float) -> None:
        """Adapt the size to the time that the last batch took."""
        size = self.size * 2 if seconds < FAST_WRITE else self.size // 2
        self.size = min(max(size, MIN_BATCH), MAX_BATCH)
