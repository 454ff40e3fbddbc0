"""The verdict on a stress run can be bad: every violation that is planted in a recorded run is found and counted."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import dibs
from dibs import Event, HistoryEntry, State, Task
from dibs.observe.verify import Acknowledged
from tests.helpers.databases import run_sql
from tests.stress import worker_killed
from tests.stress.checking import Findings, Heard, check, judge, pages, stored
from tests.stress.scenario import SLACK, Scenario, Stage, Tally, perform


@dataclass
class Recording:
    """A run of processes that were killed, as the checker reads it."""

    folder: Path
    history: list[HistoryEntry]
    tasks: list[Task]
    heard: Heard

    def verdict(self) -> Findings:
        return judge(self.history, self.tasks, self.heard.told, self.heard, {})

    def entry(self, event: Event) -> int:
        """Where the first entry with this event stands."""
        return next(place for place, entry in enumerate(self.history) if entry.event is event)

    def change(self, place: int, **changes: object) -> None:
        self.history[place] = msgspec.structs.replace(self.history[place], **changes)

    def add(self, entry: HistoryEntry, **changes: object) -> None:
        """One more entry, after all others."""
        self.history.append(msgspec.structs.replace(entry, id=self.history[-1].id + 1, **changes))

    def a_completed_task(self) -> int:
        return next(place for place, task in enumerate(self.tasks) if task.state is State.COMPLETED)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A short run without violations in which a worker died with a claim, which depends on timing."""
    runs = (_record(tmp_path_factory.mktemp("recorded"), seed) for seed in range(7, 17))
    return next(run for run in runs if any(entry.event is Event.RECOVERED for entry in run.history))


def _record(folder: Path, seed: int) -> Recording:
    url = f"sqlite:///{folder}/dibs.db"
    tally = perform(Stage(worker_killed.SCENARIO, "sqlite", url, folder, seed=seed))
    assert tally.problems == []
    with dibs.Dibs(url) as app:
        history = [entry for page in pages(app) for entry in page]
        return Recording(folder, history, list(stored(app)), Heard.read(folder))


@pytest.fixture
def run(recorded: Recording) -> Recording:
    """A copy of it to plant something in."""
    return Recording(recorded.folder, list(recorded.history), list(recorded.tasks), copy.deepcopy(recorded.heard))


def test_the_recorded_run_has_no_violation_and_is_fully_checked(run: Recording) -> None:
    found = run.verdict()
    assert (found.problems, found.lost, found.doubled, found.honoured) == ([], 0, 0, 0)
    assert found.operations == len(run.history) + len(run.heard.told) + len(run.heard.refused)
    assert {told.event for told in run.heard.told} >= {Event.ENQUEUED, Event.CLAIMED, Event.COMPLETED}
    assert found.events[Event.RECOVERED] > 0


def lose_a_task(run: Recording) -> None:
    del run.tasks[run.a_completed_task()]


def lose_a_task_and_all_its_traces(run: Recording) -> None:
    gone = next(iter(run.heard.enqueued))
    run.tasks = [task for task in run.tasks if task.id != gone]
    run.history = [entry for entry in run.history if entry.task_id != gone]


def leave_a_task_undone(run: Recording) -> None:
    task = run.a_completed_task()
    run.tasks[task] = msgspec.structs.replace(run.tasks[task], state=State.PENDING)


@pytest.mark.parametrize("plant", [lose_a_task, lose_a_task_and_all_its_traces, leave_a_task_undone])
def test_a_lost_task_is_found(run: Recording, plant: Callable[[Recording], None]) -> None:
    plant(run)
    assert run.verdict().lost >= 1


def complete_again(run: Recording) -> None:
    run.add(run.history[run.entry(Event.COMPLETED)])


def tell_two_that_they_completed_it(run: Recording) -> None:
    told = next(told for told in run.heard.told if told.event is Event.COMPLETED)
    run.heard.told.append(msgspec.structs.replace(told, token=told.token + 1))


