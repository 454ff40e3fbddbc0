"""The file cannot be written: a process that starts meanwhile reports it, writes nothing, and continues later.

Promises 1 and 3. The usual cause is a file that has another owner after it was restored. The workers are ended (with a
signal, or with kill -9, which leaves a write-ahead log), the file and its folder become read-only, new workers start.
They report the reason, and not a byte changes; once the file can be written again, the same workers continue.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.helpers.waiting import until
from tests.stress.disk_full import seconds_until_all_go_on, troubles
from tests.stress.process_group import PATIENCE, ProcessGroup
from tests.stress.scenario import Scenario, Stage, main

WITHOUT_PRIVILEGES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""To root every file can be written: not to a root without these two."""


def play(stage: Stage) -> None:
    folder = stage.folder / "file"
    folder.mkdir()
    stage.database = stage.url = f"sqlite:///{folder}/dibs.db"
    plain_workers = stage.start_processes(
        1 if stage.short else 2, under=WITHOUT_PRIVILEGES if os.geteuid() == 0 else ()
    )
    for _ in stage.rounds():
        plain_workers.wait_for(stage.chance.randint(5, 20 if stage.short else 200))
        end(plain_workers, politely=stage.chance.random() < 0.5)
        try:
            start_read_only(stage, plain_workers, folder)
        finally:
            set_writable(folder, True)
        stage.tally.recovery.append(seconds_until_all_go_on(plain_workers))


def end(plain_workers: ProcessGroup, politely: bool) -> None:
    if politely:
        plain_workers.stop()
    else:
        for member in list(plain_workers.members):
            plain_workers.kill(member)


def start_read_only(stage: Stage, plain_workers: ProcessGroup, folder: Path) -> None:
    set_writable(folder, False)
    before = contents(folder)
    plain_workers.start(1 if stage.short else 2)
    until(lambda: all(troubles(member) >= 2 or not member.is_alive for member in plain_workers.members), PATIENCE)
    stage.tally.injected += sum(troubles(member) for member in plain_workers.members)
    if contents(folder) != before:
        stage.tally.problems.append("a file that is read-only has changed")


def set_writable(folder: Path, writable: bool) -> None:
    for path in folder.iterdir():
        path.chmod(0o644 if writable else 0o444)
    folder.chmod(0o755 if writable else 0o555)


def contents(folder: Path) -> dict[str, bytes]:
    """The relevant bytes: the index of the write-ahead log is rebuilt by the first process that opens the file."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


SCENARIO = Scenario(
    name="read_only_file",
    fault="the file is read-only, and can be written again",
    promises=(1, 3),
    engines=("sqlite",),
    play=play,
    needs=WITHOUT_PRIVILEGES[:1] if os.geteuid() == 0 else (),
)

if __name__ == "__main__":
    main(SCENARIO)
