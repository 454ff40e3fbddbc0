"""Eight processes claim from many queues and types with different filters: no task twice, none lost."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import dibs
from dibs import Event, NewTask, State
from dibs.observe.verify import Acknowledged, verify
from tests import matrix
from tests.helpers.processes import Member, ask_all, processes
from tests.helpers.tasks import enqueue_all

PROCESSES = 8
TASKS = 4000 if matrix.is_stress() else 400
"""In each round."""

QUEUES = [f"queue-{n}" for n in range(100)]
TYPES = [f"type-{n}" for n in range(20)]

HALVES: list[dict[str, Any]] = [{"queues": QUEUES[:60]}, {"queues": QUEUES[40:]}]
KINDS: list[dict[str, Any]] = [{"types": TYPES[:12]}, {"types": TYPES[8:]}]
PAIRS: list[dict[str, Any]] = [
    {"queues": QUEUES[first:until], "types": TYPES[begin:end]}
    for first, until in ((0, 60), (40, 100))
    for begin, end in ((0, 12), (8, 20))
]
FILTERS = {
    "no filter": [{}] * 8,
    "queues": HALVES * 4,
    "types": KINDS * 4,
    "both": PAIRS * 2,
    "mixed": [{}, {"max_attempts_remaining": 3}, *HALVES, *KINDS, *PAIRS[1:3]],
}
"""For each of the eight processes. Together they pass every task, and most tasks pass the filters of several."""


def test_eight_processes_with_filters_end_every_task_once(url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with dibs.Dibs(url) as app, processes(url, PROCESSES) as members:
        ids: list[int] = []
        told: list[Acknowledged] = []
        for name, filters in FILTERS.items():
            print(f"filters: {name}")
            ids += [task.id for task in enqueue_all(app, a_mixture(random.Random(seed)))]
            told += drain(members, filters, seed)
            check_completed(ids, told)
        check_history(app, told)


def test_no_task_is_lost_or_doubled_while_queues_are_paused_and_resumed(url: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    with dibs.Dibs(url) as app, processes(url, PROCESSES + 1) as members:
        ids = [task.id for task in enqueue_all(app, a_mixture(random.Random(seed)))]
        pausing = {"do": "pause_and_resume", "seed": seed, "queues": QUEUES, "rounds": 15}
        told = drain(members, FILTERS["mixed"], seed, pausing)
        # A process that found nothing while a queue was paused has ended; all queues are resumed now.
        told += drain(members[:1], [{}], seed)
        check_completed(ids, told)
        check_history(app, told)


def drain(
    members: list[Member], filters: list[dict[str, Any]], seed: int, *others: dict[str, Any]
) -> list[Acknowledged]:
    """What was acknowledged to processes that drain all tasks, each with its filters, while others do something
    else."""
    draining = [{"do": "drain", "seed": seed + n, "filters": each} for n, each in enumerate(filters)]
    return [
        Acknowledged(task_id, token, Event(event), member.name)
        for member, answer in zip(members, ask_all(members, [*draining, *others]), strict=True)
        for task_id, token, event in answer
    ]


def a_mixture(chance: random.Random) -> list[NewTask]:
    """Hundreds of combinations of queue, type and attempts."""
    return [
        NewTask(
            chance.choice(TYPES),
            queue=chance.choice(QUEUES),
            priority=chance.randint(-2, 2),
            max_attempts=chance.choice([5, 10, 20, 40]),
        )
        for _ in range(TASKS)
    ]


def check_completed(ids: list[int], told: list[Acknowledged]) -> None:
    """Every task was completed once, and every claim belongs to one process."""
    claims = Counter((each.task_id, each.token) for each in told if each.event is Event.CLAIMED)
    assert [claim for claim, count in claims.items() if count > 1] == [], "claimed by two processes"
    completed = Counter(each.task_id for each in told if each.event is Event.COMPLETED)
    assert [task_id for task_id, count in completed.items() if count > 1] == [], "completed twice"
    assert sorted(set(ids) - completed.keys()) == [], "lost"


def check_history(app: dibs.Dibs, told: list[Acknowledged]) -> None:
    """The history has every claim that was acknowledged and no other, and no task is left in any queue."""
    entries = app.all_history()
    claims = Counter((entry.task_id, entry.token) for entry in entries if entry.event is Event.CLAIMED)
    assert claims == Counter((each.task_id, each.token) for each in told if each.event is Event.CLAIMED)
    report = verify(entries, acknowledged=told)
    assert report.ok, report
    assert {state for queue in app.queues() for state, count in queue.depth.items() if count} == {State.COMPLETED}
