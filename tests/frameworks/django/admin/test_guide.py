"""The code of the guide on the admin, in the project of the tests."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client, override_settings

from dibs.django import app, dashboard
from dibs.django.rights import permissions
from tests.environments import ROOT
from tests.frameworks.django.admin.pages import act, read

GUIDE = (ROOT / "docs" / "guides" / "django-admin.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
OFFICE = """
from django.urls import path
from office import site

urlpatterns = [path("office/", site.urls)]
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the guide, and `office_urls`, where only the site of the guide is mounted."""
    for name, text in [*BLOCK.findall(GUIDE), ("office_urls.py", OFFICE)]:
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("urls", "office", "office_urls"):
        sys.modules.pop(name, None)


def test_the_urls_of_the_guide_have_the_admin_and_the_dashboard(root: Client, modules: None) -> None:
    with override_settings(ROOT_URLCONF="urls"):
        assert root.get("/admin/dibs/task/").status_code == 200
        assert root.get("/dibs/tasks").status_code == 200
        dashboard.close()


def test_a_site_of_the_project_has_the_pages_under_its_own_addresses(root: Client, modules: None) -> None:
    task = app.enqueue("mail")
    with override_settings(ROOT_URLCONF="office_urls"):
        for url in ("/office/", "/office/dibs/task/", f"/office/dibs/task/{task.id}/change/", "/office/dibs/queue/"):
            answer = root.get(url)
            assert answer.status_code == 200
            assert "/admin/" not in answer.content.decode().replace("/static/admin/", "")
        act(root, "/office/dibs/task/", "cancel", task.id)
        assert "cancelled" in read(root, f"/office/dibs/task/{task.id}/change/")


def test_the_guide_names_every_permission() -> None:
    assert sorted(re.findall(r"`(dibs\.(?:view|add|change|delete)_\w+)`", GUIDE)) == sorted(permissions())
