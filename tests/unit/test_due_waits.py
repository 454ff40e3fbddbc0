"""A claimer that finds tasks waits exactly until the next one is due; a claimer that finds none does not spin."""

from __future__ import annotations

import pytest

from dibs.procedures import COARSE_WAIT, EXACT_WAITS, DueWaits


def in_vain(waits: DueWaits, times: int = 1) -> None:
    """Wait that often for a task that another claimer gets."""
    for _ in range(times):
        waits.seconds(0.01, 5.0)
        waits.claimed(False)


def test_a_wait_ends_when_a_task_becomes_due() -> None:
    assert DueWaits().seconds(0.0123, 5.0) == 0.0123


def test_a_wait_without_a_due_time_has_the_length_of_a_poll() -> None:
    assert DueWaits().seconds(None, 5.0) == 5.0
    assert DueWaits().seconds(60.0, 5.0) == 5.0


def test_what_is_overdue_and_cannot_be_claimed_does_not_make_a_claimer_spin() -> None:
    assert DueWaits().seconds(0.0, 5.0) == COARSE_WAIT


def test_a_claimer_that_waits_in_vain_again_and_again_does_not_poll_at_every_due_time() -> None:
    waits = DueWaits()
    in_vain(waits, EXACT_WAITS)
    assert waits.seconds(0.001, 5.0) == COARSE_WAIT
    assert waits.seconds(1.0, 5.0) == 1.0


def test_a_claimer_that_finds_a_task_waits_exactly_again() -> None:
    waits = DueWaits()
    in_vain(waits, 10)
    waits.claimed(True)
    assert waits.seconds(0.0123, 5.0) == 0.0123


@pytest.mark.parametrize("found", [True, False])
def test_claims_after_wake_ups_are_no_waits_in_vain(found: bool) -> None:
    waits = DueWaits()
    for _ in range(10):
        waits.seconds(0.01, 5.0)
        waits.woken()
        waits.claimed(False)
        waits.claimed(found)
    assert waits.seconds(0.0123, 5.0) == 0.0123
