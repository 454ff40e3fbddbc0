"""The clock of a sandbox."""

from __future__ import annotations

from datetime import UTC, datetime

from dibs.errors import InvalidValue
from dibs.model.checks import check_seconds, from_micros, to_micros


class Clock:
    """The clock of a sandbox: starts with the real time and changes only when the test changes it."""

    def __init__(self) -> None:
        self._micros = to_micros(datetime.now(UTC))

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return from_micros(self._micros)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Advance the clock by the sum of these durations."""
        given = {"seconds": (seconds, 1), "minutes": (minutes, 60), "hours": (hours, 3600), "days": (days, 86400)}
        self._micros += sum(_micros(number, name, unit) for name, (number, unit) in given.items())

    def set(self, moment: datetime) -> None:
        """Set the clock to this time."""
        if moment.utcoffset() is None:
            raise InvalidValue("The time has no time zone.", hint="Use an aware datetime: datetime(…, tzinfo=UTC).")
        self._micros = to_micros(moment)

    def __call__(self) -> int:
        """The time in microseconds since 1970, for the store."""
        return self._micros

    def __repr__(self) -> str:
        return f"Clock({self.now.isoformat()})"


def _micros(number: float, name: str, seconds: int) -> int:
    if type(number) is not int and type(number) is not float:
        raise InvalidValue(f"{name} must be a number, not {number!r}.")
    return check_seconds(number * seconds, name)
