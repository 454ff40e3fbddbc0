"""A processor that kills itself with SIGKILL at the n-th of its fault points: `python -m tests.helpers.dying URL`.

There is a fault point after every statement that the store sends, before every history entry that SQLite appends to
one, and after every operation. The processor is forked for each try, so that one try costs little. It reads one command
a line and answers each with the exit status of the process and the number of points it has passed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import dibs
from dibs import Claim
from dibs.store.operation import Statement
from dibs.store.operations import validation
from dibs.store.postgres import connection as postgres
from dibs.store.sqlite import connection as sqlite
from tests.helpers.clients import sweep_every
from tests.helpers.member import say

NAME = "dying"
"""What PostgreSQL knows it by."""

LEASE = 1.0
"""Seconds, of everything that the processor claims."""

BREAKS = "breaks"
"""The type of tasks that fail."""


class FaultPoints:
    """Counted as they are passed; the one numbered `dies_at` is the last."""

    passed = 0
    dies_at = 0

    def pass_by(self) -> None:
        self.passed += 1
        if self.passed == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


points = FaultPoints()


def process(app: dibs.Dibs) -> None:
    """End a step, see to the workflow that waits for its finalization because of that, and so on to the end."""
    claim = app.claim("dying", lease=LEASE)
    points.passed = 0  # what comes before the step has ended is about tasks
    while claim is not None:
        due = end(app, claim)
        points.pass_by()
        while due is not None:
            due = finalize(app, due)
        claim = app.claim("dying", lease=LEASE)
        points.pass_by()


def end(app: dibs.Dibs, claim: Claim) -> int | None:
    """Report the task as its type says; which workflow waits for its finalization because of that."""
    if claim.task.type == BREAKS:
        return app.fail(claim, "broken", permanent=True).finalize
    return app.complete(claim, {"by": claim.worker_id}).finalize


def finalize(app: dibs.Dibs, workflow_id: int) -> int | None:
    """Finalize the workflow; which other one waits for its own because of that."""
    claim = app.claim_finalization(workflow_id, "dying", LEASE)
    points.pass_by()
    if claim.token is None:
        return None  # upkeep was faster
    finalized = app.finalize(workflow_id, "dying", claim.token)
    points.pass_by()
    return next(iter(finalized.due), None)


def run(url: str, now: int, at: int) -> None:
    """Be the processor, and say how many points it has passed if it lives. What is done anew after some time is not,
    or a slow life would have more points than another."""
    points.dies_at = at
    os.environ["PGAPPNAME"] = NAME
    validation.CACHE_SECONDS = math.inf
    with dibs.Dibs(url, clock=lambda: now) as app:
        sweep_every(app, math.inf)
        process(app)
    os.write(TOLD[1], str(points.passed).encode())


TOLD = os.pipe()


def fork(url: str, now: int, at: int) -> dict[str, int | None]:
    """Run in a child; its exit status, and how many points it passed if it lived."""
    child = os.fork()
    if not child:
        code = 1
        try:
            run(url, now, at)
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"status": status, "passed": int(os.read(TOLD[0], 100)) if status == 0 else None}


def wrap(executor: Any) -> None:
    """A fault point after each statement."""
    execute: Callable[[Any, Statement], Any] = executor.__call__

    def then_pass_by(self: Any, statement: Statement) -> Any:
        rows = execute(self, statement)
        points.pass_by()
        return rows

    executor.__call__ = then_pass_by


def wrap_history() -> None:
    append = sqlite.SqliteExecutor._append_history

    def pass_by_first(self: Any, rows: Any) -> None:
        points.pass_by()
        append(self, rows)

    sqlite.SqliteExecutor._append_history = pass_by_first  # type: ignore[method-assign]


if __name__ == "__main__":
    wrap(sqlite.SqliteExecutor)
    wrap(postgres.PostgresExecutor)
    wrap_history()
    say("ready")
    for line in sys.stdin:
        say(fork(sys.argv[1], **json.loads(line)))
