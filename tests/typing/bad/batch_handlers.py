"""Mistakes with batch handlers. Both type checkers refuse exactly the lines that are marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dibs

app = dibs.Dibs("sqlite://")
aapp = dibs.AsyncDibs("sqlite://")


@dataclass
class Document:
    title: str


@app.batch_task(size=100, wait=0.2)
def index(items: Sequence[dibs.BatchItem[Document]]) -> Sequence[int | Exception]:
    return [len(item.value.titel) for item in items]  # refused


@aapp.batch_task
async def store(items: Sequence[dibs.BatchItem[Document]]) -> list[int]:
    return [item.ctx.atempt for item in items]  # refused


index.enqueue("a")  # refused
index.enqueue()  # refused
index.enqueue(Document("a"), Document("b"))  # refused
index.enqueue(title="a")  # refused
index.new(7)  # refused
index(Document("a"))  # refused
text: str = index.enqueue(Document("a")).wait().result  # refused


async def main() -> None:
    task = store.enqueue(Document("a"))
    print(task.id)  # refused
    (await (await store.enqueue(Document("a"))).wait()).result.upper()  # refused


@app.batch_task  # refused
def one(document: Document) -> int:
    return 1


@app.batch_task(size=10)  # refused
def no_sequence(items: Sequence[dibs.BatchItem[Document]]) -> int:
    return 1


@app.batch_task(schedule="0 * * * *")  # refused
def hourly(items: Sequence[dibs.BatchItem[Document]]) -> list[int]:
    return [1 for _ in items]
