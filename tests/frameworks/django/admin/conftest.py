"""The admin of a project, its users, and the stores that its pages read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings

from dibs.django import app
from dibs.django.databases import url_of
from tests.frameworks.django.conftest import DEFAULTS

SignIn = Callable[..., Client]


def at(url: str) -> dict[str, Any]:
    """The setting TASKS of a project whose store is at the URL."""
    return {"default": {**DEFAULTS, "OPTIONS": {"url": url}}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A server has one engine behind it: what differs between engines differs over Django's own connection."""
    items[:] = [item for item in items if not {"served", "postgres"} <= _params(item)]


def _params(item: pytest.Item) -> set[str]:
    callspec = getattr(item, "callspec", None)
    return set() if callspec is None else {each for each in callspec.params.values() if isinstance(each, str)}


@pytest.fixture
def site(alias: str) -> Iterator[str]:
    """The admin of a project without users; the alias of its database."""
    with override_settings(ROOT_URLCONF="tests.frameworks.django.admin.urls"):
        LogEntry.objects.all().delete()
        User.objects.all().delete()
        yield alias


@pytest.fixture(params=["own", "served"])
def store(request: pytest.FixtureRequest, site: str, server_host: Any) -> Iterator[str]:
    """The store of the project: its own database over Django's connection, or the same database behind a server."""
    if request.param == "own":
        yield site
        return
    with server_host.serving(url_of(site)) as url, override_settings(TASKS=at(url)):
        yield url
        app.close()


@pytest.fixture
def sign_in(site: str) -> SignIn:
    """Signs a new user in: `sign_in("view_task")` with these permissions of dibs, `sign_in()` with none."""

    def sign_in(*permissions: str, name: str = "ada", check_csrf: bool = False, **fields: Any) -> Client:
        user = User.objects.create_user(name, password="secret", **{"is_staff": True, **fields})
        found = Permission.objects.filter(content_type__app_label="dibs", codename__in=permissions)
        assert found.count() == len(permissions)
        user.user_permissions.set(found)
        client = Client(enforce_csrf_checks=check_csrf)
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def root(sign_in: SignIn) -> Client:
    """The browser of a superuser."""
    return sign_in(name="root", is_superuser=True)
