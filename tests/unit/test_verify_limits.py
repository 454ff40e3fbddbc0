"""The offline checker finds limits that were exceeded, permits that were lost and groups that were starved, and only
those."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dibs import Event, HistoryEntry, State, Task
from dibs.errors import InvalidValue
from dibs.model.limit import NewLimit, QueueSettings, TypeSettings
from dibs.observe.limits_check import LimitPeriod, LimitsRecord
from dibs.observe.verify import VerifyReport, verify
from dibs.observe.violations import Code

NOW = datetime(2025, 11, 12, 10, 30, tzinfo=UTC)


class Run:
    """A history that is written one event at a time, and its tasks."""

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self.tasks: dict[int, Task] = {}
        self.at = NOW

    def enqueue(self, count: int = 1, *limits: str, **options: Any) -> list[int]:
        """New tasks with these limits."""
        ids = [len(self.tasks) + nth for nth in range(1, count + 1)]
        for task_id in ids:
            task = Task(task_id, options.pop("type", "t"), "q", State.PENDING, {}, 0, 0, 3, 0, NOW, NOW)
            self.tasks[task_id] = msgspec.structs.replace(task, limits=list(limits), **options)
            self.note(task_id, Event.ENQUEUED, None, State.PENDING)
        return ids

    def claim(self, *ids: int) -> None:
        for task_id in ids:
            task = self.tasks[task_id]
            self.tasks[task_id] = msgspec.structs.replace(task, token=task.token + 1)
            self.note(task_id, Event.CLAIMED, State.PENDING, State.CLAIMED)

    def complete(self, *ids: int) -> None:
        for task_id in ids:
            self.note(task_id, Event.COMPLETED, State.CLAIMED, State.COMPLETED)

    def recover(self, task_id: int) -> None:
        self.note(task_id, Event.RECOVERED, State.CLAIMED, State.PENDING)

    def run(self, *ids: int) -> None:
        """Claim and complete one after the other."""
        for task_id in ids:
            self.claim(task_id)
            self.complete(task_id)

    def pass_time(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def note(self, task_id: int, event: Event, before: State | None, after: State, detail: Any = None) -> None:
        task = self.tasks[task_id] = msgspec.structs.replace(self.tasks[task_id], state=after)
        worker = "ann" if State.CLAIMED in (before, after) else None
        number = len(self.entries) + 1
        entry = HistoryEntry(number, task_id, event, before, after, worker, task.token, None, self.at, detail)
        self.entries.append(entry)

    def change(self, task_id: int) -> None:
        self.note(task_id, Event.CHANGED, State.PENDING, State.PENDING)

    def verify(self, *limits: NewLimit | LimitPeriod, **record: Any) -> VerifyReport:
        periods = [each if isinstance(each, LimitPeriod) else LimitPeriod(each.name, each) for each in limits]
        given = LimitsRecord(limits=periods, **{"slack": 0.0, **record})
        return verify(self.entries, tasks=self.tasks.values(), limits=given)

    def codes(self, *limits: NewLimit | LimitPeriod, **record: Any) -> list[Code]:
        return [violation.code for violation in self.verify(*limits, **record).violations]


@pytest.fixture
def run() -> Run:
    return Run()


TWO = NewLimit(name="stripe", max=2)
EACH = NewLimit(name="tenant", max=1, per="group")


# Maxima


def test_as_many_claims_at_once_as_the_maximum_are_no_violation(run: Run) -> None:
    one, two, three, four = run.enqueue(4, "stripe")
    run.claim(one, two)
    run.complete(one)
    run.claim(three)
    run.recover(two)
    run.claim(four)
    run.complete(three, four)
    run.run(two)
    assert run.codes(TWO, used={("stripe", None): 0}, drained=True) == []


def test_one_claim_above_the_maximum_is_found_with_its_entry(run: Run) -> None:
    ids = run.enqueue(3, "stripe")
    run.claim(*ids)
    [violation] = run.verify(TWO).violations
    assert (violation.code, violation.task_id, violation.entry_id) == (Code.LIMIT_EXCEEDED, 3, 6)
    assert violation.message == "claim number 3 at the same time of the limit 'stripe', whose maximum is 2"


def test_a_claim_before_the_end_of_another_is_found_though_both_have_ended(run: Run) -> None:
    ids = run.enqueue(3, "stripe")
    run.claim(*ids)
    run.complete(*ids)
    assert run.codes(TWO) == [Code.LIMIT_EXCEEDED]


def test_limits_of_the_queue_and_of_the_type_count_as_those_of_the_task(run: Run) -> None:
    of_queue, of_type = {"q": QueueSettings("q", limits=["stripe"])}, {"t": TypeSettings("t", limits=["stripe"])}
    run.claim(*run.enqueue(3))
    assert run.codes(TWO) == []
    assert run.codes(TWO, queues=of_queue) == [Code.LIMIT_EXCEEDED]
    assert run.codes(TWO, types=of_type) == [Code.LIMIT_EXCEEDED]
    assert run.codes(TWO, types=of_type, queues=of_queue) == [Code.LIMIT_EXCEEDED]


def test_a_limit_per_group_counts_each_group_alone(run: Run) -> None:
    [a], [b] = run.enqueue(1, "tenant", group="a"), run.enqueue(1, "tenant", group="b")
    run.claim(a, b)
    assert run.codes(EACH) == []
    run.claim(*run.enqueue(1, "tenant", group="b"))
    [violation] = run.verify(EACH).violations
    assert violation.code is Code.LIMIT_EXCEEDED
    assert "the limit 'tenant' for the group 'b'" in violation.message


def test_a_limit_that_overlaps_another_is_checked_alone(run: Run) -> None:
    run.claim(*run.enqueue(1, "tenant", "stripe", group="a"), *run.enqueue(2, "stripe"))
    assert run.codes(EACH, TWO) == [Code.LIMIT_EXCEEDED]
    assert run.codes(EACH, NewLimit(name="stripe", max=3)) == []


def test_a_lower_maximum_stops_nothing_that_runs_and_holds_for_the_next_claim(run: Run) -> None:
    one, two, three = run.enqueue(3, "stripe")
    run.claim(one, two)
    run.pass_time(10)
    change = NOW + timedelta(seconds=5)
    periods = [LimitPeriod("stripe", TWO, until=change), LimitPeriod("stripe", NewLimit(name="stripe", max=1), change)]
    assert run.codes(*periods) == []
    run.complete(one)
    run.claim(three)
    assert run.codes(*periods) == [Code.LIMIT_EXCEEDED]


def test_a_claim_near_a_change_may_follow_either_value_and_no_third(run: Run) -> None:
    periods = [LimitPeriod("stripe", TWO), LimitPeriod("stripe", NewLimit(name="stripe", max=3))]
    run.claim(*run.enqueue(3, "stripe"))
    assert run.codes(*periods) == []
    run.claim(*run.enqueue(1, "stripe"))
    assert run.codes(*periods) == [Code.LIMIT_EXCEEDED]


def test_a_removed_limit_allows_every_claim_and_counts_them(run: Run) -> None:
    change = NOW + timedelta(seconds=5)
    run.claim(*run.enqueue(3, "stripe"))
    run.pass_time(10)
    periods = [LimitPeriod("stripe", None, until=change), LimitPeriod("stripe", TWO, change)]
    assert run.codes(*periods) == []
    run.claim(*run.enqueue(1, "stripe"))
    assert run.codes(*periods) == [Code.LIMIT_EXCEEDED]


def test_a_task_that_was_changed_is_checked_from_then_on(run: Run) -> None:
    one, two, three = run.enqueue(3, "stripe")
    run.claim(one, two, three)
    run.recover(one)
    run.change(one)
    assert run.codes(TWO) == []  # its claim before the change may have counted towards other limits
    run.claim(one)
    assert run.codes(TWO) == [Code.LIMIT_EXCEEDED]


# Rates


def test_a_rate_allows_its_burst_at_once_and_then_its_rate(run: Run) -> None:
    limit = NewLimit(name="api", rate="1/second", burst=3)
    ids = run.enqueue(7, "api")
    run.run(*ids[:3])
    for task_id in ids[3:]:
        run.pass_time(1)
        run.run(task_id)
    assert run.codes(limit) == []


def test_one_start_above_burst_and_rate_is_found(run: Run) -> None:
    limit = NewLimit(name="api", rate="1/second", burst=3)
    run.run(*run.enqueue(4, "api"))
    [violation] = run.verify(limit).violations
    assert violation.code is Code.RATE_EXCEEDED
    assert violation.message == (
        "4 claims of the limit 'api' within 0.000 s, but the rate is 1/second with a burst of 3"
    )


def test_a_rate_that_is_exceeded_slowly_is_found(run: Run) -> None:
    limit = NewLimit(name="api", rate="1/second", burst=1)
    for task_id in run.enqueue(10, "api"):
        run.run(task_id)
        run.pass_time(0.95)
    assert Code.RATE_EXCEEDED in run.codes(limit)
    assert run.codes(limit, slack=1.0) == []  # 10 starts in 8.55 s are one too many, which the slack allows


def test_a_rate_per_group_counts_each_group_alone(run: Run) -> None:
    limit = NewLimit(name="api", rate="1/second", per="group")
    run.run(*run.enqueue(1, "api", group="a"), *run.enqueue(1, "api", group="b"))
    assert run.codes(limit) == []
    run.run(*run.enqueue(1, "api", group="a"))
    assert run.codes(limit) == [Code.RATE_EXCEEDED]


# Permits at the end


def test_a_permit_that_the_store_still_counts_is_found(run: Run) -> None:
    run.run(*run.enqueue(2, "stripe"))
    [violation] = run.verify(TWO, used={("stripe", None): 1}).violations
    assert violation.code is Code.PERMIT_LOST
    assert str(violation) == (
        "permit_lost: the store counts 1 live claims of the limit 'stripe', but the history has 0"
    )


def test_a_live_claim_that_the_store_does_not_count_is_found(run: Run) -> None:
    run.claim(*run.enqueue(1, "tenant", group="a"))
    assert run.codes(EACH, used={("tenant", "a"): 1}) == []
    assert run.codes(EACH, used={("tenant", "a"): 0}) == [Code.PERMIT_NOT_COUNTED]


def test_a_task_that_waits_though_its_limits_have_room_is_found(run: Run) -> None:
    one, two = run.enqueue(2, "stripe")
    run.run(one)
    assert run.codes(TWO) == []  # workers may not have come to it yet
    [violation] = run.verify(TWO, drained=True).violations
    assert (violation.code, violation.task_id) == (Code.STRANDED_TASK, two)


def test_a_task_whose_limit_is_full_may_wait(run: Run) -> None:
    ids = run.enqueue(3, "stripe")
    run.claim(*ids[:2])
    assert run.codes(TWO, drained=True) == []


# Shares


FAIR = {"q": QueueSettings("q", fair=True)}


def take_turns(run: Run, groups: Iterable[str], ids: dict[str, list[int]]) -> None:
    for group in groups:
        run.run(ids[group].pop(0))


def test_groups_that_take_turns_are_no_violation(run: Run) -> None:
    ids = {group: run.enqueue(20, group=group) for group in "abc"}
    take_turns(run, "abc" * 20, ids)
    assert run.codes(queues=FAIR, batch=1) == []


def test_a_group_that_waits_behind_the_tasks_of_another_is_found(run: Run) -> None:
    ids = {"big": run.enqueue(20, group="big"), "small": run.enqueue(1, group="small")}
    take_turns(run, ["big"] * 8 + ["small"], ids)
    assert Code.STARVED_GROUP in run.codes(queues=FAIR, batch=1)
    assert run.codes(queues=FAIR, batch=7) == []  # a batch of this size may come first
    assert run.codes(queues={"q": QueueSettings("q", fair=False)}, batch=1) == []


@pytest.mark.parametrize("event", [Event.CHANGED, Event.REPLACED])
def test_a_task_that_came_into_the_group_later_did_not_wait_there_before(run: Run, event: Event) -> None:
    ids = {"big": run.enqueue(20, group="big")}
    [moved] = run.enqueue(1, group="small")  # was in the group "big" until now
    take_turns(run, ["big"] * 8, ids)
    run.note(moved, event, State.PENDING, State.PENDING)
    run.run(moved)
    assert run.codes(queues=FAIR, batch=1) == []


def test_the_order_of_the_entries_of_one_claim_does_not_matter(run: Run) -> None:
    ids = {"a": run.enqueue(20, group="a"), "b": run.enqueue(20, group="b")}
    run.pass_time(1)
    run.claim(*ids["a"], *ids["b"])
    assert run.codes(queues=FAIR, batch=1) == []


def test_a_group_that_gets_half_of_its_share_is_found(run: Run) -> None:
    ids = {"a": run.enqueue(40, group="a"), "b": run.enqueue(40, group="b")}
    take_turns(run, "aab" * 10, ids)
    assert Code.STARVED_GROUP in run.codes(queues=FAIR, batch=1)
    assert run.codes(queues=FAIR, batch=1, weights={("q", "a"): 2.0}) == []


def test_a_group_that_is_served_by_its_weight_is_no_violation_and_without_it_is(run: Run) -> None:
    ids = {"a": run.enqueue(40, group="a"), "b": run.enqueue(40, group="b")}
    take_turns(run, "ab" * 15, ids)
    assert run.codes(queues=FAIR, batch=1) == []
    assert Code.STARVED_GROUP in run.codes(queues=FAIR, batch=1, weights={("q", "b"): 3.0})


def test_a_group_that_had_nothing_waiting_gets_no_turns_for_that_time(run: Run) -> None:
    ids = {"a": run.enqueue(30, group="a")}
    take_turns(run, "a" * 20, ids)
    ids["b"] = run.enqueue(5, group="b")
    take_turns(run, "bababa", ids)
    assert run.codes(queues=FAIR, batch=1) == []


def test_a_higher_priority_comes_before_the_turns(run: Run) -> None:
    ids = {"a": run.enqueue(20, group="a", priority=1), "b": run.enqueue(1, group="b")}
    take_turns(run, "a" * 20 + "b", ids)
    assert run.codes(queues=FAIR, batch=1) == []


def test_a_group_that_waits_for_its_own_limit_is_not_starved(run: Run) -> None:
    ids = {"a": run.enqueue(20, "tenant", group="a"), "b": run.enqueue(2, "tenant", group="b")}
    run.claim(ids["b"].pop(0))
    take_turns(run, "a" * 20, ids)
    assert run.codes(EACH, queues=FAIR, batch=1) == []


# The record


def test_a_check_of_limits_needs_the_tasks() -> None:
    with pytest.raises(InvalidValue, match="needs the tasks"):
        verify([], limits=LimitsRecord())


def test_the_limits_of_a_task_that_was_pruned_are_not_known_and_not_checked(run: Run) -> None:
    ids = run.enqueue(3, "stripe")
    run.claim(*ids)
    report = verify(run.entries, tasks=[], limits=LimitsRecord(limits=[LimitPeriod("stripe", TWO)]))
    assert {violation.code for violation in report.violations} == {Code.LOST_TASK}
