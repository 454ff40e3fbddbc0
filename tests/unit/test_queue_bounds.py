"""The plan of claims within the bounds of queues: how many tasks each claim asks for, and from which queues."""

from __future__ import annotations

import random

from dibs.worker.queue_bounds import ClaimRound


def test_a_claim_asks_for_no_more_than_the_smallest_room_among_its_queues() -> None:
    plan = ClaimRound(["mail", "video", "default"], {"mail": 3, "video": 1})
    assert plan.most(10) == 1
    plan.claimed(["default"])  # the queue video had its turn
    assert (plan.queues, plan.most(10)) == (["mail", "default"], 3)
    plan.claimed(["mail", "mail", "default"])
    assert (plan.queues, plan.most(10)) == (["mail", "default"], 1)
    plan.claimed(["mail"])
    assert (plan.queues, plan.most(10)) == (["default"], 10)


def test_a_round_of_claims_ends_and_keeps_every_bound_whatever_the_store_answers() -> None:
    chance = random.Random(7)
    for _ in range(300):
        rooms = {name: chance.randint(1, 4) for name in "abc"}
        plan, taken, left, claims = ClaimRound(["a", "b", "c", "free"], dict(rooms)), [], 20, 0
        while left and plan.queues:
            count = plan.most(left)
            answer = [chance.choice(plan.queues) for _ in range(count)]
            taken, left, claims = taken + answer, left - count, claims + 1
            plan.claimed(answer)
        assert all(taken.count(name) <= room for name, room in rooms.items())
        assert len(taken) == 20  # the queue without a bound fills the lane
        assert claims <= sum(rooms.values()) + len(rooms) + 1
