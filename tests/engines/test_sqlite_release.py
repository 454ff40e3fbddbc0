"""SQLite releases with the WAL-reset bug: a worker or server on such a release logs a warning, once."""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store import doctor
from dibs.store.open import open_store
from dibs.store.sqlite import maintenance
from dibs.store.sqlite.maintenance import has_wal_fix

AFFECTED = (3, 50, 4)
FIXED = (3, 51, 3)


@pytest.mark.parametrize(
    ("release", "fixed"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 49, 2), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_the_releases_with_the_wal_reset_bug_are_known(release: tuple[int, int, int], fixed: bool) -> None:
    assert has_wal_fix(release) is fixed


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has warned of nothing yet."""
    monkeypatch.setattr(doctor, "_warned", set())


def run_worker(url: str) -> None:
    app = dibs.Dibs(url)
    app.task(lambda: None, name="nothing")
    app.worker(burst=True).run()
    app.close()


def run_server(url: str) -> None:
    with serving(open_store(url), ServerConfig(port=0)):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("run", [run_worker, run_server])
def test_a_worker_or_server_on_an_affected_release_logs_a_warning_once(
    tmp_path: Path,
    run: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", AFFECTED)
    run(f"sqlite:///{tmp_path}/dibs.db")
    run(f"sqlite:///{tmp_path}/other.db")
    said = [record for record in caplog.records if "WAL-reset" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]
    assert "3.51.3" in said[0].getMessage()
    assert said[0].event == "store.caution"  # type: ignore[attr-defined]


@pytest.mark.parametrize("run", [run_worker, run_server])
def test_a_release_with_the_fix_causes_no_warning(
    tmp_path: Path, run: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", FIXED)
    run(f"sqlite:///{tmp_path}/dibs.db")
    assert "WAL-reset" not in caplog.text


def test_a_client_that_only_enqueues_logs_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", AFFECTED)
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        app.enqueue("resize")
        app.upkeep()
    assert "WAL-reset" not in caplog.text


def test_workers_that_start_concurrently_warn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", AFFECTED)
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        app.task(lambda: None, name="nothing")
        workers = [app.worker(burst=True) for _ in range(4)]
        threads = [threading.Thread(target=worker.start) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in workers:
            worker.stop()
    assert caplog.text.count("WAL-reset") == 1


@pytest.mark.parametrize("page", ["README.md", "docs/guides/deploying.md"])
def test_the_documentation_names_the_releases_with_the_fix(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    fixed = re.findall(r"3\.\d+\.\d+", maintenance.FIXED)
    assert len(fixed) == 3
    assert [number for number in fixed if number not in text] == []
    assert all(has_wal_fix(tuple(map(int, number.split(".")))) for number in fixed)  # type: ignore[arg-type]
