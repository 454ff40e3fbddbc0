"""The SQLite file may be moved or replaced under a running program: the program notices it and loses no data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
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
def test_the_next_write_notices_that_the_file_was_removed(
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
        if replaced:
            assert [task.type for task in app.list_tasks()] == ["shrink"]
        else:
            with pytest.raises(dibs.StoreUnavailable, match="There is no file"):
                app.list_tasks()


def test_no_concurrent_write_to_a_removed_file_is_acknowledged(tmp_path: Path) -> None:
    async def write_many() -> set[int]:
        async with dibs.AsyncDibs(f"sqlite:///{tmp_path}/dibs.db") as app:
            await app.enqueue("resize")
            take_away(tmp_path)
            writes = [app.enqueue("rotate", {"n": n}) for n in range(20)]
            told = await asyncio.gather(*writes, return_exceptions=True)
            await app.migrate()
            stored = {task.params["n"] for task in await app.list_tasks()}
            return {each.params["n"] for each in told if isinstance(each, dibs.AsyncTask)} - stored

    assert asyncio.run(write_many()) == set()


def test_a_file_in_its_place_raises_no_error(tmp_path: Path) -> None:
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        app.enqueue("resize")
        app.upkeep()
        assert len(app.list_tasks()) == 1


def move_away(path: Path, to: Path, *, with_log: bool) -> None:
    """What an administrator does with `mv`."""
    to.mkdir()
    names = [path.name, f"{path.name}-wal", f"{path.name}-shm"] if with_log else [path.name]
    for name in names:
        (path.parent / name).rename(to / name)


def move_back(path: Path, to: Path) -> None:
    for file in to.iterdir():
        file.rename(path.parent / file.name)


CALLS: dict[str, Callable[[dibs.Dibs], object]] = {
    "enqueue": lambda app: app.enqueue("rotate"),
    "list": lambda app: app.list_tasks(),
    "claim and wait": lambda app: app.claim("w", wait=0.01),
    "upkeep": lambda app: app.upkeep(),
    "doctor": lambda app: app.doctor(),
    "stats": lambda app: app.stats(),
}


@pytest.mark.parametrize("with_log", [False, True], ids=["file", "file and log"])
def test_a_file_that_was_moved_away_is_not_created_again_and_keeps_its_tasks(tmp_path: Path, with_log: bool) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        for _ in range(50):
            app.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=with_log)
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.enqueue("rotate")
        for call in CALLS.values():
            with pytest.raises(dibs.StoreUnavailable, match="There is no file"):
                call(app)
        assert not path.exists()
        move_back(path, tmp_path / "away")
        assert [task.type for task in app.list_tasks(limit=1000)].count("resize") == 50
        app.enqueue("shrink")


@pytest.mark.parametrize("first", CALLS)
def test_no_call_creates_a_file_that_was_moved_away(tmp_path: Path, first: str) -> None:
    """Each call is the first one after the move; several readers at once need connections of their own."""
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=False)
        for _ in range(3):
            with contextlib.suppress(dibs.StoreError):
                CALLS[first](app)
        assert not path.exists()
        move_back(path, tmp_path / "away")
        with contextlib.suppress(dibs.StoreError):
            app.stats()
        assert "resize" in [task.type for task in app.list_tasks()]


def test_an_async_client_does_not_create_a_file_that_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"

    async def use() -> list[str]:
        async with dibs.AsyncDibs(f"sqlite:///{path}") as app:
            await asyncio.gather(*[app.enqueue("resize") for _ in range(20)])
            move_away(path, tmp_path / "away", with_log=False)
            with pytest.raises(dibs.StoreError, match="deleted or replaced"):
                await app.enqueue("rotate")
            for call in (app.enqueue("rotate"), app.get(1), app.stats(), app.list_tasks()):
                with pytest.raises(dibs.StoreUnavailable, match="There is no file"):
                    await call
            assert not path.exists()
            move_back(path, tmp_path / "away")
            return [task.type for task in await app.list_tasks()]

    assert asyncio.run(use()).count("resize") == 20


def test_a_file_that_was_moved_away_is_created_again_by_migrate(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=True)
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.enqueue("rotate")
        assert app.migrate()
        app.enqueue("shrink")
        assert [task.type for task in app.list_tasks()] == ["shrink"]


def test_a_file_that_another_program_creates_in_place_of_the_lost_one_is_used(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=True)
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.enqueue("rotate")
        with dibs.Dibs(f"sqlite:///{path}") as other:
            other.enqueue("shrink")
        assert [task.type for task in app.list_tasks()] == ["shrink"]


def put_in_place(path: Path, backup: Path) -> None:
    """What an administrator does to restore a backup: `mv backup.db dibs.db`, which leaves the old log."""
    with dibs.Dibs(f"sqlite:///{backup}") as app:
        app.enqueue("shrink")
    backup.rename(path)


def test_the_write_ahead_log_of_a_replaced_file_is_not_applied_to_the_new_file(tmp_path: Path) -> None:
    """SQLite cannot know that the log belongs to another file, and would damage the new one."""
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        for _ in range(50):
            app.enqueue("resize")
        put_in_place(path, tmp_path / "backup.db")
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.enqueue("rotate")
        for call in CALLS.values():
            with pytest.raises(dibs.StoreError, match=r"dibs\.db-wal belongs to the old file") as refused:
                call(app)
            assert "migrate" in refused.value.hint
        app.migrate()
        assert [task.type for task in app.list_tasks()] == ["shrink"]
        app.enqueue("turn")
    [kept] = tmp_path.glob("dibs.db-wal-orphaned-*")
    assert kept.stat().st_size > 0


def test_a_replaced_file_is_used_once_the_write_ahead_log_of_the_old_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        put_in_place(path, tmp_path / "backup.db")
        with pytest.raises(dibs.StoreError, match="deleted or replaced"):
            app.enqueue("rotate")
        path.with_name("dibs.db-wal").unlink()
        assert [task.type for task in app.list_tasks()] == ["shrink"]


def test_a_new_program_refuses_to_create_a_file_beside_the_write_ahead_log_of_a_missing_file(tmp_path: Path) -> None:
    """SQLite would delete the log, and every acknowledged task in it."""
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as first:
        first.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=False)
        with dibs.Dibs(f"sqlite:///{path}") as app:
            with pytest.raises(dibs.StoreError, match=r"dibs\.db-wal"):
                app.enqueue("rotate")
            assert not path.exists()
            move_back(path, tmp_path / "away")
            assert [task.type for task in app.list_tasks()] == ["resize"]


def test_migrate_renames_the_write_ahead_log_of_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as first:
        first.enqueue("resize")
        move_away(path, tmp_path / "away", with_log=False)
        with dibs.Dibs(f"sqlite:///{path}") as app:
            app.migrate()
            app.enqueue("shrink")
            assert [task.type for task in app.list_tasks()] == ["shrink"]
    [kept] = tmp_path.glob("dibs.db-wal-orphaned-*")
    old = tmp_path / "away" / "dibs.db"
    kept.rename(old.with_name("dibs.db-wal"))
    with dibs.Dibs(f"sqlite:///{old}") as app:
        assert [task.type for task in app.list_tasks()] == ["resize"]


def test_a_program_that_forked_does_not_create_a_file_that_was_moved_away_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("resize")
        os.waitpid(fork_and_exit(), 0)  # every store closes its file before a fork
        path.rename(tmp_path / "moved.db")
        with pytest.raises(dibs.StoreUnavailable, match="There is no file"):
            app.enqueue("rotate")
        assert not path.exists()


def fork_and_exit() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return child


def test_a_closed_client_opens_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    app = dibs.Dibs(f"sqlite:///{path}")
    app.enqueue("resize")
    app.close()
    path.unlink()
    app.enqueue("rotate")
    assert [task.type for task in app.list_tasks()] == ["rotate"]
    app.close()


def test_a_client_that_must_not_migrate_creates_no_file(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}", migrate=False) as app, pytest.raises(dibs.SchemaMissing, match="no file"):
        app.enqueue("resize")
    assert not path.exists()


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that grants everything to all users."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


ALL_FILES = {"dibs.db", "dibs.db-wal", "dibs.db-shm", "dibs.db-line"}
posix_only = pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")


def use_every_file(app: dibs.Dibs, path: Path) -> None:
    """Write while another program holds SQLite's lock, so that the queue of writers is needed as well."""
    app.enqueue("resize")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        end = threading.Timer(0.05, other.execute, ["COMMIT"])
        end.start()
        app.enqueue("rotate")
        end.join()  # to close a connection while a thread uses it crashes the interpreter


