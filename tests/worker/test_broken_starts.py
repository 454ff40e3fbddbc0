"""A worker that cannot start reports it at once, leaves no thread, and may be started again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import InvalidValue, State, StoreError

pytestmark = pytest.mark.own_connections


def test_a_worker_that_could_not_start_leaves_no_thread_and_may_start_later(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    app = dibs.Dibs(f"sqlite:///{folder}/dibs.db")

    @app.task
    async def coroutine() -> str:
        return "done"

    before = set(threading.enumerate())
    worker = app.worker()
    with pytest.raises(StoreError):
        worker.start()
    assert set(threading.enumerate()) <= before
    assert worker.stop() == 0
    folder.mkdir()
    worker.start()
    try:
        assert coroutine.enqueue().wait(30).state is State.COMPLETED
    finally:
        assert worker.stop() == 0
        app.close()


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "every day"},
        {"schedule": "0 0 30 2 *"},
        {"schedule": "@daily", "timezone": "Mars/Olympus"},
        {"schedule": "@daily", "catch_up": "some"},
        {"schedule": "@daily", "name": "n" * 250},
    ],
)
def test_an_invalid_schedule_is_refused_where_it_is_declared(options: dict[str, Any]) -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    with pytest.raises(InvalidValue):

        @app.task(**options)
        def sweep() -> None: ...

    assert app.handlers == {}
