"""A count plus the later transitions is exact, also with concurrent writers."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

import dibs
from dibs.model.history import HistoryPosition
from dibs.model.statistics import TaskCount, TaskCounts, TransitionCount
from dibs.model.task import Event
from dibs.store.contract import DatabaseStore
from dibs.store.open import open_store
from tests.helpers.retention import keep

ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"], indirect=True)
Depth = Counter[tuple[str, str]]


@pytest.fixture
def store(url: str) -> Iterator[DatabaseStore]:
    store: Any = open_store(url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url) as app:
        yield app


def depth(counts: Sequence[TaskCount]) -> Depth:
    found: Depth = Counter()
    for each in counts:
        found[each.queue, each.state] += each.count
    return +found


def apply(found: Depth, moves: Sequence[TransitionCount]) -> None:
    for move in moves:
        queue = str(move.queue)
        if move.from_state is not None:
            found[move.from_queue or queue, move.from_state] -= move.count
        if move.event != Event.PRUNED:
            found[queue, move.to_state] += move.count


class Ledger:
    """What a watcher knows: a tally, and what moved since."""

    def __init__(self, store: DatabaseStore, tally: TaskCounts) -> None:
        self._store = store
        self.depth, self.position = depth(tally.counts), tally.position

    def go_on(self) -> None:
        [progress] = self._store.run(self._store.statistics.changes_since([self.position])).progress
        assert progress.whole
        apply(self.depth, progress.moves)
        self.position = progress.position


def truth(store: DatabaseStore) -> Depth:
    return depth(store.run(store.statistics.count_tasks()).counts)


def test_transitions_since_a_count_are_added_to_the_count(store: DatabaseStore, app: dibs.Dibs) -> None:
    app.enqueue("before")
    ledger = Ledger(store, store.run(store.statistics.count_tasks()))
    app.enqueue("later", queue="mail")
    app.complete(app.claim("worker-1"))  # type: ignore[arg-type]
    ledger.go_on()
    assert +ledger.depth == truth(store) != Counter()
    assert store.run(store.statistics.changes_since([ledger.position])).progress[0].moves == []


def test_a_task_that_moves_to_other_queues_is_counted_where_it_was_and_where_it_is(
    store: DatabaseStore, app: dibs.Dibs
) -> None:
    before = Ledger(store, store.run(store.statistics.count_tasks()))
    task, other = app.enqueue("resize", queue="a"), app.enqueue("resize", queue="a")
    between = Ledger(store, store.run(store.statistics.count_tasks()))
    app.change(task.id, queue="b", delay=60)
    app.change(task.id, priority=5)
    later = Ledger(store, store.run(store.statistics.count_tasks()))
    app.change(task.id, queue="c", delay=0)
    app.complete(app.claim("worker-1", queues=["c"]))  # type: ignore[arg-type]
    app.change(other.id, priority=5)
    for ledger in (before, between, later):
        ledger.go_on()
        assert +ledger.depth == truth(store) == Counter({("c", "completed"): 1, ("a", "pending"): 1})
        assert -ledger.depth == Counter()


def test_a_move_is_counted_one_way_whenever_it_is_read(store: DatabaseStore, app: dibs.Dibs) -> None:
    ledger = Ledger(store, store.run(store.statistics.count_tasks()))
    task = app.enqueue("resize", queue="a")
    ledger.go_on()
    assert ledger.depth == Counter({("a", "pending"): 1})
    app.change(task.id, queue="b")
    ledger.go_on()
    assert +ledger.depth == Counter({("b", "pending"): 1})


def test_two_positions_are_followed_to_the_same_history_entry(store: DatabaseStore, app: dibs.Dibs) -> None:
    first = store.run(store.statistics.count_tasks())
    app.enqueue("one")
    second = store.run(store.statistics.count_tasks())
    app.enqueue("two")
    old, new = store.run(store.statistics.changes_since([first.position, second.position])).progress
    assert sum(move.count for move in old.moves) == 2
    assert sum(move.count for move in new.moves) == 1
    assert old.position.last == new.position.last


def test_a_position_that_is_too_far_behind_is_reported(store: DatabaseStore, app: dibs.Dibs) -> None:
    app.enqueue_many([dibs.NewTask(type="resize") for _ in range(10)])
    [progress] = store.run(store.statistics.changes_since([HistoryPosition()], limit=10)).progress
    assert not progress.whole
    [progress] = store.run(store.statistics.changes_since([HistoryPosition()], limit=11)).progress
    assert progress.whole


def test_a_pruned_task_is_subtracted_from_the_count(store: DatabaseStore, app: dibs.Dibs) -> None:
    app.enqueue("resize")
    app.complete(app.claim("worker-1"))  # type: ignore[arg-type]
    ledger = Ledger(store, store.run(store.statistics.count_tasks()))
    keep(app, completed=0)
    store.run(store.upkeep.prune())
    ledger.go_on()
    assert sum(ledger.depth.values()) == 0


@ON_POSTGRES
def test_a_history_entry_committed_after_later_ids_is_not_missed(
    url: str, store: DatabaseStore, app: dibs.Dibs
) -> None:
    with psycopg.connect(url) as slow:
        app.on(slow).enqueue("slow")
        app.enqueue("quick")
        ledger = Ledger(store, store.run(store.statistics.count_tasks()))
        assert ledger.position.gaps
        app.enqueue("quick")
        ledger.go_on()
        assert sum(ledger.depth.values()) == 2
        slow.commit()
    ledger.go_on()
    ledger.go_on()
    assert +ledger.depth == truth(store)
    assert ledger.position.gaps == ()


@ON_POSTGRES
def test_a_gap_that_is_filled_in_part_leaves_the_rest_of_the_gap(
    url: str, store: DatabaseStore, app: dibs.Dibs
) -> None:
    with psycopg.connect(url) as first, psycopg.connect(url) as second, psycopg.connect(url) as third:
        for each, count in ((first, 3), (second, 2), (third, 4)):
            app.on(each).enqueue_many([dibs.NewTask(type="slow") for _ in range(count)])
        app.enqueue("quick")
        ledger = Ledger(store, store.run(store.statistics.count_tasks()))
        for each, total in ((second, 3), (third, 7), (first, 10)):
            each.commit()
            ledger.go_on()
            assert sum(ledger.depth.values()) == total
    assert ledger.position.gaps == ()


@ON_POSTGRES
def test_a_rolled_back_transition_never_counts(url: str, store: DatabaseStore, app: dibs.Dibs) -> None:
    with psycopg.connect(url) as regretful:
        app.on(regretful).enqueue("never")
        app.enqueue("quick")
        ledger = Ledger(store, store.run(store.statistics.count_tasks()))
        regretful.rollback()
    ledger.go_on()
    assert +ledger.depth == truth(store)


def test_counts_plus_transitions_are_exact_during_concurrent_writes(
    url: str, store: DatabaseStore, app: dibs.Dibs
) -> None:
    """A reader that begins at any time during concurrent writes, and reads at any rate, has exact counts in the end."""
    stop = threading.Event()
    writers = [threading.Thread(target=make_turmoil, args=(url, seed, stop)) for seed in range(4)]
    for writer in writers:
        writer.start()
    ledgers: list[Ledger] = []
    try:
        while len(ledgers) < 12 or ledgers[0].position.last < 500:
            if len(ledgers) < 12:
                ledgers.append(Ledger(store, store.run(store.statistics.count_tasks())))
            for ledger in ledgers:
                ledger.go_on()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    real = truth(store)
    assert sum(real.values()) > 50
    for ledger in ledgers:
        ledger.go_on()
        assert +ledger.depth == real, ledger.position
        assert -ledger.depth == Counter()


def make_turmoil(url: str, seed: int, stop: threading.Event) -> None:
    chance = random.Random(seed)
    with dibs.Dibs(url) as app:
        while not stop.is_set():
            tasks = [dibs.NewTask(type="resize", queue=f"queue-{n % 3}") for n in range(chance.randint(1, 20))]
            if url.startswith("postgres"):
                with psycopg.connect(url) as slow:
                    app.on(slow).enqueue_many(tasks)
                    finish_some(app, chance)
                    slow.rollback() if chance.random() < 0.2 else slow.commit()
            else:
                app.enqueue_many(tasks)
                finish_some(app, chance)


def finish_some(app: dibs.Dibs, chance: random.Random) -> None:
    for claim in app.claim_many(f"worker-{chance.randint(1, 9)}", chance.randint(1, 15)):
        if chance.random() < 0.3:
            app.fail(claim, "no")
        else:
            app.complete(claim)
    for task in app.list_tasks(state="pending", limit=10):
        if chance.random() < 0.5:
            with contextlib.suppress(dibs.WrongState):  # claimed meanwhile
                app.change(task.id, queue=f"queue-{chance.randint(0, 3)}", delay=chance.choice([None, 0, 60]))
