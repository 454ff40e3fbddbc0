"""Queue depths: a count plus later transitions, seen with and without a limit of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dibs.model.checks import from_micros
from dibs.model.history import HistoryPosition
from dibs.model.registry import WorkerInfo, WorkerState
from dibs.model.statistics import TaskCount, TaskCounts, TransitionCount, WorkersAndPauses
from dibs.model.task import Event, State
from dibs.server.statistics.queue_depths import QueueDepths, WorkersByQueue, flow_of
from dibs.server.statistics.trends import MAX_QUEUES, full_sample

SECOND = 1_000_000


def counted(*counts: tuple[str, State, int, float | None], at: int = 100 * SECOND) -> QueueDepths:
    board = QueueDepths()
    rows = [TaskCount(queue, "resize", state, count, age) for queue, state, count, age in counts]
    board.count(TaskCounts(at, HistoryPosition(), rows))
    return board


def claimed(queue: str | None, count: int = 1) -> TransitionCount:
    return TransitionCount(queue, Event.CLAIMED, State.PENDING, State.CLAIMED, count)


def enqueued(queue: str | None, count: int = 1) -> TransitionCount:
    return TransitionCount(queue, Event.ENQUEUED, None, State.PENDING, count)


def pruned(queue: str | None, count: int = 1) -> TransitionCount:
    return TransitionCount(queue, Event.PRUNED, State.COMPLETED, State.COMPLETED, count)


def test_transitions_are_added_to_the_counts_of_their_queue() -> None:
    board = counted(("mail", State.PENDING, 3, 1.0), ("images", State.PENDING, 1, 1.0))
    board.move([claimed("mail", 2), enqueued("images", 4)], 101 * SECOND)
    assert (board.of(["mail"])["pending"], board.of(["mail"])["claimed"]) == (1, 2)
    assert board.of()["pending"] == 6


def test_tasks_that_move_to_another_queue_are_counted_there() -> None:
    board = counted(("mail", State.PENDING, 3, 9.0))
    before = board.version(["mail"]), board.version(["images"])
    board.move([TransitionCount("images", Event.CHANGED, State.PENDING, State.SCHEDULED, 2, "mail")], 101 * SECOND)
    assert (board.of(["mail"])["pending"], board.of(["images"])["scheduled"], board.of()["pending"]) == (1, 2, 1)
    assert board.version(["mail"]) > before[0]
    assert board.version(["images"]) > before[1]
    board.move([TransitionCount("images", Event.CHANGED, State.PENDING, State.PENDING, 1, "mail")], 102 * SECOND)
    assert (board.oldest(["mail"]), board.oldest(["images"])) == (None, 0.0)


def test_pruned_tasks_are_subtracted_from_the_total_at_once_and_never_make_it_negative() -> None:
    board = counted(("mail", State.COMPLETED, 3, None))
    board.move([pruned(None, 2)], 101 * SECOND)
    assert board.of()["completed"] == 1
    assert board.of(["mail"])["completed"] == 3
    board.move([pruned(None, 2)], 102 * SECOND)
    assert board.of()["completed"] == 0


def test_the_age_of_the_oldest_pending_task_grows_while_no_task_is_claimed() -> None:
    board = counted(("mail", State.PENDING, 2, 30.0))
    board.move([enqueued("mail")], 110 * SECOND)
    assert board.oldest() == 40.0
    board.move([claimed("mail")], 111 * SECOND)
    assert board.oldest() == 30.0


def test_a_queue_that_was_empty_in_between_has_no_old_task() -> None:
    board = counted(("mail", State.PENDING, 1, 30.0))
    board.move([claimed("mail")], 105 * SECOND)
    assert board.oldest() is None
    board.move([enqueued("mail")], 110 * SECOND)
    assert board.oldest() == 0.0
    board.move([], 112 * SECOND)
    assert board.oldest(["mail"]) == 2.0


def test_a_version_changes_with_the_visible_queues_only() -> None:
    board = counted(("mail", State.PENDING, 1, 1.0), ("images", State.PENDING, 1, 1.0))
    mail, both = board.version(["mail"]), board.version()
    board.move([enqueued("images")], 101 * SECOND)
    assert board.version(["mail"]) == mail
    assert board.version() != both


def test_a_count_with_the_same_figures_does_not_change_the_version() -> None:
    board = counted(("mail", State.PENDING, 1, 1.0))
    before = board.version()
    board.count(TaskCounts(200 * SECOND, HistoryPosition(), [TaskCount("mail", "other", State.PENDING, 1, 1.0)]))
    assert board.version() == before


def test_failed_attempts_and_failed_tasks_are_counted_separately() -> None:
    retried = TransitionCount("mail", Event.FAILED, State.CLAIMED, State.SCHEDULED, 3)
    died = TransitionCount("mail", Event.FAILED, State.CLAIMED, State.FAILED, 2)
    lost = TransitionCount("mail", Event.RECOVERED, State.CLAIMED, State.FAILED, 1)
    gone = TransitionCount("mail", Event.PRUNED, State.FAILED, State.FAILED, 9)
    assert flow_of([retried, died, lost, gone]) == {"mail": [0, 0, 0, 5, 3]}


def test_a_sample_names_the_busiest_queues_and_counts_all() -> None:
    board = counted(*((f"queue-{n:03}", State.PENDING, n, 1.0) for n in range(1, MAX_QUEUES + 51)))
    sample = full_sample(board, {}, 60.0, None)
    assert len(sample.queues) == MAX_QUEUES
    assert "queue-150" in sample.queues
    assert sample.whole.depth[2] == sum(range(1, MAX_QUEUES + 51))


def worker(name: str, queues: list[str] | None, *, state: WorkerState = WorkerState.ACTIVE, at: int = 0) -> WorkerInfo:
    moment = from_micros(at)
    return WorkerInfo(name, "one", state, queues, None, {}, moment, moment, None, [])


def present(*workers: WorkerInfo, paused: Sequence[str] = ()) -> WorkersAndPauses:
    return WorkersAndPauses(list(workers), {name: from_micros(0) for name in paused})


def test_a_worker_counts_for_each_of_its_queues_once() -> None:
    board = QueueDepths()
    stale = worker("d", ["mail"], state=WorkerState.STALE)
    board.update_workers(
        present(worker("a", None), worker("b", ["mail", "mail"]), worker("c", ["mail", "images"]), stale)
    )
    assert [board.active_workers.serving(name) for name in ("mail", "images", "unheard of")] == [3, 2, 1]
    assert len(board.active_workers.of(["mail", "images"])) == 3
    assert len(board.active_workers.of()) == 3


def test_workers_of_other_queues_are_hidden() -> None:
    board = QueueDepths()
    board.update_workers(present(worker("a", ["mail"], at=1), worker("b", ["images"], at=2)))
    mail, images, both = board.version(["mail"]), board.version(["images"]), board.version()
    board.update_workers(present(worker("a", ["mail"], at=1), worker("b", ["images"], state=WorkerState.STALE, at=3)))
    assert board.version(["mail"]) == mail
    assert board.version(["images"]) != images
    assert board.version() != both
    assert [board.heartbeat(queues) for queues in (["mail"], ["images"], None)] == [*map(from_micros, (1, 3, 3))]


def test_a_worker_that_changes_its_queues_changes_the_version_of_those_queues() -> None:
    board = QueueDepths()
    board.update_workers(present(worker("a", ["mail"])))
    versions = [board.version(["mail"])]
    for roll in (
        present(worker("a", ["images"])),
        present(worker("a", None)),
        present(worker("a", None), paused=["mail"]),
    ):
        board.update_workers(roll)
        versions.append(board.version(["mail"]))
    assert versions == sorted(set(versions))
    board.update_workers(present(worker("a", None), paused=["mail", "images"]))
    assert board.version(["mail"]) == versions[-1]


class Walked(dict[Any, Any]):
    """Counts how often all items are read."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


