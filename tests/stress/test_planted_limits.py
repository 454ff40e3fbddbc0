"""Violations of limits that are planted in a recorded run with limits are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

import dibs
from dibs import Event, HistoryEntry, State, Task
from dibs.observe.limits_check import LimitsRecord
from dibs.observe.verify import verify
from dibs.observe.violations import Code
from tests.stress import limited, limits_worker_killed
from tests.stress.checking import pages, stored
from tests.stress.scenario import Stage, perform


@dataclass
class Recording:
    """A run of processes with limits, as the checker reads it."""

    history: list[HistoryEntry]
    tasks: list[Task]
    record: LimitsRecord

    def codes(self) -> set[Code]:
        report = verify(self.history, tasks=self.tasks, limits=self.record)
        return {violation.code for violation in report.violations}

    def having(self, limit: str | None = None, group: str | None = None, queue: str | None = None) -> set[int]:
        """The tasks with this limit, of this group and in this queue."""
        return {
            task.id
            for task in self.tasks
            if (limit is None or limit in task.limits) and group in (None, task.group) and queue in (None, task.queue)
        }

    def drop(self, unwanted: Callable[[HistoryEntry], bool]) -> list[HistoryEntry]:
        """Take these entries out of the history."""
        gone = [entry for entry in self.history if unwanted(entry)]
        self.history = [entry for entry in self.history if not unwanted(entry)]
        return gone

    def change_used(self, by: int) -> None:
        """Let the store count more or fewer claims of the shared limit than there are."""
        assert self.record.used is not None
        used = {**self.record.used, ("shared", None): self.record.used["shared", None] + by}
        self.record = msgspec.structs.replace(self.record, used=used)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A short run without violations."""
    folder = tmp_path_factory.mktemp("recorded")
    url = f"sqlite:///{folder}/dibs.db"
    stage = Stage(limits_worker_killed.SCENARIO, "sqlite", url, folder, seed=7)
    assert perform(stage).problems == []
    assert stage.limits is not None
    with dibs.Dibs(url) as app:
        history = [entry for page in pages(app) for entry in page]
        record = msgspec.structs.replace(stage.limits.record(app), batch=20)
        return Recording(history, list(stored(app)), record)


@pytest.fixture
def run(recorded: Recording) -> Recording:
    """A copy of it to plant something in."""
    return Recording(list(recorded.history), list(recorded.tasks), recorded.record)


def test_the_recorded_run_has_no_violation_and_every_limit_was_used(run: Recording) -> None:
    assert run.codes() == set()
    claimed = {entry.task_id for entry in run.history if entry.event is Event.CLAIMED}
    for limit in (limited.SHARED, limited.TENANT, limited.PACED):
        assert len(run.having(limit.name) & claimed) > (limit.max or limit.burst), limit
    assert len(run.having(queue="queue-1") & claimed) > 20


def end_no_claim_of_a_limit(run: Recording) -> None:
    of_limit = run.having("shared")
    run.drop(lambda entry: entry.task_id in of_limit and entry.from_state is State.CLAIMED)


def end_no_claim_of_a_group(run: Recording) -> None:
    of_group = run.having("tenant", group="flood")
    run.drop(lambda entry: entry.task_id in of_group and entry.from_state is State.CLAIMED)


def end_no_claim_of_a_queue(run: Recording) -> None:
    of_queue = run.having(queue="queue-0")
    run.drop(lambda entry: entry.task_id in of_queue and entry.from_state is State.CLAIMED)


@pytest.mark.parametrize("plant", [end_no_claim_of_a_limit, end_no_claim_of_a_group, end_no_claim_of_a_queue])
def test_more_live_claims_than_a_limit_allows_are_found(run: Recording, plant: Callable[[Recording], None]) -> None:
    plant(run)
    assert Code.LIMIT_EXCEEDED in run.codes()


def test_a_claim_above_a_limit_for_a_moment_is_found(run: Recording) -> None:
    """Claims of which each ended are put before the end of as many others as the limit allows."""
    of_limit = run.having("shared")
    of_limit -= {entry.task_id for entry in run.history if entry.event not in LIFE}
    first = sorted(of_limit)[: limited.SHARED.max + 1]  # type: ignore[operator]
    lives = run.drop(lambda entry: entry.task_id in first)
    lives.sort(key=lambda entry: LIFE.index(entry.event))
    run.history += [msgspec.structs.replace(entry, id=run.history[-1].id + nth) for nth, entry in enumerate(lives, 1)]
    assert run.codes() == {Code.LIMIT_EXCEEDED}


LIFE = (Event.ENQUEUED, Event.CLAIMED, Event.COMPLETED)


def test_claims_faster_than_a_rate_are_found(run: Recording) -> None:
    of_limit = run.having("paced")
    at = next(entry.at for entry in run.history if entry.task_id in of_limit)
    run.history = [
        msgspec.structs.replace(entry, at=at) if entry.task_id in of_limit else entry for entry in run.history
    ]
    run.record = msgspec.structs.replace(run.record, slack=0.0)
    assert Code.RATE_EXCEEDED in run.codes()


def test_a_permit_that_was_lost_is_found(run: Recording) -> None:
    run.change_used(1)
    assert run.codes() == {Code.PERMIT_LOST}


def test_a_permit_that_was_returned_twice_is_found(run: Recording) -> None:
    run.change_used(-1)
    assert run.codes() == {Code.PERMIT_NOT_COUNTED}


def test_a_task_that_waits_while_permits_are_free_is_found(run: Recording) -> None:
    fair = run.having(queue="queue-1")  # there its group would starve as well
    place, task = next(
        (place, task) for place, task in enumerate(run.tasks) if list(task.limits) == ["shared"] and task.id not in fair
    )
    run.drop(lambda entry: entry.task_id == task.id and entry.event is not Event.ENQUEUED)
    run.tasks[place] = msgspec.structs.replace(task, state=State.PENDING, token=0)
    assert run.codes() == {Code.STRANDED_TASK}


def test_a_group_that_waits_until_all_others_have_ended_is_found(run: Recording) -> None:
    of_group = run.having(group="b", queue="queue-1")
    late = run.drop(lambda entry: entry.task_id in of_group and entry.event is not Event.ENQUEUED)
    run.history += [msgspec.structs.replace(entry, id=run.history[-1].id + nth) for nth, entry in enumerate(late, 1)]
    assert run.codes() == {Code.STARVED_GROUP}
