"""A slow connection: every message is delayed in each direction, by varying times. Leases are still kept.

Promises 2 to 5. A task that takes longer than its lease is taken over by another worker, and the late outcome is
refused.
"""

from __future__ import annotations

from tests.stress.link import Link
from tests.stress.process_group import PATIENCE
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.5, 0.3
SLOWEST = LEASE / 2
"""Seconds in one direction: a renewal then arrives when the lease is about to end."""

RATE = 200_000.0

ROUND_TRIPS = 20
"""Of the slowest call that a client makes on its way to its next answer: a claim in random order whose tasks have no
numbers yet, with a sweep before it. Most calls take one or two; opening the store takes ten."""


def play(stage: Stage) -> None:
    link = stage.enter(Link(stage.url))
    near = stage.start_processes(1, lease=LEASE, batch=3, upkeep_every=UPKEEP, queues=["queue-0", "queue-1"])
    naps = stage.senders(1, naps=0.01, batch=5, backlog=100)
    far = stage.start_processes(1, url=link.url, lease=LEASE, batch=5, queues=["queue-0", "queue-1"], upkeep_every=1000)
    workers = stage.start_processes(1, kind="worker", url=link.url, lease=LEASE, upkeep_every=UPKEEP)
    for number in stage.rounds():
        latency = 0.02 if stage.short else stage.chance.choice([0.01, 0.05, 0.2, SLOWEST])
        link.slow(latency, RATE)
        stage.tally.injected += 1
        for group in (far, workers):
            answers = 2 if stage.short else 5
            group.wait_for(answers, PATIENCE + answers * ROUND_TRIPS * 2 * latency)
        if number % 3 == 2:
            link.slow(0.0, float("inf"))
            workers.wait_for(5)
    link.slow(0.0, float("inf"))
    for group in (near, far, workers, naps):
        group.wait_for(2)


SCENARIO = Scenario(
    name="slow_link",
    fault="every message takes 10 to 750 ms in each direction, at 200 kB/s",
    promises=(2, 3, 4, 5),
    engines=("postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
