"""The disk is full: a write that does not fit is not acknowledged, no task is lost, and work continues with new space.

Promises 1, 3 and 9. The file is on a small disk of its own in memory, which shrinks to the used size and grows again.
If mounting one is not allowed, some writes of a worker fail as on a full disk.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.waiting import until
from tests.stress.process_group import PATIENCE, Member, ProcessGroup
from tests.stress.reply_log import TROUBLE
from tests.stress.scenario import Scenario, Stage, main
from tests.stress.syscalls import failing, injected

ROOMY = 2**30


def play(stage: Stage) -> None:
    disk = Disk(stage.folder / "disk")
    if disk.can_be_mounted():
        stage.enter(disk.mounted())
        play_on(disk, stage)
    else:
        play_pretending(stage)


def play_on(disk: Disk, stage: Stage) -> None:
    stage.database = stage.url = f"sqlite:///{disk.path}/dibs.db"
    plain_workers = stage.start_processes(3, payload=500)
    for _ in stage.rounds():
        plain_workers.wait_for(stage.chance.randint(5, 20 if stage.short else 200))
        wait_until_all_are_in_trouble(plain_workers, disk)
        stage.tally.injected += 1
        disk.resize(ROOMY)
        stage.tally.recovery.append(seconds_until_all_go_on(plain_workers))
    stage.tally.notes["file, MiB"] = (disk.path / "dibs.db").stat().st_size / 2**20


def wait_until_all_are_in_trouble(plain_workers: ProcessGroup, disk: Disk) -> None:
    before = [troubles(member) for member in plain_workers.members]

    def all_are() -> bool:
        disk.fill()  # again and again: what is written may free some pages
        return all(troubles(member) > seen for member, seen in zip(plain_workers.members, before, strict=True))

    until(all_are, PATIENCE)


def seconds_until_all_go_on(plain_workers: ProcessGroup) -> float:
    began = time.monotonic()
    for member in plain_workers.members:
        member.wait_for(1)
    return time.monotonic() - began


def troubles(member: Member) -> int:
    return member.kinds().get(TROUBLE, 0)


def play_pretending(stage: Stage) -> None:
    stage.start_processes(2)
    for number in stage.rounds():
        log = stage.folder / f"strace-{number}.log"
        first = stage.chance.randint(50, 500)
        when = f"{first}..{first + stage.chance.randint(5, 30)}"
        sick = stage.start_processes(1, under=failing(log, "pwrite64", "ENOSPC", when))
        sick.wait_for(stage.chance.randint(10, 20 if stage.short else 200))
        sick.kill()
        stage.tally.injected += injected(log)


class Disk:
    """A disk in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def can_be_mounted(self) -> bool:
        try:
            with self.mounted():
                return True
        except (OSError, subprocess.CalledProcessError):
            return False

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        """For as long as the context lasts."""
        self._mount("-t", "tmpfs", "-o", f"size={ROOMY}", "tmpfs")
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def resize(self, size: int) -> None:
        """No smaller than what is used."""
        self._mount("-o", f"remount,size={size}")

    def fill(self) -> None:
        """No space is left, or very little, if a write came first."""
        status = os.statvfs(self.path)
        with contextlib.suppress(subprocess.CalledProcessError):
            self.resize((status.f_blocks - status.f_bfree) * status.f_frsize)

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, str(self.path)], check=True, capture_output=True)


SCENARIO = Scenario(
    name="disk_full",
    fault="the disk is full, and has space again",
    promises=(1, 3, 9),
    engines=("sqlite",),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