@posix_only
@pytest.mark.usefixtures("open_umask")
def test_the_files_of_a_new_store_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        use_every_file(app, path)
        assert modes(tmp_path) == dict.fromkeys(ALL_FILES, 0o600)


@posix_only
@pytest.mark.usefixtures("open_umask")
def test_the_mode_of_an_existing_file_is_kept_and_used_for_its_companion_files(tmp_path: Path) -> None:
    path = tmp_path / "dibs.db"
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.migrate()
    path.chmod(0o660)
    with dibs.Dibs(f"sqlite:///{path}") as app:
        use_every_file(app, path)
        assert modes(tmp_path) == dict.fromkeys(ALL_FILES, 0o660)


@posix_only
@pytest.mark.usefixtures("open_umask")
def test_migrate_and_a_dangling_link_create_a_file_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    dibs.Dibs(f"sqlite:///{tmp_path}/link.db").migrate()
    assert modes(tmp_path)["real.db"] == 0o600


NOBODY = 65534


@pytest.fixture
def folder_of_mine() -> Iterator[Path]:
    """A folder of a user who is not root, to whom every file can be written; and to be that user."""
    import dibs.store.sqlite.store  # noqa: F401 (a user other than root may not be able to import it)

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


def test_a_call_that_reads_a_damaged_page_reports_it_and_other_calls_are_served(damaged: str) -> None:
    with dibs.Dibs(damaged) as app:
        told = [answer(lambda task_id=task_id: app.get(task_id).id) for task_id in range(1, 1001)]
        refused = [each for each in told if isinstance(each, dibs.StoreError)]
        assert refused
        assert {each.message.partition(" (")[0] for each in refused} == {
            "The SQLite file is damaged, or not a database"
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
