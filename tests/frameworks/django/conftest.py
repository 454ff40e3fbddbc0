"""A Django project in the test process, with a database of each engine; `alias` is the one under test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.frameworks.django.settings"

import django
import pytest
from psycopg.conninfo import conninfo_to_dict

django.setup()

from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from dibs.django import app, tables
from tests.frameworks.django.shop import routers
from tests.frameworks.django.shop.models import Order
from tests.helpers import postgres

ALIASES = {"sqlite": "default", "postgres": "postgres"}
DEFAULTS = {"BACKEND": "dibs.django.DibsBackend", "QUEUES": []}


def settings_for(url: str) -> dict[str, Any]:
    """The entry of DATABASES for the URL of PostgreSQL."""
    given = conninfo_to_dict(url)
    known = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    return {name: str(given.get(keyword) or "") for keyword, name in known.items()}


@pytest.fixture(scope="session")
def sqlite_alias(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The alias of a SQLite file with the tables of dibs and of the project."""
    connections.settings["default"]["NAME"] = str(tmp_path_factory.mktemp("django") / "db.sqlite3")
    yield _migrated("default")
    connections["default"].close()


@pytest.fixture(scope="session")
def postgres_alias(postgres_server: str) -> Iterator[str]:
    """The alias of a database in PostgreSQL, with the same tables."""
    url = postgres.empty(postgres_server)
    connections.settings["postgres"].update(settings_for(url))
    yield _migrated("postgres")
    connections["postgres"].close()
    postgres.drop(postgres_server, url)


def _migrated(alias: str) -> str:
    with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"database": alias}}}):
        call_command("migrate", database=alias, verbosity=0, run_syncdb=True)
    return alias


@pytest.fixture
def alias(engine: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias of the database of the engine under test, in which `app` keeps its tasks. Empty before each test."""
    name: str = request.getfixturevalue(f"{engine}_alias")
    with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"database": name}}}):
        routers.USED["alias"] = name
        tables.empty(name)
        Order.objects.all().delete()
        yield name
        app.close()
        connections[name].close()
