"""Plain tasks on whichever version of dibs is on the path: `python -m bench.workflow_plain URL WHAT TASKS`.

It uses nothing that a version before workflows does not have, and answers in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import dibs
from dibs import Claim, ClaimRef, Completed, Dibs, DibsError, NewTask

TYPE = "bench"
WORKER = "bench"


def main(url: str, what: str, tasks: str) -> None:
    """Do it once without the clock, once with it."""
    with Dibs(url) as app:
        app.migrate()
        do = WAYS[int(what)]
        do(app, 50)
        do(app, int(tasks))


def enqueue(app: Dibs, tasks: int) -> None:
    """1,000 a call."""
    calls = max(tasks // 1000, 1) * 5
    timed(calls * 1000, lambda: [app.enqueue_many(_new(1000)) for _ in range(calls)])


def claim_and_complete(app: Dibs, tasks: int, batch: int) -> None:
    """Until nothing is left."""
    app.enqueue_many(_new(tasks))

    def drain() -> None:
        while claims := app.claim_many(WORKER, batch):
            _complete(app, claims)

    timed(tasks, drain)


def complete_by_name(app: Dibs, tasks: int) -> None:
    """As a server does for HTTP clients: it has the reference of a claim, but not its task."""
    app.enqueue_many(_new(tasks))
    claims = app.claim_many(WORKER, min(tasks, 1000))
    refs = [ClaimRef(claim.task_id, claim.token, WORKER) for claim in claims]

    def complete() -> None:
        for ref in refs:
            _complete(app, [ref])

    timed(len(refs), complete)


def timed(tasks: int, do: Callable[[], object]) -> None:
    """How many a second, and microseconds of CPU time for each; only the last answer counts."""
    cpu, began = time.process_time(), time.perf_counter()
    do()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    ANSWER.update({"per_second": tasks / seconds, "cpu": cpu * 1e6 / tasks})


def _new(tasks: int) -> list[NewTask]:
    return [NewTask(TYPE, {"number": n}) for n in range(tasks)]


def _complete(app: Dibs, claims: list[Claim] | list[ClaimRef]) -> None:
    for answer in app.finish([(claim, Completed()) for claim in claims]):
        if isinstance(answer, DibsError):
            raise answer


WAYS: list[Callable[[Dibs, int], None]] = [
    enqueue,
    lambda app, tasks: claim_and_complete(app, tasks, 1),
    lambda app, tasks: claim_and_complete(app, tasks, 100),
    complete_by_name,
]
ANSWER: dict[str, object] = {"package": dibs.__file__}

if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write(json.dumps(ANSWER))
