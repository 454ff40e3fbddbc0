"""The database of a Django project whose tests run in a process of their own."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict


@pytest.fixture
def database(empty_url: str) -> dict[str, str]:
    """The database of the project, as Django wants it."""
    if empty_url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": empty_url.removeprefix("sqlite:///")}
    parts = conninfo_to_dict(empty_url)
    place = {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"], "PORT": parts.get("port", "")}
    return {"ENGINE": "django.db.backends.postgresql", **{name: str(value) for name, value in place.items()}}
