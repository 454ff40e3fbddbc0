"""Programs that pass other values than a Pydantic model, an attrs class or a path."""

from __future__ import annotations

from pathlib import Path

import attrs
from pydantic import BaseModel

import dibs

app = dibs.Dibs("sqlite://")


class Order(BaseModel):
    number: int


@attrs.frozen
class Job:
    order: Order
    where: Path


@app.task
def pack(job: Job) -> Order:
    return job.order


pack.enqueue(Order(number=7))  # refused
pack.enqueue(Job(Order(number=7), "a"))  # refused
print(pack.enqueue(Job(Order(number=7), Path("a"))).wait().result.paid)  # refused
