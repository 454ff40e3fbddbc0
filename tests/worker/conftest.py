"""The tests of the worker run in real time, mostly in real processes."""

from __future__ import annotations

import contextlib
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


@pytest.fixture(params=["direct", "served"])
def place(url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the store: of the database itself, and of a server."""
    with contextlib.ExitStack() as closing:
        if request.param == "served":
            yield closing.enter_context(request.getfixturevalue("server_host").serving(url))
        else:
            yield url
