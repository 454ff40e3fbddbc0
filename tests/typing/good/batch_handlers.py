# pyright: strict
"""Programs that use batch handlers as intended. Both type checkers accept every line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type

import dibs
from dibs.testing import isolated

app = dibs.Dibs("sqlite://")
aapp = dibs.AsyncDibs("sqlite://")


@dataclass
class Document:
    title: str


@app.batch_task(size=100, wait=0.2)
def index(items: Sequence[dibs.BatchItem[Document]]) -> Sequence[int | Exception]:
    return [len(item.value.title) if item.ctx.attempt == 1 else dibs.Permanent("late") for item in items]


@app.batch_task
def measure(items: Sequence[dibs.BatchItem[Document]]) -> list[int]:
    return [len(item.value.title) for item in items]


@app.batch_task(lane="process", max_attempts=5, retry_on=TimeoutError)
async def send(items: Sequence[dibs.BatchItem[Document]]) -> list[str | BaseException]:
    return await asyncio.gather(*(send_one(item.value) for item in items), return_exceptions=True)


@aapp.batch_task(size=10)
async def store(items: Sequence[dibs.BatchItem[Document]]) -> Sequence[None]:
    return [None for _ in items]


async def send_one(document: Document) -> str:
    return document.title


# A task has the type of its own result, without exceptions.
task = index.enqueue(Document("a"))
assert_type(task, dibs.Task[int])
assert_type(task.wait().result, int)
assert_type(measure.enqueue(Document("a")).wait().result, int)
assert_type(send.enqueue(Document("a")).wait().result, str)
assert_type(index.options(priority=5).enqueue(Document("a")), dibs.Task[int])
assert_type(index.new(Document("a")), dibs.NewTask)
app.enqueue_many([index.new(Document(title)) for title in "abc"])
with app.workflow("batch") as flow:
    flow.step(index, Document("a"))


async def main() -> None:
    task = await store.enqueue(Document("a"))
    assert_type(task, dibs.AsyncTask[None])
    assert_type((await store.get(task.id)), dibs.AsyncTask[None] | None)


def around(items: Sequence[dibs.BatchItem[Any]], call_next: Any) -> Any:
    return call_next()


@app.batch_task(middleware=[around])
def count(items: Sequence[dibs.BatchItem[Document]]) -> Sequence[int | Exception]:
    return [dibs.Retry(30) if item.value.title else 1 for item in items]


assert_type(count.enqueue(Document("a")).wait().result, int)


def index_all(handler: dibs.BatchHandler[Document, int], documents: Sequence[Document]) -> None:
    for document in documents:
        handler.enqueue(document)


index_all(index, [])

with isolated(app) as box:
    assert_type(box.run_now(index, Document("a")), int)
    assert_type(box.run_batch(index, [Document("a"), Document("b")]), list[int | BaseException])
