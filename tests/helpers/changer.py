"""A process that changes or runs tasks at the same time as others, controlled as in member.py."""

from __future__ import annotations

import random
import sys

import dibs
from tests.helpers.member import main

QUEUES = ("one", "two", "three")
WAIT = 2.0
"""Seconds after which a worker that finds nothing to claim ends."""


def change(app: dibs.Dibs, name: str, ids: list[int], first: int) -> dict[str, list[int]]:
    """Change each task once, with a version of its own as priority and params. The versions that were accepted and
    refused."""
    accepted, refused = [], []
    chance = random.Random(first)
    for version, task_id in enumerate(chance.sample(ids, len(ids)), first):
        delay = chance.choice([None, None, 0, 0.01])
        try:
            app.change(task_id, priority=version, params={"version": version}, queue=chance.choice(QUEUES), delay=delay)
            accepted.append(version)
        except (dibs.AlreadyStarted, dibs.WrongState):
            refused.append(version)
    return {"accepted": accepted, "refused": refused}


def work(app: dibs.Dibs, name: str) -> dict[str, list[int | str]]:
    """Run tasks until there are none. What each claim got: version, priority and queue by the task's id."""
    ran: dict[str, list[int | str]] = {}
    while (claim := app.claim(name, wait=WAIT)) is not None:
        task = claim.task
        assert str(task.id) not in ran
        ran[str(task.id)] = [task.params["version"], task.priority, task.queue]
        app.complete(claim)
    return ran


if __name__ == "__main__":
    main({"change": change, "work": work}, *sys.argv[1:])
