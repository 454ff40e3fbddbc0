"""Handlers of dibs, and tasks of Django's framework."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections

from dibs import BatchItem
from dibs.django import app
from tests.frameworks.django.shop.framework import task
from tests.frameworks.django.shop.models import Order

SEEN: list[Any] = []
"""What handlers have noted in this process."""


class OutOfStock(Exception):
    pass


@app.task
def ship(order: int) -> str:
    return f"order {order} shipped"


@app.task
def mark_shipped(order: int) -> int:
    return Order.objects.filter(pk=order).update(shipped=True)


@app.task
async def count_async() -> int:
    return await Order.objects.acount()


@app.task
def count_queries(alias: str) -> int:
    list(Order.objects.all())
    return len(connections[alias].queries_log)


@app.task
def chain(order: int) -> int:
    return ship.enqueue(order).id


@app.task(lane="process")
def name_in_child() -> str:
    return Order._meta.label


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task
def fail(message: str) -> None:
    raise OutOfStock(message)


@task
def fail_plainly() -> None:
    raise ValueError("no")


@task
def return_object() -> object:
    return object()


@task(takes_context=True)
def tell(context: Any, name: str) -> dict[str, Any]:
    result = context.task_result
    return {"name": name, "attempt": context.attempt, "id": result.id, "status": str(result.status)}


@task(priority=5, queue_name="urgent")
def hurry() -> None:
    SEEN.append("hurry")


not_a_task = print


@dataclass
class Document:
    number: int


@app.batch_task(size=10)
def index(items: Sequence[BatchItem[Document]]) -> list[int]:
    return [item.value.number for item in items]