@pytest.mark.parametrize("plant", [complete_again, tell_two_that_they_completed_it])
def test_a_doubled_completion_is_found(run: Recording, plant: Callable[[Recording], None]) -> None:
    plant(run)
    assert run.verdict().doubled == 1


def complete_under_the_token_of_the_dead(run: Recording) -> None:
    recovered = run.history[run.entry(Event.RECOVERED)]
    place = next(
        place
        for place, entry in enumerate(run.history)
        if (entry.task_id, entry.event) == (recovered.task_id, Event.COMPLETED) and entry.token > recovered.token
    )
    run.change(place, token=recovered.token, worker_id=recovered.worker_id)


def complete_as_another_worker(run: Recording) -> None:
    run.change(run.entry(Event.COMPLETED), worker_id="stranger")


def refuse_what_was_written(run: Recording) -> None:
    entry = run.history[run.entry(Event.COMPLETED)]
    run.heard.refused.add(Acknowledged(entry.task_id, entry.token, entry.event, entry.worker_id))


def leave_the_result_of_a_stale_token(run: Recording) -> None:
    task = run.a_completed_task()
    run.tasks[task] = msgspec.structs.replace(run.tasks[task], raw_result={"token": run.tasks[task].token - 1})


@pytest.mark.parametrize(
    "plant",
    [
        complete_under_the_token_of_the_dead,
        complete_as_another_worker,
        refuse_what_was_written,
        leave_the_result_of_a_stale_token,
    ],
)
def test_a_stale_write_that_was_accepted_is_found(run: Recording, plant: Callable[[Recording], None]) -> None:
    plant(run)
    assert run.verdict().honoured >= 1


def forget_what_was_acknowledged(run: Recording) -> None:
    told = next(told for told in run.heard.told if told.event is Event.CLAIMED)
    run.heard.told.append(msgspec.structs.replace(told, task_id=told.task_id, token=told.token + 100))


def give_one_token_to_two_workers(run: Recording) -> None:
    told = next(told for told in run.heard.told if told.event is Event.CLAIMED)
    run.heard.told.append(msgspec.structs.replace(told, worker_id="stranger"))


def give_one_key_to_two_tasks(run: Recording) -> None:
    key, task_id = next(iter(run.heard.keys.items()))
    run.heard._note_keys([task_id + 1], [key])


@pytest.mark.parametrize(
    "plant", [forget_what_was_acknowledged, give_one_token_to_two_workers, give_one_key_to_two_tasks]
)
def test_every_other_acknowledged_reply_that_is_not_true_is_found(
    run: Recording, plant: Callable[[Recording], None]
) -> None:
    plant(run)
    assert run.verdict().problems != []


def test_a_row_that_vanished_from_the_database_is_found(run: Recording, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "copy")
    url = f"sqlite:///{tmp_path}/copy/dibs.db"
    run_sql(url, f"DELETE FROM dibs_tasks WHERE id = {run.tasks[-1].id}")
    with dibs.Dibs(url) as app:
        assert check(app, tmp_path / "copy").lost >= 1


def test_a_run_without_its_fault_fails() -> None:
    tally = a_tally()
    tally.add(Findings())
    assert tally.problems == ["the fault never happened, so nothing is shown"]


def test_a_run_of_stale_writers_without_a_stale_write_fails() -> None:
    tally = a_tally(injected=1, must_refuse=True)
    tally.add(Findings())
    assert tally.problems == ["no stale write was tried, so nothing is shown about them"]


def test_a_recovery_that_takes_longer_than_promised_fails() -> None:
    tally = a_tally(injected=1, promised=1.0)
    tally.add(Findings(recovery=[0.5, 2 + SLACK]))
    assert not tally.ok


def a_tally(**options: object) -> Tally:
    scenario = Scenario("nothing", "nothing happens", (), ("sqlite",), lambda _: None)
    return Tally(scenario, "sqlite", 0, **options)  # type: ignore[arg-type]
