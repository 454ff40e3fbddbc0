"""The SQLite file may be taken away under a running program: it must not go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs


def take_away(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def enqueue(app: dibs.Dibs) -> None:
    app.enqueue("rotate")


def upkeep(app: dibs.Dibs) -> None:
    app.upkeep()


@pytest.mark.parametrize("write", [enqueue, upkeep])
@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_was_taken_away_is_noticed_by_the_next_write(
    tmp_path: Path, replaced: bool, write: Callable[[dibs.Dibs], None]
) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        take_away(tmp_path)
        if replaced:
            with dibs.Dibs(f"sqlite:///{path}") as other:
                other.enqueue("shrink")
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            write(app)
        assert [task.type for task in app.list_tasks()] == (["shrink"] if replaced else [])


def test_of_many_that_write_to_a_file_that_was_taken_away_none_is_told_that_it_is_stored(tmp_path: Path) -> None:
    async def write_many() -> set[int]:
        async with dibs.AsyncDibs(f"sqlite:///{tmp_path}/dibs.db") as app:
            await app.enqueue("resize")
            take_away(tmp_path)
            writes = [app.enqueue("rotate", {"n": n}) for n in range(20)]
            told = await asyncio.gather(*writes, return_exceptions=True)
            stored = {task.params["n"] for task in await app.list_tasks()}
            return {each.params["n"] for each in told if isinstance(each, dibs.Task)} - stored

    assert asyncio.run(write_many()) == set()


def test_a_file_that_is_in_its_place_is_not_complained_about(tmp_path: Path) -> None:
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        app.enqueue("resize")
        app.upkeep()
        assert len(app.list_tasks()) == 1


NOBODY = 65534


@pytest.fixture
def folder_of_mine() -> Iterator[Path]:
    """A folder of a user who is not root, to whom every file can be written; and to be that user."""
    import dibs.store.sqlite.store  # noqa: F401 (whoever is not root may not be able to import it)

    folder = Path(tempfile.mkdtemp())
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)


def set_writable(folder: Path, writable: bool, *, folder_too: bool) -> None:
    for file in folder.iterdir():
        file.chmod(0o644 if writable else 0o444)
    if folder_too:
        folder.chmod(0o755 if writable else 0o555)


@pytest.mark.parametrize("folder_too", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("dead", [False, True], ids=["closed", "killed"])
def test_a_file_that_was_read_only_is_written_to_as_soon_as_it_can_be(
    folder_of_mine: Path, folder_too: bool, dead: bool
) -> None:
    path = folder_of_mine / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as other:
        other.enqueue("resize")
        copies = {file: file.read_bytes() for file in folder_of_mine.iterdir()}
    if dead:  # what is left when a process dies: its write-ahead log
        for file, content in copies.items():
            file.write_bytes(content)
    set_writable(folder_of_mine, False, folder_too=folder_too)
    with dibs.Dibs(f"sqlite:///{path}") as app:
        for _ in range(2):
            with pytest.raises(dibs.StoreError, match="read-only"):
                app.enqueue("rotate")
        set_writable(folder_of_mine, True, folder_too=folder_too)
        app.enqueue("shrink")
        assert [task.type for task in app.list_tasks()] == ["shrink", "resize"]


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """The URL of a file with a thousand tasks, of which the page in its middle, which holds some of them, is lost."""
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue_many([dibs.NewTask("resize", {"padding": "x" * 500}) for _ in range(1000)])
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    rows = [
        at for at in range(size, len(content), size) if content[at] == 0x0D and b"padding" in content[at : at + size]
    ]
    lost = rows[len(rows) // 2]
    content[lost : lost + size] = bytes(size)
    path.write_bytes(content)
    return f"sqlite:///{path}"


def test_whoever_comes_across_a_damaged_page_is_told_so_and_others_are_served(damaged: str) -> None:
    with dibs.Dibs(damaged) as app:
        told = [answer(lambda task_id=task_id: app.get(task_id).id) for task_id in range(1, 1001)]
        refused = [each for each in told if isinstance(each, dibs.StoreError)]
        assert refused
        assert {each.message.partition(" (")[0] for each in refused} == {
            "The SQLite file is damaged or no database at all"
        }
        assert [each for n, each in enumerate(told, 1) if not isinstance(each, dibs.StoreError) and each != n] == []
        assert isinstance(answer(lambda: app.list_tasks(limit=1000)), dibs.StoreError)


def test_the_doctor_finds_a_damaged_page(damaged: str) -> None:
    with dibs.Dibs(damaged) as app:
        found = {check.name: check.verdict for check in app.doctor()}
    assert found["integrity"] is dibs.Verdict.FAIL


def answer(call: Callable[[], Any]) -> Any:
    """What it gives, or the error of the store."""
    try:
        return call()
    except dibs.StoreError as error:
        return error
