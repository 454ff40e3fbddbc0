"""The board: a count and what moved since, as anybody may see it."""

from __future__ import annotations

from dibs.server.board import Board, flow_of
from dibs.server.trend import NAMED, full_sample
from dibs.store.operations.sampling import Count, Move
from dibs.store.operations.tallying import Position, Tally
from dibs.task import Event, State

SECOND = 1_000_000


def counted(*counts: tuple[str, State, int, float | None], at: int = 100 * SECOND) -> Board:
    board = Board()
    rows = [Count(queue, "resize", state, count, age) for queue, state, count, age in counts]
    board.count(Tally(at, Position(), rows))
    return board


def claimed(queue: str | None, count: int = 1) -> Move:
    return Move(queue, Event.CLAIMED, State.PENDING, State.CLAIMED, count)


def enqueued(queue: str | None, count: int = 1) -> Move:
    return Move(queue, Event.ENQUEUED, None, State.PENDING, count)


def pruned(queue: str | None, count: int = 1) -> Move:
    return Move(queue, Event.PRUNED, State.COMPLETED, State.COMPLETED, count)


def test_moves_are_added_to_the_queue_they_were_in() -> None:
    board = counted(("mail", State.PENDING, 3, 1.0), ("images", State.PENDING, 1, 1.0))
    board.move([claimed("mail", 2), enqueued("images", 4)], 101 * SECOND)
    assert (board.of(["mail"])["pending"], board.of(["mail"])["claimed"]) == (1, 2)
    assert board.of()["pending"] == 6


def test_what_was_pruned_is_missing_from_the_whole_at_once_and_never_makes_it_negative() -> None:
    board = counted(("mail", State.COMPLETED, 3, None))
    board.move([pruned(None, 2)], 101 * SECOND)
    assert board.of()["completed"] == 1
    assert board.of(["mail"])["completed"] == 3
    board.move([pruned(None, 2)], 102 * SECOND)
    assert board.of()["completed"] == 0


def test_the_oldest_grows_older_while_nobody_claims() -> None:
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


def test_a_version_is_told_by_what_happens_in_the_queues_that_one_sees() -> None:
    board = counted(("mail", State.PENDING, 1, 1.0), ("images", State.PENDING, 1, 1.0))
    mail, both = board.version(["mail"]), board.version()
    board.move([enqueued("images")], 101 * SECOND)
    assert board.version(["mail"]) == mail
    assert board.version() != both


def test_a_count_that_says_the_same_changes_nothing() -> None:
    board = counted(("mail", State.PENDING, 1, 1.0))
    before = board.version()
    board.count(Tally(200 * SECOND, Position(), [Count("mail", "other", State.PENDING, 1, 1.0)]))
    assert board.version() == before


def test_attempts_that_failed_and_tasks_that_died_are_counted_apart() -> None:
    retried = Move("mail", Event.FAILED, State.CLAIMED, State.SCHEDULED, 3)
    died = Move("mail", Event.FAILED, State.CLAIMED, State.FAILED, 2)
    lost = Move("mail", Event.RECOVERED, State.CLAIMED, State.FAILED, 1)
    gone = Move("mail", Event.PRUNED, State.FAILED, State.FAILED, 9)
    assert flow_of([retried, died, lost, gone]) == {"mail": [0, 0, 0, 5, 3]}


def test_a_sample_names_the_busiest_queues_and_counts_all() -> None:
    board = counted(*((f"queue-{n:03}", State.PENDING, n, 1.0) for n in range(1, NAMED + 51)))
    sample = full_sample(board, {}, 60.0, None)
    assert len(sample.queues) == NAMED
    assert "queue-150" in sample.queues
    assert sample.whole.depth[2] == sum(range(1, NAMED + 51))
