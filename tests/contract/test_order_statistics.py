"""Random and weighted order: each task is claimed as often as its weight demands.

One client, both engines. Every random number comes from a seeded generator. If a plan or a library changes the order
of the numbers, the bounds are still wide enough that a fair order exceeds them with a probability of 1 in 10^8.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import permutations
from typing import Any

import psycopg
import pytest

import dibs
from dibs import Claim, Completed, NewTask, Released
from tests.helpers.probability import NEVER, chance_of_count, chance_of_misfit

WEIGHTS = {0: 1, 1: 2, 4: 5, 9: 10, -3: 1}
"""priority -> weight"""
SHARES = [weight / sum(WEIGHTS.values()) for weight in WEIGHTS.values()]


class Lottery:
    """Draws from many equal sets of tasks, each in a queue of its own, so that a round of draws ends together."""

    def __init__(self, app: dibs.Dibs, priorities: list[int], sets: int = 50, lines: int = 1) -> None:
        self.app = app
        self.queues = [f"set-{n}" for n in range(sets)]
        self._set = [
            NewTask(f"type-{n % lines}", {"place": n}, queue=queue, priority=priority)
            for queue in self.queues
            for n, priority in enumerate(priorities)
        ]

    def fill(self) -> None:
        self.app.enqueue_many(self._set)

    def draw(self, order: str, count: int = 1, **options: Any) -> list[list[Claim]]:
        return [self.app.claim_many("worker-1", count, order=order, queues=[queue], **options) for queue in self.queues]

    def give_back(self, draws: list[list[Claim]]) -> None:
        self.app.finish([(claim, Released()) for claims in draws for claim in claims])

    def clear(self, draws: list[list[Claim]]) -> None:
        rest = self.app.claim_many("worker-1", 1000, order="fifo")
        self.app.finish([(claim, Completed()) for claims in [*draws, rest] for claim in claims])

    def repeat(self, rounds: int, order: str) -> Counter[int]:
        """Draw one and give it back, again and again; how often each place was drawn."""
        self.fill()
        places: Counter[int] = Counter()
        for _ in range(rounds):
            draws = self.draw(order)
            places.update(claims[0].task.params["place"] for claims in draws)
            self.give_back(draws)
        return places

    def pairs_of_new_sets(self, rounds: int, order: str) -> Counter[tuple[int, ...]]:
        """Draw two, clear the rest away, enqueue new sets, again and again; how often each pair was drawn."""
        pairs: Counter[tuple[int, ...]] = Counter()
        for _ in range(rounds):
            self.fill()
            draws = self.draw(order, 2)
            pairs.update(tuple(claim.task.params["place"] for claim in claims) for claims in draws)
            self.clear(draws)
        return pairs


@pytest.fixture
def make_lottery(engine: str, url: str) -> Iterator[Callable[..., Lottery]]:
    """Makes a lottery on one connection, with every generator of random numbers seeded."""
    with dibs.Dibs(url) as app, closing(connect(engine, url)) as connection:
        app.migrate()

        def make(priorities: list[int], **options: int) -> Lottery:
            random.seed(20251112)
            if engine == "postgres":
                connection.execute("SELECT setseed(0.5)")
            return Lottery(app.on(connection), priorities, **options)

        yield make


def connect(engine: str, url: str) -> Any:
    if engine == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection
    return psycopg.connect(url, autocommit=True, options="-c synchronous_commit=off")


def test_random_gives_each_of_ten_tasks_the_same_chance_each_time(make_lottery: Callable[..., Lottery]) -> None:
    places = make_lottery([0, 9, -3, 0, 5] * 2, sets=1, lines=3).repeat(2000, "random")
    assert chance_of_misfit([places[n] for n in range(10)], [0.1] * 10) > NEVER, places


def test_random_gives_each_of_many_tasks_the_same_chance_each_time(make_lottery: Callable[..., Lottery]) -> None:
    tasks = 100
    places = make_lottery([0] * tasks, sets=1).repeat(3000, "random")
    assert chance_of_misfit([places[n] for n in range(tasks)], [1 / tasks] * tasks) > NEVER, places


def test_random_draws_every_pair_of_a_new_set_with_the_same_chance(make_lottery: Callable[..., Lottery]) -> None:
    pairs = make_lottery([0, 9, -3, 0], lines=2).pairs_of_new_sets(40, "random")
    possible = list(permutations(range(4), 2))
    assert pairs.total() == 2000
    assert chance_of_misfit([pairs[pair] for pair in possible], [1 / 12] * 12) > NEVER, pairs


def test_weighted_draws_each_task_in_proportion_to_its_weight(
    make_lottery: Callable[..., Lottery], engine: str
) -> None:
    draws = {"sqlite": 10_000, "postgres": 4_000}[engine]
    places = make_lottery(list(WEIGHTS)).repeat(draws // 50, "weighted")
    assert places.total() == draws
    assert_in_proportion(places, draws)
    if engine == "sqlite":  # where so many draws cost little, the seed is all there is to chance
        assert all(abs(places[n] / draws / share - 1) < 0.1 for n, share in enumerate(SHARES)), places


def test_weighted_draws_pairs_of_a_new_set_without_replacement(make_lottery: Callable[..., Lottery]) -> None:
    pairs = make_lottery(list(WEIGHTS), lines=2).pairs_of_new_sets(50, "weighted")
    possible = list(permutations(range(5), 2))
    assert pairs.total() == 2500
    chances = [SHARES[first] * SHARES[second] / (1 - SHARES[first]) for first, second in possible]
    assert chance_of_misfit([pairs[pair] for pair in possible], chances) > NEVER, pairs


def test_weighted_stays_fair_if_other_claims_take_from_single_partitions_in_between(
    make_lottery: Callable[..., Lottery],
) -> None:
    lottery = make_lottery(list(WEIGHTS), lines=5)
    lottery.fill()
    places: Counter[int] = Counter()
    for n in range(40):
        lottery.give_back(lottery.draw("weighted", types=[f"type-{n % 5}", f"type-{n % 3}"]))
        lottery.give_back(lottery.draw("fifo"))
        draws = lottery.draw("weighted")
        places.update(claims[0].task.params["place"] for claims in draws)
        lottery.give_back(draws)
    assert_in_proportion(places, 2000)


def assert_in_proportion(places: Counter[int], draws: int) -> None:
    """Within 10 % of its probability, or as near as chance allows; and all of them together."""
    for n, share in enumerate(SHARES):
        near = abs(places[n] / draws / share - 1) < 0.1
        assert near or chance_of_count(places[n], draws, share) > NEVER, (n, share, places)
    assert chance_of_misfit([places[n] for n in range(len(SHARES))], SHARES) > NEVER, places
