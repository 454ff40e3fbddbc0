"""Pages of the file are overwritten: a read of such a page is an error, no result is wrong, and the doctor finds it.

Promises 1 and 3. While workers continue, a backup of the file is made that looks like that of a bad disk: some pages
are zeros or noise. Every task that was acknowledged before is either read unchanged or refused with an error that names
the damage. The doctor reports the damage, also if no read has met it. The backup without the damage is complete.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dibs
from dibs import NewTask, StoreError, Task, Verdict
from tests.helpers.databases import sqlite_path
from tests.stress.scenario import Scenario, Stage, main

PAGES_OF_TREES = b"\x02\x05\x0a\x0d"
"""The first byte of a page that holds keys or rows. What else there is (free pages, say) may lose its content."""

SAMPLE = 200


def play(stage: Stage) -> None:
    plain_workers = stage.start_processes(2)
    for number in stage.rounds():
        plain_workers.wait_for(stage.chance.randint(10, 20 if stage.short else 100))
        backup = back_up(stage.database, stage.folder / f"backup-{number}.db")
        tasks = read_all(backup)
        for wrong in look_at(damaged(backup, stage.chance), tasks, stage.chance):
            stage.tally.problems.append(f"round {number}: {wrong}")
        stage.tally.injected += 1


def back_up(database: str, path: Path) -> Path:
    """The file as it is now, by SQLite's own means."""
    with (
        contextlib.closing(sqlite3.connect(sqlite_path(database))) as source,
        contextlib.closing(sqlite3.connect(path)) as copy,
    ):
        source.backup(copy)
    return path


def read_all(path: Path) -> dict[int, Task]:
    """What the backup has, undamaged; its doctor finds nothing."""
    with dibs.Dibs(f"sqlite:///{path}") as app:
        assert not failures(app)
        tasks: dict[int, Task] = {}
        while page := app.list_tasks(limit=1000, cursor=min(tasks, default=None)):
            tasks |= {task.id: task for task in page}
        return tasks


def damaged(path: Path, chance: random.Random) -> Path:
    """A copy in which some pages are lost."""
    copy = Path(shutil.copy(path, path.with_suffix(".damaged")))
    with copy.open("r+b") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
        for page in chance.sample(pages_of_trees(path.read_bytes(), size), 3):
            file.seek(page * size)
            file.write(bytes(size) if chance.random() < 0.5 else b"\xff" + chance.randbytes(size - 1))
    return copy


def pages_of_trees(content: bytes, size: int) -> list[int]:
    """But for the first, without which there is no database at all."""
    return [page for page in range(1, len(content) // size) if content[page * size] in PAGES_OF_TREES]


def look_at(path: Path, tasks: dict[int, Task], chance: random.Random) -> Iterator[str]:
    """What is wrong with how the damage is dealt with."""
    with dibs.Dibs(f"sqlite:///{path}") as app:
        if not reports_damage(lambda: failures(app)):
            yield "the doctor found nothing"
        for task_id in chance.sample(sorted(tasks), min(SAMPLE, len(tasks))):
            found = read(app, task_id)
            if not isinstance(found, StoreError) and found != tasks[task_id]:
                yield f"task {task_id} was {tasks[task_id]} and is read as {found}"
        with contextlib.suppress(StoreError):  # no other error, and no call hangs
            app.enqueue_many([NewTask("t", {"n": n}) for n in range(50)])
            app.finish([(claim, dibs.Completed()) for claim in app.claim_many("late", 50)])
            app.upkeep()


def read(app: dibs.Dibs, task_id: int) -> Task | StoreError | None:
    try:
        return app.get(task_id)
    except StoreError as error:
        return error


def reports_damage(look: Callable[[], Any]) -> bool:
    """By its findings; or by an error, where the damage is such that it cannot even look."""
    try:
        return bool(look())
    except StoreError as error:
        return "damaged" in error.message


def failures(app: dibs.Dibs) -> list[str]:
    return [str(check) for check in app.doctor() if check.verdict is Verdict.FAIL]


SCENARIO = Scenario(
    name="corrupt_file",
    fault="pages of the file are overwritten",
    promises=(1, 3),
    engines=("sqlite",),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
