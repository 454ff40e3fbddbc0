"""A process that runs limited tasks at the same time as others, controlled as in member.py.

The clock of the store is the real time plus the number of seconds in the file that DIBS_TEST_CLOCK names, so that a
test can set the clock of all processes back at the same moment.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import dibs
from dibs import Claim, Completed, Failed, Failure, NewTask, Released
from tests.helpers.member import report, say

WAIT = 2.0
"""Seconds for which a racer that finds nothing goes on."""


def main(url: str, name: str) -> None:
    offset = os.environ.get("DIBS_TEST_CLOCK")
    with dibs.Dibs(url, clock=None if offset is None else lambda: shifted(Path(offset))) as app:
        app.claim(name, queues=["nothing-is-ever-in-here"])  # so that everything is open and warm
        racer = Racer(app, name)
        say("ready")
        for line in sys.stdin:
            command = json.loads(line)
            say(getattr(racer, command.pop("do"))(**command))


def shifted(offset: Path) -> int:
    """Microseconds of the clock that all processes share."""
    return time.time_ns() // 1000 + round(float(offset.read_text() or 0) * 1e6)


class Racer:
    """The commands."""

    def __init__(self, app: dibs.Dibs, name: str) -> None:
        self.app, self.name = app, name
        self.held: list[Claim] = []

    def take(self, count: int = 1) -> int:
        """Complete what it holds, one task after the other, then claim. How many it holds now."""
        for claim in self.held:
            self.app.complete(claim)
        self.held = self.app.claim_many(self.name, count)
        return len(self.held)

    def work(self, seed: int, done: int, exchange: bool = False) -> list[int]:
        """Claim batches of any size and end the claims in every way, until this many tasks are completed in the store.
        The ids of the tasks that it completed."""
        chance, ended = random.Random(seed), []
        while not self.is_done(done):
            count = chance.choice([1, 2, 5, 20])
            if exchange and self.held:
                ended += self.complete_and_claim(count)
                continue
            claims = self.app.claim_many(self.name, count, lease=60 if chance.random() < 0.9 else 0.05, wait=0.05)
            if exchange:
                self.held = claims
                continue
            reports = [(claim, an_outcome(chance)) for claim in claims]
            ended += [task_id for task_id, _, event in report(self.app, reports) if event == "completed"]
        return ended

    def complete_and_claim(self, count: int) -> list[int]:
        """Complete what it holds and claim, in one transaction. The ids of the tasks that it completed: a lease may
        have ended before."""
        held = self.held
        answers, self.held = self.app.exchange([(claim, Completed()) for claim in held], self.name, count)
        pairs = zip(held, answers, strict=True)
        return [claim.task_id for claim, answer in pairs if not isinstance(answer, dibs.DibsError)]

    def is_done(self, done: int) -> bool:
        return self.app.stats().depth.get("completed", 0) >= done

    def drain(self, seed: int, total: int) -> int:
        """Claim and complete, in batches, until no task is left. How many it claimed."""
        chance, claimed, until = random.Random(seed), 0, time.monotonic() + WAIT
        while time.monotonic() < until:
            claims = self.app.claim_many(self.name, chance.choice([1, 3, 10]))
            if claims:
                claimed += len(claims)
                self.app.finish([(claim, Completed()) for claim in claims])
                until = time.monotonic() + WAIT
            elif self.is_done(total):
                break
        return claimed

    def enqueue(self, seed: int, count: int, options: list[dict[str, Any]]) -> int:
        """Enqueue tasks one by one, each with one of these options and any priority."""
        chance = random.Random(seed)
        for number in range(count):
            chosen = chance.choice(options)
            self.app.enqueue_many(
                [NewTask("t", {"n": number}, priority=chance.randint(0, 9), max_attempts=99, **chosen)]
            )
        return count


def an_outcome(chance: random.Random) -> dibs.Outcome:
    kind = chance.random()
    if kind < 0.8:
        return Completed()
    return Released() if kind < 0.9 else Failed(Failure("Boom", "once more"), retry_in=0)


if __name__ == "__main__":
    main(*sys.argv[1:])
