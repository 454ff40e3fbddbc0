"""The lifespan of workers fails at its start and at its end, in the worker and in child processes.

Promises 2 to 4. A worker whose lifespan did not start claims nothing, and no attempt is charged for any of it; all
tasks end once the lifespan starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import dibs
from dibs import Event, LifespanFailed
from tests.helpers.waiting import until
from tests.stress import lifespan_handlers as handlers
from tests.stress.checking import pages, stored
from tests.stress.lifespan_handlers import LifespanPlan, use, use_apart, use_async
from tests.stress.members import Role, work_with
from tests.stress.process_group import Member, ProcessGroup
from tests.stress.scenario import Scenario, Stage, is_settled, main
from tests.stress.sigterm import is_idle

LEASE = GRACE = 20.0
RECYCLE_AFTER = 2
NOT_STARTED = 3
"""The exit code of a worker whose lifespan did not start."""

NEVER_STARTS = ({handlers.WORKER_START: 1.0}, {handlers.CHILD_START: 1.0})
STARTS = ({handlers.WORKER_END: 1.0}, {handlers.LATER_CHILD_START: 0.6, handlers.CHILD_END: 0.6}, {})
FAULTS = (
    *(handlers.WORKER_START, handlers.WORKER_END),
    *(handlers.CHILD_START, handlers.LATER_CHILD_START, handlers.CHILD_END),
)
PERMITTED = frozenset({Event.ENQUEUED, Event.CLAIMED, Event.RELEASED, Event.PROMOTED, Event.COMPLETED})
"""A failed attempt, and a claim that was lost, would be charged to the task."""


def play(stage: Stage) -> None:
    app = stage.open()
    options = {"lease": LEASE, "grace": GRACE, "children": 1, "recycle_after": RECYCLE_AFTER}
    workers = stage.start_processes(0, kind=f"{__spec__.name}:process", **options)
    for number in stage.rounds():
        send(app, stage)
        failing = start(stage, workers, NEVER_STARTS[number % 2])
        working = start(stage, workers, STARTS[number % len(STARTS)])
        expect_exit(stage, failing, NOT_STARTED)
        work_for_a_while(app, stage, working)
        working.terminate()
        expect_exit(stage, working, int(handlers.WORKER_END in working.role.options["odds"]))
        stage.tally.injected = failed_lifespans(workers)
    start(stage, workers, {})
    until(lambda: is_settled(app), 60)
    workers.stop()
    stage.tally.injected = failed_lifespans(workers)
    stage.tally.problems += not_logged(workers)
    unstarted = {member.name for member in workers.all if member.exit_code() == NOT_STARTED}
    stage.checks += [lambda app: wrong_entries(app, unstarted), charged]


def start(stage: Stage, workers: ProcessGroup, odds: dict[str, float]) -> Member:
    [member] = workers.start(1, odds=odds, awaited=stage.chance.random() < 0.5)
    return member


def send(app: dibs.Dibs, stage: Stage) -> None:
    """Some that are run in the worker, and enough for a few child processes."""
    few, many = (6, 20) if stage.short else (10, 100)
    kinds = [use_apart] * few + [stage.chance.choice([use, use_async]) for _ in range(many)]
    stage.chance.shuffle(kinds)
    app.enqueue_many([kind.new(folder=str(stage.folder)) for kind in kinds])


def work_for_a_while(app: dibs.Dibs, stage: Stage, member: Member) -> None:
    """Until it has run a few tasks, those that use up some child processes included."""
    children = stage.chance.randint(1, 4)
    until(lambda: is_idle(app) or member.kinds().get(handlers.CHILD_STARTED, 0) >= children, 60)
    until(lambda: is_idle(app) or member.kinds().get(Event.CLAIMED, 0), 60)


def expect_exit(stage: Stage, member: Member, expected: int) -> None:
    if (code := member.exit_code()) != expected:
        stage.tally.problems.append(f"{member.name} ended with {code}, not {expected}: {member.log}")


def failed_lifespans(workers: ProcessGroup) -> int:
    """How often a lifespan has failed so far."""
    return sum(count for member in workers.all for kind, count in member.kinds().items() if kind in FAULTS)


def not_logged(workers: ProcessGroup) -> Iterator[str]:
    """Failures of a lifespan that are in no log: whatever it raised must be there."""
    for member in workers.all:
        failed = set(FAULTS) & set(member.kinds())
        yield from (f"{member.name} logs nothing of: {kind}" for kind in failed if kind not in member.log)


def wrong_entries(app: dibs.Dibs, unstarted: set[str]) -> Iterator[str]:
    """Claims of workers whose lifespan did not start, and failed or lost attempts of any."""
    for page in pages(app):
        for entry in page:
            if entry.worker_id in unstarted:
                yield f"task {entry.task_id}: {entry.event} by {entry.worker_id}, whose lifespan did not start"
            if entry.event not in PERMITTED:
                yield f"task {entry.task_id}: {entry.event}"


def charged(app: dibs.Dibs) -> Iterator[str]:
    """Tasks with more than one attempt."""
    yield from (f"task {task.id}: {task.attempts} attempts" for task in stored(app) if task.attempts != 1)


def process(role: Role) -> int:
    """Be a real worker with this plan."""
    odds, awaited = role.options.pop("odds"), role.options.pop("awaited")  # the others are those of the worker
    LifespanPlan(role.folder, role.name, os.getpid(), role.seed, awaited, odds).keep()
    try:
        return work_with(handlers.app, role)
    except LifespanFailed:
        return NOT_STARTED


SCENARIO = Scenario(
    name="lifespan_fails",
    fault="a lifespan fails at its start or its end, in workers and in child processes",
    promises=(2, 3, 4),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
