"""The history follower moves across visible ids in order, and stops before a gap until nobody can fill it any more."""

from __future__ import annotations

from dibs.history_follower import HistoryFollower, before_first_gap


def test_the_position_moves_across_ids_without_a_gap() -> None:
    follower = HistoryFollower(4)
    assert follower.advance([5, 6, 7]) == 3
    assert (follower.position, follower.stopped) == (7, False)


def test_the_position_stops_before_a_gap_until_the_gap_is_filled() -> None:
    follower = HistoryFollower(4)
    assert follower.advance([5, 7, 8]) == 1
    assert (follower.position, follower.stopped) == (5, True)
    assert follower.advance([6, 7, 8]) == 3
    assert (follower.position, follower.stopped) == (8, False)


def test_a_gap_without_writers_is_passed_from_the_next_read_on() -> None:
    follower = HistoryFollower(4)
    assert follower.advance([6, 7]) == 0
    assert follower.note_writers(7, [])
    assert follower.advance([6, 7, 9]) == 2  # the gap before 9 was not visible when the writers were read


def test_a_gap_is_passed_when_all_writers_that_were_seen_with_it_have_ended() -> None:
    follower = HistoryFollower(4)
    assert follower.advance([6]) == 0
    assert not follower.note_writers(6, ["a", "b"])
    assert not follower.note_writers(6, ["b", "c"])
    assert follower.advance([6]) == 0
    assert follower.note_writers(9, ["c", "d"])  # these began later, and have ids behind 6
    assert follower.advance([6, 9]) == 1


def test_the_writers_of_one_gap_do_not_count_for_the_next_one() -> None:
    follower = HistoryFollower(4)
    follower.advance([6])
    assert follower.note_writers(6, [])
    assert follower.advance([6, 8]) == 1
    assert not follower.note_writers(8, ["a"])
    assert follower.note_writers(8, ["b"])


def test_gaps_before_a_given_id_are_not_waited_for() -> None:
    follower = HistoryFollower(4)
    follower.skip_to(9)
    assert follower.advance([6, 9, 11]) == 2
    assert follower.position == 9


def test_the_last_id_before_the_first_gap() -> None:
    assert before_first_gap(4, [5, 6, 8]) == 6
    assert before_first_gap(4, [6]) == 4
    assert before_first_gap(4, [5, 6]) == 6
    assert before_first_gap(4, []) == 4
