"""The SQLite file may be taken away under a running program: it must not go on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_file_that_was_taken_away_is_noticed_by_upkeep(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        for file in tmp_path.iterdir():
            file.unlink()
        if replaced:
            with dibs.Dibs(f"sqlite:///{path}") as other:
                other.enqueue("shrink")
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.upkeep()
        assert [task.type for task in app.list_tasks()] == (["shrink"] if replaced else [])


def test_a_file_that_is_in_its_place_is_not_complained_about(tmp_path: Path) -> None:
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        app.enqueue("resize")
        app.upkeep()
        assert len(app.list_tasks()) == 1
