"""The SQLite file may be taken away under a running program: it must not go on as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

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
