"""The limits and the fair queue of a run, and a record of them for the checker of histories.

The limits overlap: a task may have a limit that it shares with all others, one for its group, one with a rate, one that
its queue carries, several of them, or none. The queue "queue-1" is fair; it begins with many tasks of one group, and
more than half of those that follow are of that group as well.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

import dibs
from dibs import NewTask
from dibs.model.limit import PER_GROUP, NewLimit
from dibs.observe.limits_check import LimitPeriod, LimitsRecord

SHARED = NewLimit(name="shared", max=7)
TENANT = NewLimit(name="tenant", max=2, per=PER_GROUP)
PACED = NewLimit(name="paced", rate="20/second", burst=5)
WIDE = NewLimit(name="wide", max=5)
LIMITS = (SHARED, TENANT, PACED, WIDE)

CARRIED = WIDE
"""The limit that a queue carries. It may be removed while processes enqueue; a task cannot name an unknown limit."""

OWN = (
    *4 * ((), ("shared",), ("tenant",), ("shared", "tenant"), ("tenant", "shared")),
    ("paced",),
    ("paced", "shared"),
)
GROUPS = ("flood", "flood", "flood", "a", "b")

FLOOD = 300
"""Tasks of one group that wait from the beginning."""

BATCH = 60
"""Tasks that one claim takes at most: a server makes one claim of those of three workers."""


def options_of(key: str) -> dict[str, Any]:
    """The limits and the group of the task with this key."""
    chance = zlib.crc32(key.encode())
    return {"limits": OWN[chance % len(OWN)], "group": GROUPS[chance // len(OWN) % len(GROUPS)]}


class Limits:
    """The limits of one run, and the times of their changes."""

    def __init__(self) -> None:
        self._database: str | None = None
        self._periods: list[LimitPeriod] = []
        self._last: dict[str, int] = {}

    def begin(self, database: str) -> None:
        """Store the limits and settings, once."""
        if self._database is not None:
            return
        self._database = database
        for limit in LIMITS:
            self.set(limit)
        with dibs.Dibs(database) as app:
            app.set_queue("queue-0", limits=[CARRIED.name])
            app.set_queue("queue-1", fair=True)
            app.enqueue_many(
                NewTask("t", {}, queue="queue-1", group="flood", priority=n % 3, max_attempts=1000)
                for n in range(FLOOD)
            )

    def set(self, limit: NewLimit) -> None:
        """Store these values."""
        since = datetime.now(UTC)
        with self._open() as app:
            app.set_limit(limit.name, max=limit.max, rate=limit.rate, burst=limit.burst, per=limit.per)
        self._note(limit.name, limit, since)

    def remove(self, name: str) -> None:
        """Remove the limit."""
        since = datetime.now(UTC)
        with self._open() as app:
            app.remove_limit(name)
        self._note(name, None, since)

    def record(self, app: dibs.Dibs) -> LimitsRecord:
        """What the checker needs: the values at all times, the settings and the use at the end."""
        return LimitsRecord(
            limits=self._periods,
            queues={settings.queue: settings for settings in app.queue_settings()},
            types={settings.type: settings for settings in app.type_settings()},
            used=used_by(app),
            drained=True,
            batch=BATCH,
        )

    def _open(self) -> dibs.Dibs:
        assert self._database is not None
        return dibs.Dibs(self._database)

    def _note(self, name: str, values: NewLimit | None, since: datetime) -> None:
        """End the last period after the change, and begin the new one before it: claims in between follow either."""
        if (last := self._last.get(name)) is not None:
            before = self._periods[last]
            self._periods[last] = LimitPeriod(name, before.values, before.since, datetime.now(UTC))
        self._last[name] = len(self._periods)
        self._periods.append(LimitPeriod(name, values, since))


def used_by(app: dibs.Dibs) -> dict[tuple[str, str | None], int]:
    """The live claims that the store counts for each limit, and for each group of a limit per group."""
    used: dict[tuple[str, str | None], int] = {}
    for limit in app.limits():
        if limit.per is None:
            used[limit.name, None] = limit.used
        else:
            used |= {(limit.name, found.group or ""): found.used for found in app.limit_groups(limit.name)}
    return used
