"""From a URL to a store: a URL that names no store is refused with a hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.store.open import sqlite_file


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///queue.db", "queue.db"),
        ("sqlite:////tmp/queue.db", "/tmp/queue.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("postgresql://localhost/queue.db", None),
    ],
)
def test_a_url_names_a_relative_or_absolute_file(url: str, path: str | None) -> None:
    assert sqlite_file(url) == (path and Path(path))


@pytest.mark.parametrize(
    "url",
    [
        "queue.db",
        "mysql://localhost/x",
        "http://[::1",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://host/queue.db",
        Path("queue.db"),
    ],
)
@pytest.mark.parametrize("client", [dibs.Dibs, dibs.AsyncDibs])
def test_a_url_that_names_no_store_is_refused_with_a_hint(client: Any, url: Any) -> None:
    with pytest.raises(dibs.InvalidValue, match=r"Use sqlite:///file\.db"):
        client(url)
