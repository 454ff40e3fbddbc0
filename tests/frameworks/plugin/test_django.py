"""The fixture `dibs` beside pytest-django: tasks in the transaction of the test, which is rolled back."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks.plugin.project import Project

SETTINGS = """
    INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth"]
    DATABASES = {"default": DATABASE}
    USE_TZ = True
    SECRET_KEY = "test"
"""

SHOP = """
    import dibs
    from django.contrib.auth.models import Group
    from django.db import transaction

    app = dibs.Dibs("sqlite:///shop.db")


    @app.task
    def rename(group: int, name: str) -> None:
        Group.objects.filter(pk=group).update(name=name)


    def sign_up(name, *, fails=False):
        with transaction.atomic():
            group = Group.objects.create(name=name)
            rename.on("default").enqueue(group.pk, f"renamed {name}")
            if fails:
                raise ValueError
        return group
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
        group = shop.sign_up("ann")
        dibs.assert_enqueued(shop.rename, group=group.pk)
        assert len(dibs.drain()) == 1
        assert [each.name for each in Group.objects.all()] == ["renamed ann"]


    @pytest.mark.parametrize("time", [1, 2])
    def test_db(dibs, db, time):
        check(dibs)


    @pytest.mark.django_db
    def test_marked(dibs):
        check(dibs)


    @pytest.mark.parametrize("time", [1, 2])
    def test_transactional_db(dibs, transactional_db, time):
        check(dibs)


    @pytest.mark.django_db(transaction=True)
    def test_marked_transactional(dibs):
        check(dibs)


    def test_without_database(dibs):
        assert dibs.app.enqueue("other").id == 1
"""


def test_tasks_are_in_the_transaction_of_the_test(tmp_path: Path, empty_url: str, database: dict[str, str]) -> None:
    project = Project(tmp_path / "project", empty_url)
    project.write(settings=SETTINGS.replace("DATABASE}", f"{database!r}}}"), shop=SHOP, test_shop=TESTS)
    project.settings("dibs_app = shop:app\nDJANGO_SETTINGS_MODULE = settings\n")
    printed = project.run()
    assert "7 passed" in printed, printed
    assert not (project.files & {"shop.db"})
