"""fsync fails: a write that the disk did not confirm is not acknowledged, and a repeated request gets a true reply.

Promises 1 and 9. For one worker some fsyncs fail. SQLite has written the transaction by then, and undoes it. But if all
processes die before the next write covers it, the next process that opens the file finds it and treats it as committed.
So the outcome is "unknown"; and now and then all processes are killed, so that this case occurs.
"""

from __future__ import annotations

from tests.stress.process_group import ProcessGroup
from tests.stress.scenario import Scenario, Stage, main
from tests.stress.syscalls import failing, injected

LEASE, UPKEEP = 1.0, 0.3


def play(stage: Stage) -> None:
    stage.tally.promised = LEASE + UPKEEP
    healthy = stage.start_processes(2, lease=LEASE, upkeep_every=UPKEEP, batch=3 if stage.short else 20)
    for number in stage.rounds():
        log = stage.folder / f"strace-{number}.log"
        often = f"{stage.chance.randint(2, 12)}+{stage.chance.randint(2, 6)}"
        sick = stage.start_processes(
            1, lease=LEASE, upkeep_every=UPKEEP, under=failing(log, "fsync,fdatasync", "EIO", often)
        )  # fmt: skip
        sick.wait_for(stage.chance.randint(5, 10 if stage.short else 150))
        kill_all(sick, healthy) if number % 2 else sick.kill()
        stage.tally.injected += injected(log)
    healthy.wait_for(5)


def kill_all(sick: ProcessGroup, healthy: ProcessGroup) -> None:
    """Kill all processes that have the file open, so that the next one reads the file as it is on the disk."""
    dead = [sick.kill(), *(healthy.kill() for _ in list(healthy.members))]
    for member in dead[1:]:
        healthy.replace(member)


SCENARIO = Scenario(
    name="fsync_fails",
    fault="every few fsyncs of a process fail (EIO)",
    promises=(1, 9),
    engines=("sqlite",),
    play=play,
    needs=("strace",),
)

if __name__ == "__main__":
    main(SCENARIO)
