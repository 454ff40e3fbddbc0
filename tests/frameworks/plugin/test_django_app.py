"""The fixture `dibs` with `dibs.django.app` beside pytest-django: handlers and tasks of Django's task framework."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.plugin.project import Project

SETTINGS = """
    INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_tasks", "dibs.django"]
    DATABASES = {"default": DATABASE}
    if "sqlite3" in DATABASES["default"]["ENGINE"]:
        DATABASES["default"]["TEST"] = {"NAME": "test.sqlite3"}  # Django closes connections to files, not to memory
    TASKS = {"default": {"BACKEND": "dibs.django.DibsBackend", "QUEUES": []}}
    USE_TZ = True
    SECRET_KEY = "test"
"""

SHOP = """
    from django.contrib.auth.models import Group
    from django.db import transaction
    from django_tasks import task

    from dibs.django import app


    @app.task
    def rename(group: int, name: str) -> None:
        Group.objects.filter(pk=group).update(name=name)


    @task
    def count(least):
        return Group.objects.filter(pk__gte=least).count()


    def sign_up(name, *, fails=False):
        with transaction.atomic():
            group = Group.objects.create(name=name)
            rename.enqueue(group.pk, f"renamed {name}")
            result = count.enqueue(group.pk)
            if fails:
                raise ValueError
        return group, result
"""

TESTS = """
    import pytest
    import shop
    from django.contrib.auth.models import Group


    def check(dibs):
        assert Group.objects.count() == 0
        dibs.assert_nothing_enqueued()
        with pytest.raises(ValueError):
            shop.sign_up("never", fails=True)
        dibs.assert_nothing_enqueued()
        group, result = shop.sign_up("ann")
        dibs.assert_enqueued(shop.rename, group=group.pk)
        assert len(dibs.drain()) == 2
        assert [each.name for each in Group.objects.all()] == ["renamed ann"]
        result.refresh()
        assert result.return_value == 1


    @pytest.mark.parametrize("time", [1, 2])
    def test_db(dibs, db, time):
        check(dibs)


    @pytest.mark.django_db
    def test_marked(dibs):
        check(dibs)


    @pytest.mark.parametrize("time", [1, 2])
    def test_transactional_db(dibs, transactional_db, time):
        check(dibs)


    @pytest.mark.django_db
    def test_without_the_fixture():
        shop.sign_up("bob")
        assert len(shop.app.list_tasks()) == 2


    @pytest.mark.django_db
    def test_nothing_is_left():
        assert shop.app.list_tasks() == []


    def test_without_database(dibs):
        assert dibs.app.enqueue("other").id == 1
"""


def test_handlers_and_tasks_of_django_are_in_the_transaction_of_the_test(
    tmp_path: Path, empty_url: str, database: dict[str, str]
) -> None:
    project = Project(tmp_path / "project", empty_url)
    project.write(settings=SETTINGS.replace("DATABASE}", f"{database!r}}}"), shop=SHOP, test_shop=TESTS)
    project.settings("dibs_app = dibs.django:app\nDJANGO_SETTINGS_MODULE = settings\n")
    printed = project.run()
    assert "8 passed" in printed, printed
