"""A store that does not answer, or has no tables: the page says so, and the rest of the admin works."""

from __future__ import annotations

import socket

import pytest
from django.db import connections
from django.test import Client, override_settings

from dibs.django import app, tables
from dibs.store.remote import conversation
from tests.frameworks.django.admin.conftest import at
from tests.frameworks.django.admin.pages import KINDS, address, read
from tests.frameworks.django.conftest import DEFAULTS


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_database_without_tables_is_explained(site: str, root: Client) -> None:
    tables.drop(site)
    try:
        for kind in KINDS:
            page = read(root, address(kind), 503)
            assert ("cannot be read" in page, "manage.py migrate" in page) == (True, True)
        assert root.get("/admin/").status_code == 200
        action = {"action": "retry", "_selected_action": ["1"], "sure": "yes"}
        answer = root.post(address("task"), action, follow=True)
        assert ("manage.py migrate" in answer.content.decode(), answer.status_code) == (True, 503)
    finally:
        tables.create(site)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_database_of_the_project_that_does_not_answer_is_explained(site: str, root: Client) -> None:
    where = {"NAME": "tasks", "HOST": "127.0.0.1", "PORT": str(closed_port())}
    connections.settings["away"] = {**connections.settings["postgres"], **where}
    try:
        with override_settings(TASKS={"default": {**DEFAULTS, "OPTIONS": {"database": "away"}}}):
            assert "cannot be read" in read(root, address("queue"), 503)
            assert root.post(address("queue"), {"action": "resume", "_selected_action": ["a"]}).status_code == 302
    finally:
        del connections.settings["away"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_server_that_does_not_answer_is_explained(site: str, root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "PATIENCE", 0.3)
    url = f"http://127.0.0.1:{closed_port()}"
    with override_settings(TASKS=at(url)):
        assert "cannot be read" in read(root, address("queue"), 503)
        app.close()
