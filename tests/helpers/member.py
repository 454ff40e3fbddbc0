"""One of many processes on the same store, controlled by commands: `python -m tests.helpers.member URL NAME`.

It prints `ready`, reads one command a line from its standard input, and answers each with one line of JSON. The pipes
are the only synchronisation: after `ready` a member does nothing until the next command.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from typing import Any, cast

import dibs
from dibs import (
    Claim,
    Completed,
    DibsError,
    Event,
    Failed,
    Failure,
    Finished,
    NewTask,
    NotClaimable,
    Order,
    Outcome,
    Released,
    State,
)

Told = list[tuple[int, int, str]]
"""(task id, token, event): what was acknowledged to this process."""


def main(commands: dict[str, Any], url: str, name: str) -> None:
    with dibs.Dibs(url) as app:
        app.claim(name, queues=["nothing-is-ever-in-here"])  # so that everything is open and warm
        say("ready")
        for line in sys.stdin:
            command = json.loads(line)
            say(commands[command.pop("do")](app, name, **command))


def say(answer: Any) -> None:
    """Print one line with one write, so that a process that is killed prints all of it or nothing."""
    os.write(1, json.dumps(answer).encode() + b"\n")


def claim(app: dibs.Dibs, name: str, queue: str) -> Told:
    """Claim one task."""
    claimed = app.claim(name, queues=[queue])
    return [] if claimed is None else [(claimed.task_id, claimed.token, Event.CLAIMED)]


def churn(app: dibs.Dibs, name: str, seed: int, worker: str) -> Told:
    """Claim and finish in every way there is, until every task is final.

    Other processes have the same worker id, so that only the token distinguishes an old claim from a new one.
    """
    chance = random.Random(seed)
    told: Told = []
    abandoned: list[Claim] = []
    while True:
        abandons = chance.random() < 0.25
        order, count = chance.choice(list(Order)), chance.randint(1, 10)
        claims = app.claim_many(worker, count, order=order, lease=0.05 if abandons else 60, wait=0.2)
        told += [(claim.task_id, claim.token, Event.CLAIMED) for claim in claims]
        if abandons:
            abandoned += claims
        else:
            told += report(app, [(claim, an_outcome(chance, claim)) for claim in claims])
        if chance.random() < 0.1:  # back from the dead: most of these leases have run out by now
            for claim in abandoned:
                told += come_back(app, claim, chance)
            abandoned = []
        if not claims and not is_anything_left(app):
            return told


def drain(app: dibs.Dibs, name: str, seed: int, filters: dict[str, Any]) -> Told:
    """Claim in every order and number what passes the filters, until a claim finds nothing.

    Some tasks are given back. They pass the filters of this process, which therefore goes on until it has claimed them
    again or another process has.
    """
    chance = random.Random(seed)
    told: Told = []
    while claims := app.claim_many(name, chance.choice([1, 3, 30]), order=chance.choice(list(Order)), **filters):
        told += [(claim.task_id, claim.token, Event.CLAIMED) for claim in claims]
        told += report(app, [(claim, an_end_or_not(chance)) for claim in claims])
    return told


def an_end_or_not(chance: random.Random) -> Outcome:
    """Completed, given back at once, or failed with a retry at once."""
    kind = chance.random()
    if kind < 0.85:
        return Completed()
    return Released() if kind < 0.93 else Failed(Failure("Boom", "once more"), retry_in=0)


def pause_and_resume(app: dibs.Dibs, name: str, seed: int, queues: list[str], rounds: int) -> Told:
    """Pause some of the queues, run upkeep, resume them, again and again."""
    chance = random.Random(seed)
    for _ in range(rounds):
        chosen = chance.sample(queues, 3)
        for queue in chosen:
            app.pause(queue)
        app.upkeep()
        for queue in chosen:
            app.resume(queue)
    return []


def come_back(app: dibs.Dibs, claim: Claim, chance: random.Random) -> Told:
    """Claim the task again if it is free, then send an outcome for the old claim, and only then for the new one."""
    late = (claim, Completed({"token": claim.token}))
    try:
        again = app.claim_by_id(claim.task_id, claim.worker_id)
    except NotClaimable:
        return report(app, [late])
    claimed = (again.task_id, again.token, Event.CLAIMED)
    return [claimed, *report(app, [late]), *report(app, [(again, an_outcome(chance, again))])]


def an_outcome(chance: random.Random, claim: Claim) -> Outcome:
    """A random outcome; its content names the token under which it is sent."""
    kind = chance.random()
    if kind < 0.6:
        return Completed({"token": claim.token})
    if kind < 0.85:
        failure = Failure("Boom", f"token {claim.token}")
        return Failed(failure, retry_in=chance.choice([0, 0.02]), permanent=kind < 0.63)
    return Released(delay=chance.choice([0, 0.02]))


def report(app: dibs.Dibs, reports: list[tuple[Claim, Outcome]]) -> Told:
    if not reports:
        return []
    answers = zip(reports, app.finish(reports), strict=True)
    return [
        (claim.task_id, claim.token, event_of(outcome, answer))
        for (claim, outcome), answer in answers
        if not isinstance(answer, DibsError)
    ]


def event_of(outcome: Outcome, answer: Finished) -> str:
    if answer.state is State.CANCELLED:
        return Event.CANCELLED
    return {Completed: Event.COMPLETED, Failed: Event.FAILED, Released: Event.RELEASED}[type(outcome)]


def is_anything_left(app: dibs.Dibs) -> bool:
    return any(app.list_tasks(state=state, limit=1) for state in ("pending", "scheduled", "claimed"))


def enqueue_until_killed(app: dibs.Dibs, name: str, threads: int) -> None:
    """Print the ids of each batch as soon as it is acknowledged, until the process is killed."""

    def go_on(thread: int) -> None:
        for number in range(10**9):
            batch = f"{name}-{thread}-{number}"
            size = 1 + number % 5
            tasks = app.enqueue_many([NewTask("t", {"batch": batch}, key=f"{batch}-{n}") for n in range(size)])
            say([batch, [task.id for task in tasks]])

    workers = [threading.Thread(target=go_on, args=[n]) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def enqueue_one_by_one(app: dibs.Dibs, name: str, count: int) -> float:
    """The longest time that one of `count` single enqueues took, in seconds."""
    longest = 0.0
    for number in range(count):
        started = time.perf_counter()
        app.enqueue("t", {"by": name, "number": number})
        longest = max(longest, time.perf_counter() - started)
    return longest


def enqueue_batches(app: dibs.Dibs, name: str, count: int) -> int:
    """Enqueue this number of batches of one to three tasks; return the number of tasks."""
    return sum(len(app.enqueue_many([NewTask("resize", max_attempts=3)] * (1 + n % 3))) for n in range(count))


def take_permits(app: dibs.Dibs, name: str, key_id: str, requests: int, times: int) -> int:
    """How many permits of a daily limit it got, one by one."""
    limit, store = dibs.RateLimit(requests, 86400), cast(Any, app._store)
    return sum(app._run(store.keys.take_permits(key_id, limit, 1)).granted for _ in range(times))


COMMANDS: dict[str, Any] = {
    "claim": claim,
    "churn": churn,
    "drain": drain,
    "pause_and_resume": pause_and_resume,
    "enqueue_until_killed": enqueue_until_killed,
    "enqueue_one_by_one": enqueue_one_by_one,
    "enqueue_batches": enqueue_batches,
    "take_permits": take_permits,
}

if __name__ == "__main__":
    main(COMMANDS, *sys.argv[1:])
