"""An application whose handlers take and return values of many types. Child processes import it."""

from __future__ import annotations

import dibs
from tests.helpers.values import Job, Order, Right

app = dibs.Dibs("sqlite:///set-by-the-test.db")


def turned(job: Job, orders: list[Order | None], rights: Right = Right.READ) -> dict[Right, Job]:
    """Put the first order into the job."""
    assert isinstance(job, Job)
    return {rights: Job(orders[0], job.where / "done")}


@app.task
def in_thread(job: Job, orders: list[Order | None], rights: Right = Right.READ) -> dict[Right, Job]:
    """A handler of the thread lane."""
    return turned(job, orders, rights)


@app.task(lane="process")
def in_process(job: Job, orders: list[Order | None], rights: Right = Right.READ) -> dict[Right, Job]:
    """A handler of the process lane."""
    return turned(job, orders, rights)


@app.task
async def in_loop(job: Job, orders: list[Order | None], rights: Right = Right.READ) -> dict[Right, Job]:
    """A handler of the loop lane."""
    return turned(job, orders, rights)
