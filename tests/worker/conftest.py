"""The tests of the worker run in real time, mostly in real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dibs
from tests.helpers import handlers
from tests.helpers.workers import WorkerProcesses, worker_processes


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """The handlers that worker processes run, on a new database."""
    with handlers.at(url) as app:
        yield app


@pytest.fixture
def workers(url: str) -> Iterator[WorkerProcesses]:
    """Worker processes on that database."""
    with worker_processes(url) as processes:
        yield processes
