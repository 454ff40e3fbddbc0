"""The tests of the worker run in real time, mostly in real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dibs
from tests.helpers import handlers
from tests.helpers.workers import Crew, crew


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """The handlers that worker processes run, on a new database."""
    with handlers.at(url) as app:
        yield app


@pytest.fixture
def hands(url: str) -> Iterator[Crew]:
    """Worker processes on that database."""
    with crew(url) as hired:
        yield hired