class Called(list[WorkerInfo]):
    """The same of a list."""

    walks = 0

    def __iter__(self) -> Iterator[WorkerInfo]:
        self.walks += 1
        return super().__iter__()


def test_one_of_many_queues_is_found_without_reading_the_others() -> None:
    board = counted(*((f"queue-{n}", State.PENDING, n + 1, 1.0) for n in range(300)))
    workers = Called(worker(f"worker-{n}", [f"queue-{n}"]) for n in range(300))
    board.update_workers(WorkersAndPauses(workers, {}))
    board.active_workers = WorkersByQueue(workers)
    board.depth = depth = Walked(board.depth)
    workers.walks = 0
    for n in range(300):
        name = f"queue-{n}"
        assert board.of([name])["pending"] == n + 1
        assert board.oldest([name]) == 1.0
        assert board.active_workers.serving(name) == 1
    assert depth.walks == 0
    assert workers.walks <= 2


def test_the_total_is_computed_once_for_each_change() -> None:
    board = counted(("mail", State.PENDING, 3, 1.0), ("images", State.PENDING, 1, 1.0))
    board.depth = depth = Walked(board.depth)
    assert [(board.of()["pending"], board.oldest()) for _ in range(5)] == [(4, 1.0)] * 5
    assert depth.walks == 2
    board.move([enqueued("mail")], 101 * SECOND)
    assert (board.of()["pending"], board.oldest()) == (5, 2.0)
