"""The connection is cut after COMMIT and before the reply, or before the request arrives: a repetition is safe.

Promises 6 and 9. Processes repeat the request with the same key, token or request id, and must get the same task, claim
and outcome; a worker must notice the fault and continue without help.
"""

from __future__ import annotations

from tests.stress.link import ANSWERS, REQUESTS, Link
from tests.stress.scenario import Scenario, Stage, main

LEASE = 2.0


def play(stage: Stage) -> None:
    link = stage.enter(Link(stage.url))
    naps = stage.senders(1, url=link.url, naps=0.001, batch=5, backlog=200)
    workers = stage.start_processes(1, kind="worker", url=link.url, lease=LEASE)
    plain_workers = stage.start_processes(2, url=link.url, lease=LEASE, queues=["queue-0", "queue-1"])
    for _ in stage.rounds():
        for _ in range(5 if stage.short else stage.chance.randint(5, 50)):
            link.lose(1, ANSWERS if stage.chance.random() < 0.8 else REQUESTS)
            stage.tally.injected += 1
            plain_workers.wait_for(stage.chance.randint(0, 5))
        workers.pick().wait_for(2)
    for group in (plain_workers, workers, naps):
        group.pick().wait_for(2)


SCENARIO = Scenario(
    name="reply_dropped",
    fault="the connection is reset after COMMIT, before the answer (one in five: before the request)",
    promises=(1, 2, 3, 4, 6, 9),
    engines=("postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
