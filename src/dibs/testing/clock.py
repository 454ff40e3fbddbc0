"""A clock for the store, in the hand of the test."""

from __future__ import annotations

from datetime import UTC, datetime

from dibs.errors import InvalidValue
from dibs.model.checks import check_seconds, from_micros, to_micros


class Clock:
    """The clock of a sandbox: it begins with the real time and then stands still, until the test turns it."""

    def __init__(self) -> None:
        self._micros = to_micros(datetime.now(UTC))

    @property
    def now(self) -> datetime:
        """What it shows."""
        return from_micros(self._micros)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._micros += check_seconds(seconds, "seconds")

    def set(self, moment: datetime) -> None:
        """Turn it to this moment."""
        if moment.utcoffset() is None:
            raise InvalidValue("The moment has no time zone.", hint="Use an aware datetime: datetime(…, tzinfo=UTC).")
        self._micros = to_micros(moment)

    def __call__(self) -> int:
        """Microseconds since 1970, as the store asks for them."""
        return self._micros

    def __repr__(self) -> str:
        return f"Clock({self.now.isoformat()})"
