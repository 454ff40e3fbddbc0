"""Which database keeps the tasks: URLs of its workers, engines that are refused, routers, tables, test cases."""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.test import TestCase, TransactionTestCase, override_settings
from django.test.utils import setup_test_environment, teardown_test_environment

import dibs
from dibs.django import app, tables
from dibs.django.databases import url_of
from dibs.store.postgres.migrations import KNOWN as ON_POSTGRES
from dibs.store.sqlite.migrations import KNOWN as ON_SQLITE
from tests.frameworks.django.conftest import DEFAULTS
from tests.frameworks.django.shop import tasks
from tests.frameworks.django.shop.models import Order


@contextmanager
def database(alias: str, **entry: Any) -> Iterator[str]:
    """A further alias of DATABASES."""
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: entry})[alias]
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.settings[alias]
        del connections[alias]


@contextmanager
def postgres(**entry: Any) -> Iterator[Any]:
    """The URL of a database of PostgreSQL with these settings, split."""
    with database("other", ENGINE="django.db.backends.postgresql", **entry) as alias:
        yield urlsplit(url_of(alias))


def test_a_worker_connects_with_the_parameters_of_django() -> None:
    with postgres(NAME="a b", USER="u@x", PASSWORD="p:/?#", HOST="h", PORT="5433") as url:
        assert (url.scheme, unquote(url.path), unquote(url.username), unquote(url.password)) == (
            *("postgresql", "/a b", "u@x", "p:/?#"),
        )
        assert parse_qs(url.query) == {"host": ["h"], "port": ["5433"]}
    options = {"service": "main", "passfile": "/run/pass", "sslmode": "require", "isolation_level": 2, "pool": False}
    with postgres(NAME="", OPTIONS=options) as url:
        assert (url.netloc, url.path) == ("", "/")
        assert parse_qs(url.query) == {"service": ["main"], "passfile": ["/run/pass"], "sslmode": ["require"]}
    with postgres(NAME="x", HOST="/var/run/postgresql", OPTIONS={"assume_role": "web app"}) as url:
        assert parse_qs(url.query) == {"host": ["/var/run/postgresql"], "options": ["-c role=web\\ app"]}


def test_the_url_opens_the_database_of_the_alias(alias: str) -> None:
    task = tasks.ship.enqueue(1)
    assert app.url == url_of(alias)
    with dibs.Dibs(app.url, migrate=False) as other:
        assert other.get(task.id) == task


def test_a_sqlite_path_with_special_characters_is_the_same_file(tmp_path: Any) -> None:
    path = tmp_path / "a b%20?#ü.sqlite3"
    with database("other", ENGINE="django.db.backends.sqlite3", NAME=path) as alias, tasks_in(alias):
        call_command("migrate", "dibs", database=alias, verbosity=0)
        task = tasks.ship.enqueue(1)
        with dibs.Dibs(url_of(alias), migrate=False) as other:
            assert other.get(task.id) == task


@contextmanager
def tasks_in(alias: str, **more: Any) -> Iterator[None]:
    with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"database": alias, **more}}}):
        yield


def test_a_database_of_another_engine_is_refused_with_advice() -> None:
    with database("other", ENGINE="tests.frameworks.django.shop.other_engine", NAME="x"), tasks_in("other"):
        with pytest.raises(ImproperlyConfigured, match=r"Other Database.*Name another database"):
            tasks.ship.enqueue(1)
        [message] = [each for each in run_checks() if each.id == "dibs.E001"]
        assert "Other Database" in str(message)
        tables.create("other")  # `migrate` of other apps goes on
    with tasks_in("missing"), pytest.raises(ImproperlyConfigured, match="no alias 'missing'"):
        tasks.ship.enqueue(1)


def test_only_the_database_of_the_tasks_gets_tables(sqlite_alias: str, tmp_path: Any) -> None:
    with database("other", ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "other.sqlite3") as alias:
        call_command("migrate", "dibs", database=alias, verbosity=0)
        assert "dibs_tasks" not in connections[alias].introspection.table_names()
        with tasks_in(alias), override_settings(DATABASE_ROUTERS=["tests.frameworks.django.test_databases.Refusing"]):
            call_command("migrate", "dibs", database=alias, verbosity=0)
            assert "dibs_tasks" not in connections[alias].introspection.table_names()
        with tasks_in(alias):  # the migration is recorded as applied, and the tables are made nevertheless
            call_command("migrate", "dibs", database=alias, verbosity=0)
            assert tasks.ship.enqueue(1).id == 1


