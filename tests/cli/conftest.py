"""A store under test, a client that prepares it, and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import dibs
from tests.cli.running import Run, run_dibs


@pytest.fixture
def client(url: str) -> Iterator[dibs.Dibs]:
    """A client of the store, which exists and is migrated from then on."""
    with dibs.Dibs(url) as app:
        app.migrate()
        yield app


@pytest.fixture
def run(url: str, tmp_path: Path) -> Run:
    """Runs `dibs` on the store, named by DIBS_URL."""
    return partial(run_dibs, url=url, cwd=tmp_path)
