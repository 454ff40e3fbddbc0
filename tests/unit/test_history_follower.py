"""The history follower moves across visible ids in order, stops before a gap, and gives a gap up after its timeout."""

from __future__ import annotations

import time

import pytest

from dibs.history_follower import HistoryFollower, before_first_gap


def test_the_position_moves_across_ids_without_a_gap() -> None:
    follower = HistoryFollower(4, gap_timeout=60)
    assert follower.advance([5, 6, 7], newest=7) == 3
    assert follower.position == 7


def test_the_position_stops_before_a_gap_until_the_gap_is_filled() -> None:
    follower = HistoryFollower(4, gap_timeout=60)
    assert follower.advance([5, 7, 8], newest=8) == 1
    assert follower.position == 5
    assert follower.advance([6, 7, 8], newest=8) == 3
    assert follower.position == 8


def test_a_gap_is_given_up_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    follower = HistoryFollower(4, gap_timeout=2)
    assert follower.advance([6, 7], newest=7) == 0
    now = 101.9
    assert follower.advance([6, 7, 9], newest=9) == 0
    now = 102.0
    assert follower.advance([6, 7, 9], newest=9) == 2  # the gap before 9 is younger
    now = 103.9
    assert follower.advance([9], newest=9) == 1


def test_ids_beyond_the_page_age_with_the_ids_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    follower = HistoryFollower(4, gap_timeout=2)
    assert follower.advance([5, 6], newest=9) == 2
    now = 102.0
    assert follower.advance([7, 9], newest=9) == 2


def test_with_a_single_writer_no_gap_is_waited_for() -> None:
    follower = HistoryFollower(4, gap_timeout=0)
    assert follower.advance([6, 9], newest=9) == 2
    assert follower.position == 9


def test_the_last_id_before_the_first_gap() -> None:
    assert before_first_gap(4, [5, 6, 8]) == 6
    assert before_first_gap(4, [6]) == 4
    assert before_first_gap(4, [5, 6]) == 6
    assert before_first_gap(4, []) == 4