class Refusing:
    """A router that lets no database have the tables of dibs."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "dibs" else None


def test_the_migration_can_be_undone_and_applied_again(alias: str) -> None:
    tasks.ship.enqueue(1)
    call_command("migrate", "dibs", "zero", database=alias, verbosity=0)
    assert not [name for name in connections[alias].introspection.table_names() if name.startswith("dibs_")]
    call_command("migrate", "dibs", database=alias, verbosity=0)
    assert app.list_tasks() == []


def test_the_app_has_a_migration_for_each_of_dibs() -> None:
    """Otherwise `manage.py migrate --check` would not notice that a new version of dibs has further migrations."""
    ours = {name for app_label, name in MigrationLoader(None).disk_migrations if app_label == "dibs"}
    assert {each.name for each in (*ON_SQLITE, *ON_POSTGRES)} <= ours


def test_two_backends_with_different_stores_are_an_error(sqlite_alias: str) -> None:
    two = {
        "default": {**DEFAULTS, "OPTIONS": {}},
        "more": {**DEFAULTS, "OPTIONS": {"database": "postgres"}},
    }
    with override_settings(TASKS=two):
        assert "dibs.E002" in {message.id for message in run_checks()}
    both = {"default": {**DEFAULTS, "OPTIONS": {"url": "sqlite:///x.db", "database": "default"}}}
    with override_settings(TASKS=both):
        assert "dibs.E001" in {message.id for message in run_checks()}
    alike = {"default": {**DEFAULTS, "OPTIONS": {}}, "more": {**DEFAULTS, "OPTIONS": {"max_attempts": 1}}}
    with override_settings(TASKS=alike):
        assert not [message for message in run_checks() if (message.id or "").startswith("dibs.")]


def test_a_check_advises_to_begin_transactions_of_sqlite_with_the_write_lock(tmp_path: Any) -> None:
    with database("other", ENGINE="django.db.backends.sqlite3", NAME=tmp_path / "x.sqlite3") as alias, tasks_in(alias):
        [message] = [each for each in run_checks() if each.id == "dibs.W001"]
        assert "IMMEDIATE" in str(message.hint)
        connections.settings[alias]["OPTIONS"]["transaction_mode"] = "immediate"
        assert "dibs.W001" not in {each.id for each in run_checks()}


def test_tasks_are_kept_at_a_url(sqlite_alias: str, empty_url: str) -> None:
    with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"url": empty_url}}}):
        assert app.url == empty_url
        with pytest.raises(dibs.SchemaMissing):
            tasks.ship.enqueue(1)
        app.migrate()
        result = tasks.add.enqueue(1, b=2)
        app.worker(burst=True, poll=0.05).run()
        result.refresh()
        assert result.return_value == 3
        app.close()


class InTestCase(TestCase):
    __test__ = False  # run by the test below
    databases = frozenset({"default", "postgres"})

    def runTest(self) -> None:  # noqa: N802 - a name of unittest
        tasks.ship.enqueue(1)
        tasks.add.enqueue(1)
        assert len(app.list_tasks()) == 2


class InTransactionTestCase(TransactionTestCase):
    __test__ = False  # run by the test below
    databases = frozenset({"default", "postgres"})

    def runTest(self) -> None:  # noqa: N802 - a name of unittest
        Order.objects.create(number=1)
        tasks.ship.enqueue(1)
        assert len(app.list_tasks()) == 1


def test_no_task_is_left_after_a_test_case_of_django(sqlite_alias: str, postgres_alias: str, alias: str) -> None:
    setup_test_environment()
    try:
        for case in (InTestCase(), InTransactionTestCase()):
            result = unittest.TestResult()
            unittest.TestSuite([case]).run(result)
            assert result.wasSuccessful(), result.errors + result.failures
            assert app.list_tasks() == [], case
    finally:
        teardown_test_environment()


def test_a_flush_outside_of_tests_keeps_the_tasks(alias: str) -> None:
    """Another program may send the signal of a flush: it must never delete tasks."""
    tasks.ship.enqueue(1)
    call_command("flush", database=alias, interactive=False, verbosity=0)
    assert len(app.list_tasks()) == 1
