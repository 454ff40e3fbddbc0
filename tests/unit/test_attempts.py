"""The attempts that the dashboard draws are those of the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.model.history import HistoryEntry
from dibs.model.task import Event, State
from dibs.server.dashboard.attempts import MAX_DRAWN, attempts_of, timeline_of

START = datetime(2026, 1, 1, tzinfo=UTC)
MOVES = {
    "enqueued": (Event.ENQUEUED, State.PENDING),
    "later": (Event.ENQUEUED, State.SCHEDULED),
    "promoted": (Event.PROMOTED, State.PENDING),
    "claimed": (Event.CLAIMED, State.CLAIMED),
    "asked": (Event.CANCEL_REQUESTED, State.CLAIMED),
    "failed": (Event.FAILED, State.SCHEDULED),
    "dead": (Event.FAILED, State.FAILED),
    "lost": (Event.RECOVERED, State.PENDING),
    "released": (Event.RELEASED, State.PENDING),
    "completed": (Event.COMPLETED, State.COMPLETED),
    "retried": (Event.RETRIED, State.PENDING),
    "pruned": (Event.PRUNED, State.COMPLETED),
}


def past(*names: str, every: float = 1.0) -> list[HistoryEntry]:
    """These things happened, one each second."""
    entries, state, token = [], None, 0
    for number, name in enumerate(names):
        event, to_state = MOVES[name]
        token += event is Event.CLAIMED
        detail: dict[str, Any] | None = {"type": "E", "message": "broken"} if event is Event.FAILED else None
        at = START + timedelta(seconds=number * every)
        worker = "w-1" if State.CLAIMED in (state, to_state) else None
        entries.append(HistoryEntry(number, 1, event, state, to_state, worker, token, None, at, detail))
        state = to_state
    return entries


def attempts_in(*names: str, now: float = 100.0) -> list[tuple[int, str | None, float, float | None]]:
    found = attempts_of(past(*names), START + timedelta(seconds=now))
    return [(each.number, each.outcome, each.waited, each.run and each.run.seconds) for each in found]


def test_each_claim_is_an_attempt_with_the_wait_before_it() -> None:
    names = ("enqueued", "claimed", "failed", "promoted", "claimed", "completed")
    assert attempts_in(*names) == [(1, "failed", 1.0, 1.0), (2, "completed", 1.0, 1.0)]


def test_a_running_attempt_has_no_outcome_and_lasts_until_now() -> None:
    assert attempts_in("enqueued", "claimed", now=10) == [(1, None, 1.0, 9.0)]
    assert attempts_in("enqueued", "claimed", "asked", now=10) == [(1, None, 1.0, 9.0)]


@pytest.mark.parametrize("missing", range(1, 7))
def test_attempts_keep_their_numbers_where_the_beginning_of_the_history_is_missing(missing: int) -> None:
    names = ("enqueued", "claimed", "failed", "promoted", "claimed", "asked", "dead", "retried", "claimed", "completed")
    left = attempts_of(past(*names)[missing:], START + timedelta(seconds=100))
    assert left[-1].number == 3
    assert [each.number for each in left if each.token] == [each.token for each in left if each.token]


def test_a_task_that_waits_for_its_next_attempt_has_an_attempt_without_a_run() -> None:
    assert attempts_in("enqueued", "claimed", "failed", now=10) == [(1, "failed", 1.0, 1.0), (2, None, 0.0, None)]
    assert attempts_in("later", now=10) == [(1, None, 0.0, None)]


@pytest.mark.parametrize("name", ["lost", "released"])
def test_a_recovered_or_released_claim_is_an_attempt_as_well(name: str) -> None:
    outcome = {"lost": "recovered", "released": "released"}[name]
    assert attempts_in("enqueued", "claimed", name, "claimed", "completed")[0] == (1, outcome, 1.0, 1.0)


def test_the_attempts_of_a_retried_task_continue_their_numbers() -> None:
    numbers = [
        each[0] for each in attempts_in("enqueued", "claimed", "dead", "retried", "claimed", "completed", "pruned")
    ]
    assert numbers == [1, 2]


def test_each_attempt_has_its_own_error() -> None:
    attempts = attempts_of(past("enqueued", "claimed", "failed", "promoted", "claimed", "completed"), START)
    assert [each.error for each in attempts] == [{"type": "E", "message": "broken"}, None]


def test_the_bars_of_a_timeline_follow_each_other_and_stay_inside() -> None:
    line = timeline_of(attempts_of(past("enqueued", "claimed", "failed", "promoted", "claimed", "completed"), START))
    assert line is not None
    assert line.seconds == 5.0
    bars = [(bar.kind, bar.x, bar.width) for _, bars in line.rows for bar in bars]
    assert bars == [
        ("pending", "0.000%", "20.000%"),
        ("failed", "20.000%", "20.000%"),
        ("scheduled", "40.000%", "20.000%"),
        ("pending", "60.000%", "20.000%"),
        ("completed", "80.000%", "20.000%"),
    ]


def test_a_short_bar_is_visible_beside_a_very_long_one() -> None:
    entries = past("enqueued", "claimed", "completed", every=0.001)
    late = [*entries[:1], *(_later(entry) for entry in entries[1:])]
    line = timeline_of(attempts_of(late, START))
    assert line is not None
    [(_, bars)] = line.rows
    assert all(float(bar.width[:-1]) >= 0.5 for bar in bars)
    assert all(float(bar.x[:-1]) + float(bar.width[:-1]) <= 100.001 for bar in bars)


def _later(entry: HistoryEntry) -> HistoryEntry:
    fields = [getattr(entry, name) for name in HistoryEntry.__struct_fields__]
    fields[8] += timedelta(days=365)
    return HistoryEntry(*fields)


def test_the_delay_before_the_first_attempt_is_not_drawn() -> None:
    line = timeline_of(attempts_of(past("later", "promoted", "claimed", "completed"), START))
    assert line is not None
    assert [bar.kind for _, bars in line.rows for bar in bars] == ["pending", "completed"]


def test_of_very_many_attempts_only_the_last_are_drawn() -> None:
    names = ["enqueued", *(["claimed", "lost"] * 500)]
    line = timeline_of(attempts_of(past(*names), START))
    assert line is not None
    assert (len(line.rows), line.left_out) == (MAX_DRAWN, 501 - MAX_DRAWN)


def test_a_task_without_an_attempt_has_no_timeline() -> None:
    assert timeline_of(attempts_of(past("enqueued"), START)) is None
    assert timeline_of(attempts_of([], START)) is None
