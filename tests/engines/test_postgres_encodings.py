"""Databases that are not UTF-8 are refused when they are opened, and a client encoding never matters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Verdict
from tests.cli.running import run_dibs
from tests.helpers import postgres
from tests.helpers.borrowed import Borrowed
from tests.helpers.databases import run_sql

pytestmark = pytest.mark.own_connections

TEXT = "Grüße, 世界 💚"


def database(server: str, encoding: str) -> str:
    """A new database with nothing in it, in the encoding."""
    url = postgres.empty(server)
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with postgres.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name}".encode())
        admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
    return url


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def foreign_url(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[str]:
    """An empty database in an encoding that dibs does not support."""
    url = database(postgres_server, request.param)
    yield url
    postgres.drop(postgres_server, url)


def test_a_database_that_is_not_utf8_is_refused_when_opened_and_left_alone(
    foreign_url: str, open_app: Callable[..., Any]
) -> None:
    app = open_app(foreign_url)
    for verb in (lambda: app.enqueue("t"), app.stats, app.migrate):
        with pytest.raises(dibs.StoreError, match=r"(LATIN1|SQL_ASCII).*dibs requires UTF8") as refused:
            verb()
        assert "TEMPLATE template0 ENCODING 'UTF8'" in refused.value.hint
    assert run_sql(foreign_url, "SELECT count(*) FROM pg_class WHERE relname LIKE 'dibs%'") == [(0,)]


def test_the_doctor_reports_a_database_that_is_not_utf8(foreign_url: str, open_app: Callable[..., Any]) -> None:
    found = {check.name: check for check in open_app(foreign_url).doctor()}
    assert found["encoding"].verdict is Verdict.FAIL
    assert "ENCODING 'UTF8'" in found["encoding"].hint


def test_the_commands_report_a_database_that_is_not_utf8(foreign_url: str) -> None:
    assert "dibs requires UTF8" in run_dibs("queues", "list", url=foreign_url).err
    examined = run_dibs("doctor", "--json", url=foreign_url)
    assert examined.code == 1
    assert found(examined.json, "encoding")["verdict"] == "fail"


def found(answer: dict[str, Any], name: str) -> dict[str, Any]:
    [check] = [each for each in answer["checks"] if each["name"] == name]
    return dict(check)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_a_default_client_encoding_of_the_database_does_not_matter(
    url: str, open_app: Callable[..., Any], encoding: str
) -> None:
    name = run_sql(url, "SELECT current_database()")[0][0]
    run_sql(url, f"ALTER DATABASE {name} SET client_encoding = '{encoding}'")
    check_text(open_app(url))


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_a_client_encoding_in_the_url_does_not_matter(url: str, open_app: Callable[..., Any], encoding: str) -> None:
    check_text(open_app(f"{url}&client_encoding={encoding}"))


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_client_encoding_in_the_environment_does_not_matter(url: str) -> None:
    program = f"""
import dibs
with dibs.Dibs({url!r}) as app:
    task = app.enqueue("t", {{"text": {TEXT!r}}})
    assert app.get(task.id).params == {{"text": {TEXT!r}}}
"""
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PGCLIENTENCODING": "LATIN1"}, check=True)


def check_text(app: Any) -> None:
    """Text of every kind goes in and comes out as it was."""
    task = app.enqueue("t", {"text": TEXT})
    assert app.get(task.id).params == {"text": TEXT}
    claim = app.claim("w")
    app.complete(claim, {"text": TEXT})
    assert app.get(task.id).result == {"text": TEXT}
    assert app.get(task.id).state == "completed"


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_a_connection_of_the_user_with_another_client_encoding_is_refused_before_anything_is_written(
    url: str, open_app: Callable[..., Any], encoding: str
) -> None:
    app = open_app(url)
    with closing(Borrowed(app, url, {"client_encoding": encoding, "autocommit": True})) as own:
        with pytest.raises(dibs.InvalidValue, match="client encoding") as refused:
            app.on(own.connection).enqueue("t")
        assert "SET client_encoding TO 'UTF8'" in refused.value.hint
        own.execute("SET client_encoding TO 'UTF8'")
        assert app.on(own.connection).enqueue("t", {"text": TEXT}).params == {"text": TEXT}
    assert app.stats().depth == {"pending": 1}
