"""A process whose threads replace tasks, or that runs tasks, at the same time as others, controlled as in member.py."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import dibs
from tests.helpers.member import main

KEYS = ("a", "b", "c")
WAIT = 3.0
"""Seconds after which a worker that finds nothing to claim ends."""

Sent = list[tuple[str, int, int, bool]]
"""The accepted calls of a sender in their order: key, version, id of the task, and whether the task is new."""


def send(app: dibs.Dibs, name: str, senders: int, calls: int, first: int) -> list[Sent]:
    """Let this many threads replace tasks, each call with a version of its own."""
    with ThreadPoolExecutor(senders) as pool:
        starts = [first + n * calls for n in range(senders)]
        return list(pool.map(lambda start: _send(app, calls, start), starts))


def _send(app: dibs.Dibs, calls: int, first: int) -> Sent:
    chance, sent = random.Random(first), []
    for version in range(first, first + calls):
        key, delay = chance.choice(KEYS), chance.choice([None, None, 0.01])
        due = {} if delay is None else {"delay": delay, "max_delay": 0.05}
        task = app.enqueue(
            "index", {"version": version}, key=key, key_scope="until_started", on_conflict="replace", **due
        )
        assert task.replaced is task.deduplicated
        sent.append((key, version, task.id, not task.deduplicated))
    return sent


def work(app: dibs.Dibs, name: str) -> dict[str, int]:
    """Run tasks until there are none. The version that each claim got, by the id of the task."""
    ran: dict[str, int] = {}
    while (claim := app.claim(name, wait=WAIT)) is not None:
        assert str(claim.task_id) not in ran
        ran[str(claim.task_id)] = claim.task.params["version"]
        app.complete(claim)
    return ran


if __name__ == "__main__":
    main({"send": send, "work": work}, *sys.argv[1:])
