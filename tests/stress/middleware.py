"""Middleware raises, hangs past the timeout of its task or is cancelled: each task ends once, and by the rules.

Promises 2 to 5. The middleware is around handlers in threads, on the event loop and in child processes. Meanwhile its
worker is frozen past its lease, or gets SIGTERM with and without enough grace: its late outcomes are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

import dibs
from dibs import NewTask, Task
from tests.helpers.waiting import until
from tests.stress.batch_handlers import LATE
from tests.stress.checking import stored
from tests.stress.members import Role, work_with
from tests.stress.middleware_handlers import (
    CANCELLED,
    FAULTS,
    PLACES,
    surrounded,
    surrounded_apart,
    surrounded_async,
    surrounded_async_apart,
)
from tests.stress.middleware_handlers import app as surrounded_app
from tests.stress.poison_pill import are_final
from tests.stress.process_group import Member, ProcessGroup
from tests.stress.scenario import Scenario, Stage, main
from tests.stress.worker_frozen import holds_nothing

LEASE, UPKEEP = 1.0, 0.2
GRACES = (0.05, 20.0)
IN_WORKER = (surrounded, surrounded_async)
APART = (surrounded_apart, surrounded_async_apart)


def play(stage: Stage) -> None:
    stage.tally.promised = LEASE + UPKEEP
    app = stage.open()
    options = {"lease": LEASE, "upkeep_every": UPKEEP, "concurrency": 8, "children": 1}
    workers = stage.start_processes(0, kind=f"{__spec__.name}:process", **options)
    for grace in GRACES:
        workers.start(1, grace=grace)
    thawed: list[Member] = []
    for number in stage.rounds():
        sent = {task.id for task in app.enqueue_many(a_round(stage))}
        member = until(lambda: waiting_in_middleware(app, workers), 60)
        if number % 2:
            end(stage, app, workers, member)
        else:
            freeze(stage, app, member)
            thawed.append(member)
        until(lambda sent=sent: cancel_claimed(app) or are_final(app, sent), 120)  # type: ignore[misc]
        stage.tally.injected += 1
    until(lambda: any(late in member.log for member in thawed for late in LATE), 60)
    workers.stop()
    count_faults(stage, workers)
    stage.checks.append(ended_otherwise)


def a_round(stage: Stage) -> list[NewTask]:
    """Each fault in each lane, at random places and in random order. A child process that is killed costs a second or
    more, so there are fewer in the lane of processes."""
    often = 1 if stage.short else 4
    tasks = [a_task(stage, handler, name) for handler in IN_WORKER * often for name in FAULTS]
    tasks += [a_task(stage, stage.chance.choice(APART), name) for name in FAULTS]
    stage.chance.shuffle(tasks)
    return tasks


def a_task(stage: Stage, handler: dibs.Handler, name: str) -> NewTask:
    new = handler.new(folder=str(stage.folder), fault=name, place=stage.chance.choice(PLACES))
    return msgspec.structs.replace(new, max_attempts=FAULTS[name].most, timeout=FAULTS[name].timeout)


def waiting_in_middleware(app: dibs.Dibs, workers: ProcessGroup) -> Member | None:
    """A worker with a middleware that waits to be cancelled: it holds that claim until then."""
    holders = {task.worker_id for task in claimed_to_wait(app)}
    return next((each for each in workers.members if each.name in holders and each.kinds().get(CANCELLED)), None)


def claimed_to_wait(app: dibs.Dibs) -> list[Task]:
    """Claimed tasks whose middleware waits to be cancelled, and has not been asked to."""
    found = app.list_tasks(state="claimed", limit=1000)
    return [task for task in found if task.params["fault"] == CANCELLED and not task.cancel_requested]


def cancel_claimed(app: dibs.Dibs) -> None:
    """Request their cancellation, while they run."""
    for task in claimed_to_wait(app):
        app.cancel(task.id)


def freeze(stage: Stage, app: dibs.Dibs, member: Member) -> None:
    """Until other workers have taken its tasks over; requests to cancel may come meanwhile."""
    cancels = stage.chance.random() < 0.5
    member.freeze(stage.database)
    until(lambda: (cancels and cancel_claimed(app)) or holds_nothing(app, member.name), 60)
    member.thaw()


def end(stage: Stage, app: dibs.Dibs, workers: ProcessGroup, member: Member) -> None:
    """SIGTERM, and another worker in its place. One with enough grace waits for the middleware to be cancelled."""
    grace = member.role.options["grace"]
    member.terminate()
    until(lambda: (grace > 1 and cancel_claimed(app)) or not member.is_alive, 60)
    if (code := member.exit_code()) != 0:
        stage.tally.problems.append(f"{member.name} ended with {code}: {member.log}")
    workers.replace(member)


def count_faults(stage: Stage, workers: ProcessGroup) -> None:
    """How often middleware failed; each kind of fault must have happened."""
    happened = sum((Counter(member.kinds()) for member in workers.all), Counter[str]())
    stage.tally.injected += sum(happened[name] for name in FAULTS)
    missing = [name for name in FAULTS if name != "none" and not happened[name]]
    stage.tally.problems += [f"no middleware has had the fault {name!r}" for name in missing]


def ended_otherwise(app: dibs.Dibs) -> Iterator[str]:
    """Tasks that did not end as their fault demands."""
    for task in stored(app):
        rule = FAULTS[task.params["fault"]]
        if task.state is not rule.state or not rule.least <= task.attempts <= rule.most:
            yield f"task {task.id} ({task.type}, {task.params}) is {task.state} after {task.attempts} attempts"


def process(role: Role) -> int:
    """Be a real worker with these handlers."""
    return work_with(surrounded_app, role)


SCENARIO = Scenario(
    name="middleware",
    fault="middleware raises, hangs past the timeout or is cancelled; its worker is frozen, or gets SIGTERM",
    promises=(2, 3, 4, 5),
    engines=("sqlite", "postgres", "http", "http+postgres"),
    play=play,
)

if __name__ == "__main__":
    main(SCENARIO)
