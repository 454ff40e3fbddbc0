"""A peek shows what the next claim takes: with limits, rates, several limits, fair queues, pauses and every order."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dibs import NewTask
from tests.helpers.clients import Clock
from tests.helpers.limiting import claim, put, put_group, put_queue, put_type

ORDERS = ("priority", "priority_lifo", "priority_asc", "fifo", "lifo")

LIMITS: tuple[list[str], ...] = ([], ["stripe"], ["tenant"], ["rate"], ["stripe", "tenant"], ["tenant", "rate"])

pytestmark = pytest.mark.database("a peek and a claim at the same moment")


def ids(claims: Any) -> list[int]:
    return [each.task_id for each in claims]


def peeked(app: Any, count: int, **filters: Any) -> list[int]:
    return [task.id for task in app.peek(count, **filters)]


def prepare(app: Any) -> None:
    put(app, "stripe", max=3)
    put(app, "tenant", max=2, per="group")
    put(app, "rate", rate="30/minute", burst=2)
    put_queue(app, "fair", fair=True)
    put_group(app, "fair", "g0", 3)
    put_queue(app, "limited", limits=["stripe"])
    put_type(app, "charge", limits=["tenant"])


def enqueue_some(app: Any, draw: random.Random) -> None:
    app.enqueue_many(
        [
            NewTask(
                draw.choice(["charge", "mail"]),
                {},
                queue=draw.choice(["default", "fair", "limited"]),
                priority=draw.choice([0, 0, 0, 1, 5]),
                limits=draw.choice(LIMITS),
                group=f"g{draw.randrange(4)}",
            )
            for _ in range(draw.randrange(8))
        ]
    )


def test_a_peek_at_one_type_knows_the_turn_that_a_task_of_another_type_gives_its_group(app: Any) -> None:
    put_queue(app, "fair", fair=True)
    new = [("mail", "busy")] * 3 + [("mail", "idle")] * 3 + [("charge", "idle")] + [("print", "busy")] * 5
    app.enqueue_many([NewTask(type, queue="fair", group=group) for type, group in new])
    claim(app, 1, types=["charge"])
    claim(app, 5, types=["print"])
    assert claim(app, 1, types=["charge"]) == []
    app.enqueue("charge", queue="fair", group="idle")  # so the group begins with the present turn
    expected = peeked(app, 2, types=["mail"])
    claims = claim(app, 2, types=["mail"])
    assert ids(claims) == expected
    assert [each.task.group for each in claims] == ["idle", "busy"]


@pytest.mark.parametrize("order", ORDERS)
def test_random_peeks_show_what_claims_take(app: Any, clock: Clock, order: str) -> None:
    draw = random.Random(order)
    prepare(app)
    held: list[Any] = []
    limited = 0
    for turn in range(40):
        enqueue_some(app, draw)
        filters: dict[str, Any] = draw.choice([{}, {}, {"queues": ["fair", "default"]}, {"types": ["charge"]}])
        count = draw.choice([1, 2, 5, 20])
        if turn % 10 == 5:
            app.pause("limited")
        if turn % 10 == 8:
            app.resume("limited")
        seen = peeked(app, count, order=order, **filters)
        assert peeked(app, count, order=order, **filters) == seen, "a peek has changed something"
        taken = claim(app, count, order=order, **filters)
        assert ids(taken) == seen, (turn, count, filters)
        limited += sum(bool(each.task.limits) for each in taken)
        held += taken
        draw.shuffle(held)
        for ended in [held.pop() for _ in range(len(held) // 2)]:
            app.complete(ended) if draw.random() < 0.7 else app.release(ended)
        clock.advance(draw.choice([0, 1, 3]))
    assert limited > 10, "the claims took hardly any task with a limit"


def test_a_peek_finds_the_only_group_with_room_behind_a_thousand_full_ones(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    for _ in range(2):
        app.enqueue_many([NewTask("charge", priority=9, limits=["tenant"], group=f"g{n}") for n in range(1000)])
    assert len(claim(app, 1000, lease=600)) == 1000
    free = app.enqueue("charge", {}, limits=["tenant"], group="free")
    assert peeked(app, 5) == [free.id]
    assert ids(claim(app, 5)) == [free.id]


def test_a_peek_sorts_more_backlogs_than_one_lap_reads_before_the_first_claim(app: Any) -> None:
    put(app, "tenant", max=1, per="group")
    app.enqueue_many([NewTask("charge", limits=["tenant"], group=f"g{n}", priority=n) for n in range(700)])
    seen = peeked(app, 3)
    assert seen == [each.id for each in sorted(app.list_tasks(limit=1000), key=lambda task: -task.priority)[:3]]
    assert ids(claim(app, 3)) == seen
