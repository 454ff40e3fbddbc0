"""The admin and the dashboard in a project that `startproject` makes, served by uvicorn; and without its packages."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.environments import ROOT
from tests.frameworks.django.admin.pages import csrf_of
from tests.frameworks.django.admin.test_guide import BLOCK, GUIDE
from tests.frameworks.django.running import Project
from tests.helpers.uvicorn_process import UvicornProcess, uvicorn_process

SETTINGS = """
INSTALLED_APPS += ["dibs.django"]
ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
"""
ENQUEUE = "from dibs.django import app; print(app.enqueue('mail').id)"
WITHOUT_SERVER = """
import sys
for name in ("starlette", "uvicorn", "jinja2", "httptools"):
    sys.modules[name] = None
import django
django.setup()
from django.test import Client
from django.contrib.auth.models import User
client = Client()
client.force_login(User.objects.get(username="ada"))
print(client.get("/admin/dibs/task/", headers={"host": "127.0.0.1"}).status_code)
answer = client.get("/dibs/", headers={"host": "127.0.0.1"})
print(answer.status_code, answer.content.decode())
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A project with the URLs of the guide and the superuser ada."""
    with Project(tmp_path, f"sqlite:///{tmp_path}/db.sqlite3", DJANGO_SUPERUSER_PASSWORD="secret") as project:
        project.run(sys.executable, "-m", "django", "startproject", "mysite", ".")
        settings = tmp_path / "mysite" / "settings.py"
        settings.write_text(settings.read_text() + SETTINGS)
        (tmp_path / "mysite" / "urls.py").write_text(dict(BLOCK.findall(GUIDE))["urls.py"])
        project.manage("migrate")
        project.manage("createsuperuser", "--noinput", "--username", "ada", "--email", "ada@example.com")
        yield project


@pytest.fixture
def server(project: Project) -> Iterator[UvicornProcess]:
    """The project in uvicorn."""
    settings = {"DJANGO_SETTINGS_MODULE": "mysite.settings", "PYTHONPATH": str(ROOT)}
    with uvicorn_process(project.folder, "mysite.asgi:application", **settings) as server:
        yield server


def sign_in(browser: httpx.Client) -> httpx.Response:
    """Sign in on the page to which the dashboard leads."""
    page = browser.get("/dibs/", follow_redirects=True)
    form = {"username": "ada", "password": "secret", "csrfmiddlewaretoken": csrf_of(page.text)}
    return browser.post(page.url, data=form, headers={"referer": str(page.url)}, follow_redirects=True)


def test_a_project_served_by_uvicorn_streams_updates_and_stops_at_once(
    project: Project, server: UvicornProcess
) -> None:
    task = project.manage("shell", "--verbosity", "0", "-c", ENQUEUE).split()[-1]
    with httpx.Client(base_url=server.url(), timeout=30) as browser:
        assert "<title>Overview" in sign_in(browser).text
        assert f"/dibs/tasks/{task}" in browser.get("/dibs/tasks").text
        assert f"Task {task}" in browser.get(f"/admin/dibs/task/{task}/change/").text
        with browser.stream("GET", "/dibs/live", headers={"accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("event")) == "event: stats"
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            for _ in lines:
                pass
        server.ended()
        assert time.monotonic() - begun < 15  # the stream alone would take 30 seconds
    assert "Traceback" not in server.output


def test_the_admin_needs_no_package_of_the_server_and_the_dashboard_names_them(project: Project) -> None:
    project.environment["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
    printed = project.run(sys.executable, "-c", WITHOUT_SERVER)
    assert printed.startswith("200\n503 ")
    assert "pip install 'dibs[server]'" in printed
