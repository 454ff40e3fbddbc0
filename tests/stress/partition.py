"""A network partition: some clients lose the store, in one direction or both, until their leases have run out.

Promises 2 to 5 and 9. No error is reported: connections stay open, and sent messages arrive when the partition ends, or
never. Other workers take over; a client that returns with an old token is refused, and continues with new work.
"""

from __future__ import annotations

from tests.helpers.databases import run_sql
from tests.helpers.waiting import until
from tests.stress.link import ANSWERS, REQUESTS, Link
from tests.stress.process_group import ProcessGroup
from tests.stress.scenario import Scenario, Stage, main

LEASE, UPKEEP = 1.0, 0.2

SOON_NOTICED = "&options=-c%20idle_in_transaction_session_timeout%3D1s"
"""A client that is cut off in a transaction keeps its locks until the server ends it: after 10 s by default."""

DIRECTIONS = ((REQUESTS, ANSWERS), (REQUESTS,), (ANSWERS,))


def play(stage: Stage) -> None:
    link = stage.enter(Link(stage.url))
    url = f"{link.url}{SOON_NOTICED}" if stage.short and stage.engine == "postgres" else link.url
    queues = ["queue-0", "queue-1"]
    near = stage.start_processes(1, lease=LEASE, batch=3, upkeep_every=UPKEEP, queues=queues)
    naps = stage.senders(1, naps=0.02, batch=5, backlog=100)
    far = stage.start_processes(2, url=url, lease=LEASE, upkeep_every=UPKEEP, queues=queues)
    workers = stage.start_processes(1, kind="worker", url=url, lease=LEASE, upkeep_every=UPKEEP)
    for group in (far, workers):
        group.wait_for(5)
    for number in stage.rounds():
        link.part(*DIRECTIONS[number % len(DIRECTIONS)])
        stage.tally.injected += 1
        until(lambda: nothing_is_held_by(stage.database, far, workers), 60)
        near.wait_for(2)
        if stage.chance.random() < 0.5:
            link.cut()  # what was on its way is gone
        link.heal()
        for group in (far, workers):
            for member in group.members:
                member.wait_for(2)
    naps.wait_for(1)


def nothing_is_held_by(database: str, *groups: ProcessGroup) -> bool:
    """True once others have taken back everything that these hold."""
    names = ", ".join(f"'{member.name}'" for group in groups for member in group.members)
    held = f"SELECT count(*) FROM dibs_tasks WHERE state = 'claimed' AND worker_id IN ({names})"
    return run_sql(database, held) == [(0,)]


SCENARIO = Scenario(
    name="partition",
    fault="clients are cut off without a word, in one direction or both, until their leases have run out",
    promises=(2, 3, 4, 5, 9),
    engines=("postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
