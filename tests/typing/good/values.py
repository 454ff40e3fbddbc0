# pyright: strict
"""Programs whose handlers take and return Pydantic models, attrs classes and paths."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import attrs
from pydantic import BaseModel

import dibs

app = dibs.Dibs("sqlite://", register_schemas=False)


class Order(BaseModel):
    number: int
    paid: bool = False


@attrs.frozen
class Job:
    order: Order | None
    where: Path


@app.task(register_schema=True)
def pack(job: Job, orders: list[Order]) -> dict[str, Order]:
    return {str(job.where): order for order in orders}


task = pack.enqueue(Job(Order(number=7), Path("a")), [Order(number=8)])
assert_type(task.wait().result, dict[str, Order])
assert_type(task.result["a"].paid, bool)
