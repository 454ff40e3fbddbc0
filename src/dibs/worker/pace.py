"""How long handlers take, and so how many tasks a lane may claim ahead of its turn.

Long tasks are claimed for free places only. A worker that did so with very short ones would spend its time asking, so
it claims them ahead: about half a second of work, so that other workers get their share and little is held by a
worker that dies.
"""

from __future__ import annotations

from collections.abc import Sequence

SHORT = 0.05
"""Seconds up to which a type counts as very short."""

AHEAD = 0.5
"""Seconds of work that a lane may hold."""

MOST = 1000
"""Tasks that a lane may hold, however short."""

WEIGHT = 0.1


class Pace:
    """A running average of the time that the tasks of each type take."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def note(self, type_name: str, seconds: float) -> None:
        """A task of this type took so long. A long one counts at once, short ones little by little."""
        known = self._average.get(type_name, seconds)
        self._average[type_name] = seconds if seconds > SHORT else known + (seconds - known) * WEIGHT

    def short(self, types: Sequence[str]) -> list[str]:
        """The types among these that are known to be very short."""
        return [name for name in types if self._average.get(name, SHORT) < SHORT]

    def ahead(self, types: Sequence[str], places: int) -> int:
        """How many tasks of these types make enough work for so many places."""
        slowest = max(self._average[name] for name in types)
        return max(places, min(MOST, int(places * AHEAD / max(slowest, 1e-6))))
