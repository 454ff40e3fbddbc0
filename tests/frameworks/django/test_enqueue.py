"""Enqueue in a Django project: the task is stored by the commit of Django's transaction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import AsyncClient, Client, override_settings

import dibs
from dibs.django import app, tables
from dibs.django.client import DjangoDibs
from dibs.django.databases import url_of
from tests.frameworks.django.sessions import sessions
from tests.frameworks.django.shop.models import Order
from tests.frameworks.django.shop.tasks import add, mark_shipped, ship


def test_a_task_is_stored_by_the_commit_and_seen_by_no_other_connection_before(alias: str) -> None:
    with dibs.Dibs(url_of(alias), migrate=False) as other:
        with transaction.atomic(using=alias):
            order = Order.objects.create(number=7)
            task = ship.enqueue(order.pk)
            assert app.get(task.id) == task
            assert other.get(task.id) is None
        assert other.get(task.id) == task


def test_a_rollback_removes_the_task_and_the_row(alias: str) -> None:
    with suppress(ZeroDivisionError), transaction.atomic(using=alias):
        ship.enqueue(Order.objects.create(number=7).pk)
        add.enqueue(1)
        raise ZeroDivisionError
    assert app.list_tasks() == []
    assert not Order.objects.exists()


def test_a_savepoint_that_is_rolled_back_removes_only_its_tasks(alias: str) -> None:
    with transaction.atomic(using=alias):
        kept = ship.enqueue(1)
        with suppress(ZeroDivisionError), transaction.atomic(using=alias):
            ship.enqueue(2)
            raise ZeroDivisionError
    assert [task.id for task in app.list_tasks()] == [kept.id]


def test_a_refused_enqueue_leaves_the_transaction_usable(alias: str) -> None:
    with transaction.atomic(using=alias):
        ship.options(key="a").enqueue(1)
        with pytest.raises(dibs.KeyConflict):
            ship.options(key="a").enqueue(2)
        Order.objects.create(number=7)
    assert Order.objects.count() == len(app.list_tasks()) == 1


def test_a_transaction_that_django_will_roll_back_refuses_to_enqueue(alias: str) -> None:
    with transaction.atomic(using=alias):
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias, savepoint=False):
            1 / 0  # noqa: B018 - the outer block cannot commit any more
        for enqueue in (lambda: app.enqueue("mail"), lambda: app.on(alias).enqueue("mail"), lambda: add.enqueue(1, 2)):
            with pytest.raises(transaction.TransactionManagementError, match="end of the 'atomic' block"):
                enqueue()


def test_without_a_transaction_the_task_is_stored_at_once(alias: str) -> None:
    task = ship.enqueue(1)
    with dibs.Dibs(url_of(alias), migrate=False) as other:
        assert other.get(task.id) == task


def test_no_connection_is_opened_beside_that_of_django(alias: str) -> None:
    before = sessions(alias)
    with transaction.atomic(using=alias):
        ship.enqueue(1)
    app.list_tasks()
    app.stats()
    assert sessions(alias) <= before


def test_an_instance_of_a_model_is_refused_with_the_advice_to_pass_its_key(alias: str) -> None:
    order = Order.objects.create(number=7)
    for refused in (order, [order], Order.objects.all()):
        with pytest.raises(dibs.InvalidValue, match=r"model shop.Order.*\n.*primary key"):
            mark_shipped.enqueue(refused)  # type: ignore[arg-type]
        with pytest.raises(dibs.InvalidValue, match=r"model shop.Order.*\n.*primary key"):
            add.enqueue(refused)
    assert app.list_tasks() == []


def test_a_model_as_an_annotation_is_refused_where_the_handler_is_declared() -> None:
    mine = DjangoDibs()
    for annotation in (Order, list[Order], Order | None):

        def pay(order: Any) -> None:
            """Pay."""

        pay.__annotations__["order"] = annotation
        with pytest.raises(dibs.InvalidValue, match=r"argument order(.|\n)*primary key"):
            mine.task(pay)


def test_each_request_of_a_view_commits_both_or_neither(alias: str) -> None:
    client = Client(raise_request_exception=False)
    assert client.get("/order/", {"fail": "yes"}).status_code == 500
    assert (Order.objects.count(), app.list_tasks()) == (0, [])
    answer = client.get("/order/").json()
    assert app.get(answer["task"]).params == {"order": answer["order"]}  # type: ignore[union-attr]


def test_atomic_requests_cover_the_task(alias: str) -> None:
    connections.settings[alias]["ATOMIC_REQUESTS"] = True
    try:
        assert Client().get("/order/").status_code == 200
    finally:
        connections.settings[alias]["ATOMIC_REQUESTS"] = False
    assert len(app.list_tasks()) == 1


def test_an_async_view_enqueues(alias: str) -> None:
    answer = asyncio.run(_get("/order-async/"))
    assert add.get_result(answer["id"]).args == [1]


async def _get(path: str) -> Any:
    return (await AsyncClient().get(path)).json()


def test_a_database_without_tables_is_refused_with_the_advice_to_migrate(alias: str) -> None:
    names = connections[alias].introspection.table_names
    assert "dibs_tasks" in names()
    tables.drop(alias)
    try:
        with pytest.raises(dibs.SchemaMissing, match=r"manage.py migrate"):
            ship.enqueue(1)
        with pytest.raises(dibs.SchemaMissing, match=r"manage.py migrate"):
            app.worker(burst=True).run()
        assert not [name for name in names() if name.startswith("dibs_")]
    finally:
        tables.create(alias)
    assert ship.enqueue(1).state == "pending"


def test_overridden_settings_are_read_again(alias: str) -> None:
    with override_settings(TASKS={}):
        assert app.url == url_of("default")


def test_declared_limits_are_not_stored_in_a_transaction_of_the_program(alias: str) -> None:
    """Until the end of the transaction, their lock would keep workers from claiming tasks with limits."""
    mine = DjangoDibs()
    mine.limit("stripe", max=1)

    @mine.task(limits=["stripe"])
    def pay() -> None:
        """Pay."""

    with transaction.atomic(using=alias):
        first = pay.enqueue()
        assert mine.limits() == []
    second = pay.enqueue()
    assert [limit.name for limit in mine.limits()] == ["stripe"]
    assert mine.worker(burst=True, poll=0.05).run() == 0
    assert {task.state for task in (mine.get(first.id), mine.get(second.id)) if task} == {"completed"}
