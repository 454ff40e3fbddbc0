"""Planted secrets: no repr, error or traceback of the library shows a password, an API key or a session."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs.handlers.endings import describe, outcome_of
from dibs.model.claim import Failed
from dibs.server.dashboard.session import Visitor
from dibs.server.dashboard.signin import SignInForm
from dibs.store.remote.address import Address
from dibs.wire.keys import Minted

SECRET = "hunter2"
KEY = f"dibs_mfqxk4tcmezd_{SECRET}{'A' * 36}"
GOOD = [
    f"postgresql://me:{SECRET}@localhost/db",
    f"postgresql://localhost/db?user=me&password={SECRET}",
    f"postgresql://localhost/db?sslpassword={SECRET}",
]
BAD = [
    f"mysql://me:{SECRET}@localhost/db",
    f"sqlite://me:{SECRET}@localhost/db",
    f"sqlite:///dibs.db?password={SECRET}",
    f"postgresql://[me:{SECRET}@localhost/db",
    f"host=localhost password={SECRET}",
    f"http://me:{SECRET}@localhost:8787",
    f"http://localhost:8787/?api_key={SECRET}",
    f"http://me:{SECRET}",
    f"ftp://localhost/{KEY}",
]
UNREADABLE = [  # libpq quotes what it cannot read, which may be a part of the password
    f"postgresql://me:{SECRET}%zz@localhost/db",
    f"postgresql://me:{SECRET}/x@localhost/db",
    f"postgresql://me:{SECRET}",
    f"postgresql://localhost/db?password={SECRET}=x",
    f"postgresql://localhost/db?passwort={SECRET}",
    f"postgresql:/me:{SECRET}@localhost/db",
]


def shown(error: BaseException) -> str:
    """All visible text of an exception and of its causes."""
    lines = [str(error), repr(error), *traceback.format_exception(error)]
    chain = [each for each in (error.__cause__, error.__context__) if each is not None]
    return "\n".join(lines + [f"{each!r} {each}" for each in chain])


@pytest.mark.parametrize("kind", [dibs.Dibs, dibs.AsyncDibs])
@pytest.mark.parametrize("url", GOOD)
def test_the_repr_of_a_client_shows_no_password(kind: Any, url: str) -> None:
    app = kind(url)
    assert app.url == url
    handler = app.task(lambda: None, name="x")
    for each in (app, app.signed("me"), app.on(object()), app._store, app.worker(), handler):
        assert SECRET not in repr(each)
    assert "localhost/db" in repr(app)


def test_the_repr_of_a_client_shows_no_key() -> None:
    app = dibs.Dibs("http://localhost:8787", api_key=KEY)
    for each in (app, app._store, Address("http://localhost:8787", KEY)):
        assert SECRET not in repr(each)


@pytest.mark.parametrize("url", BAD)
def test_an_error_about_a_url_shows_no_secret(url: str) -> None:
    with pytest.raises(dibs.InvalidValue) as refused:
        dibs.Dibs(url)
    assert SECRET not in shown(refused.value)


@pytest.mark.parametrize("call", ["stats", "migrate", "doctor"])
@pytest.mark.parametrize("url", UNREADABLE)
def test_an_error_about_a_url_that_postgres_cannot_read_shows_no_secret(
    url: str, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(dibs.InvalidValue) as refused:
        getattr(dibs.Dibs(url), call)()
    assert SECRET not in shown(refused.value)
    assert SECRET not in caplog.text


def test_a_parameter_that_postgres_does_not_know_is_named() -> None:
    with pytest.raises(dibs.InvalidValue, match="passwort"):
        dibs.Dibs(f"postgresql://localhost/db?passwort={SECRET}").stats()


@pytest.mark.parametrize("key", [f"{SECRET} {SECRET}", f"dibs_{SECRET}\n", 7])
def test_an_error_about_a_key_shows_no_secret(key: Any) -> None:
    with pytest.raises(dibs.InvalidValue) as refused:
        dibs.Dibs("http://localhost:8787", api_key=key)
    assert SECRET not in shown(refused.value)


def test_the_error_about_a_key_for_a_store_without_keys_does_not_show_the_key() -> None:
    with pytest.raises(dibs.InvalidValue) as refused:
        dibs.Dibs("sqlite:///dibs.db", api_key=KEY)
    assert SECRET not in shown(refused.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Visitor(SECRET, None),
        lambda: SignInForm(key=KEY),
        lambda: Minted(
            **dict.fromkeys(Minted.__struct_fields__, None) | {"key": KEY}  # type: ignore[arg-type]
        ),
    ],
)
def test_the_repr_of_an_object_with_a_key_or_a_session_does_not_show_it(make: Callable[[], Any]) -> None:
    assert SECRET not in repr(make())


def test_a_stored_failure_shows_no_secret() -> None:
    def connect(url: str) -> None:
        raise ConnectionError(f"cannot reach {url} with {KEY}")

    try:
        connect(GOOD[0])
    except ConnectionError as error:
        failure = describe(error)
    assert SECRET not in failure.message + str(failure.traceback)
    assert "cannot reach postgresql://me:***@localhost/db with dibs_mfqxk4tcmezd_***" in failure.message


@pytest.mark.parametrize("ending", [dibs.Permanent, lambda text: dibs.Retry(1, text)], ids=["permanent", "retry"])
def test_the_failure_of_an_ending_with_a_message_of_its_own_shows_no_secret(
    ending: Callable[[str], Exception],
) -> None:
    """A worker logs this failure, before the store redacts it."""
    error = ending(f"cannot reach {GOOD[0]} with {KEY}")
    error.__cause__ = ConnectionError("refused")
    outcome = outcome_of(error)
    assert isinstance(outcome, Failed)
    assert SECRET not in outcome.failure.message + str(outcome.failure.traceback)
    assert outcome.failure.message.startswith("cannot reach postgresql://me:***@localhost/db")
