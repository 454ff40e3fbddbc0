"""The offline checker passes good histories and finds every violation planted in one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

import dibs
from dibs import Event, HistoryEntry, State, Task
from dibs.errors import InvalidValue
from dibs.observe.verify import Acknowledged, VerifyReport, dump, load, verify
from dibs.observe.violations import Code, Violation
from tests.helpers.retention import keep

NOW = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)


# Building histories


def entry(event: str, from_state: str | None, to_state: str, token: int = 0, worker: str | None = None) -> HistoryEntry:
    before = None if from_state is None else State(from_state)
    return HistoryEntry(0, 1, Event(event), before, State(to_state), worker, token, None, NOW, None)


def claimed(token: int, worker: str) -> HistoryEntry:
    return entry("claimed", "pending", "claimed", token, worker)


def completed(token: int, worker: str) -> HistoryEntry:
    return entry("completed", "claimed", "completed", token, worker)


def failed(token: int, worker: str, to: str = "pending") -> HistoryEntry:
    return entry("failed", "claimed", to, token, worker)


def released(token: int, worker: str) -> HistoryEntry:
    return entry("released", "claimed", "pending", token, worker)


def recovered(token: int, worker: str, to: str = "pending") -> HistoryEntry:
    return entry("recovered", "claimed", to, token, worker)


def retried(token: int, before: str = "failed") -> HistoryEntry:
    return entry("retried", before, "pending", token)


def pruned(token: int, state: str = "completed") -> HistoryEntry:
    return entry("pruned", state, state, token)


ENQUEUED = entry("enqueued", None, "pending")


def history(*entries: HistoryEntry, task_id: int = 1, first_id: int = 1) -> list[HistoryEntry]:
    """The entries as those of one task, numbered."""
    return [msgspec.structs.replace(e, id=n, task_id=task_id) for n, e in enumerate(entries, first_id)]


def stored(state: str, token: int, task_id: int = 1) -> Task:
    return Task(task_id, "mail", "default", State(state), {}, 0, 0, 3, token, NOW, NOW)


def reply(event: str, token: int, worker: str | None, task_id: int = 1) -> Acknowledged:
    return Acknowledged(task_id, token, Event(event), worker)


def codes(report: VerifyReport) -> list[Code]:
    return [violation.code for violation in report.violations]


FULL_LIFE = history(
    entry("enqueued", None, "pending"),
    entry("changed", "pending", "scheduled"),
    entry("replaced", "scheduled", "scheduled"),
    entry("promoted", "scheduled", "pending"),
    claimed(1, "ann"),
    failed(1, "ann", to="scheduled"),
    entry("retried", "scheduled", "pending", 1),
    claimed(2, "bob"),
    released(2, "bob"),
    claimed(3, "ann"),
    recovered(3, "ann"),
    claimed(4, "ann"),
    recovered(4, "ann", to="failed"),
    entry("ignored", "failed", "failed", 4),
    entry("discarded", "failed", "failed", 4),
    entry("restored", "failed", "failed", 4),
    retried(4),
    entry("cancelled", "pending", "cancelled", 4),
    retried(4, before="cancelled"),
    claimed(5, "bob"),
    entry("cancel_requested", "claimed", "claimed", 5, "bob"),
    entry("cancelled", "claimed", "cancelled", 5, "bob"),
    retried(5, before="cancelled"),
    entry("expired", "pending", "cancelled", 5),
    retried(5, before="cancelled"),
    claimed(6, "cid"),
    completed(6, "cid"),
    pruned(6),
)


# Good histories


def test_a_history_with_every_event_is_clean_and_counted() -> None:
    report = verify(FULL_LIFE)
    assert report.violations == []
    assert report.ok
    assert {e.event for e in FULL_LIFE} == set(Event)
    assert (report.operations, report.tasks, report.claims, report.completions) == (28, 1, 6, 1)


def test_the_history_of_a_step_is_clean() -> None:
    blocked = entry("enqueued", None, "blocked"), entry("promoted", "blocked", "scheduled")
    again = entry("retried", "failed", "blocked", 1), entry("promoted", "blocked", "pending", 1)
    report = verify(
        history(
            *blocked,
            entry("promoted", "scheduled", "pending"),
            claimed(1, "workflow-7"),
            failed(1, "workflow-7", to="failed"),
            *again,
            entry("cancelled", "pending", "cancelled", 1),
            entry("retried", "cancelled", "blocked", 1),
            entry("cancelled", "blocked", "cancelled", 1),
        )
    )
    assert report.ok, str(report)


def test_a_blocked_step_that_is_claimed_or_completed_is_caught() -> None:
    begun = history(entry("enqueued", None, "blocked"), entry("claimed", "blocked", "claimed", 1, "ann"))
    assert codes(verify(begun)) == [Code.MOVE_NOT_ALLOWED]
    ended = history(entry("enqueued", None, "blocked"), entry("completed", "blocked", "completed", 0))
    assert Code.MOVE_NOT_ALLOWED in codes(verify(ended))


def test_an_empty_history_is_clean() -> None:
    assert verify([], tasks=[], acknowledged=[]) == VerifyReport(0, 0, 0, 0, [])


def test_tasks_with_interleaved_entries_are_checked_separately() -> None:
    one = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"), first_id=1)
    two = history(ENQUEUED, claimed(1, "bob"), completed(1, "bob"), task_id=2, first_id=4)
    mixed = [one[0], two[0], one[1], two[1], two[2], one[2]]
    report = verify(mixed)
    assert report.ok
    assert (report.tasks, report.claims, report.completions) == (2, 2, 2)


def test_a_history_is_read_once_as_a_stream() -> None:
    entries = iter(FULL_LIFE)
    assert verify(entries).operations == len(FULL_LIFE)
    assert next(entries, None) is None


def test_a_real_history_on_sqlite_is_clean(tmp_path: Path) -> None:
    clock = Clock()
    with dibs.Dibs(f"sqlite:///{tmp_path / 'dibs.db'}", clock=clock) as app:
        answers = list(live_through_everything(app, clock))
        entries, tasks = app.all_history(), app.list_tasks()
    report = verify(entries, tasks=tasks, acknowledged=answers)
    assert report.violations == []
    assert {e.event for e in entries} == set(Event)
    assert (report.tasks, report.claims, report.completions) == (7, 8, 1)
    # The other three were pruned.
    assert [task.state for task in tasks] == [State.CLAIMED, State.FAILED, State.PENDING]


class Clock:
    """The store's clock in microseconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_750_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: int) -> None:
        self.now += seconds * 1_000_000


def live_through_everything(app: dibs.Dibs, clock: Clock) -> Iterator[Acknowledged]:
    """Bring five tasks through every event, and yield the answers that the clients received."""
    yield from fail_lose_and_complete(app, clock)
    yield from cancel_and_retry(app)
    discard_and_retry(app)
    keep(app, completed=0, cancelled=0)
    app.prune()
    kept = app.enqueue("mail")
    yield reply("enqueued", 0, None, kept.id)
    claim = app.claim_by_id(kept.id, "ann")
    yield reply("claimed", claim.token, "ann", kept.id)


def discard_and_retry(app: dibs.Dibs) -> None:
    """A step whose failure is ignored, and a task that is discarded and retried."""
    step = dibs.NewStep(name="a", task=dibs.NewTask("step"), on_failure="ignore")
    app.start_workflow(dibs.NewWorkflow(name="flow", steps=[step]))
    task = app.enqueue("mail", max_attempts=1)
    app.fail(app.claim("ann", types=["step"]), "no route", permanent=True)
    app.fail(app.claim_by_id(task.id, "ann"), "no route")
    app.discard(task.id)
    app.retry(task.id)
    app.cancel(task.id)


def fail_lose_and_complete(app: dibs.Dibs, clock: Clock) -> Iterator[Acknowledged]:
    task = app.enqueue("mail", key="k")
    app.enqueue("mail", key="k", on_conflict="replace")
    yield reply("enqueued", 0, None, task.id)
    app.change(task.id, delay=5, priority=1)
    clock.pass_seconds(5)
    app.promote()
    claim = app.claim_by_id(task.id, "ann")
    app.fail(claim, "no route", retry_in=0)
    yield reply("failed", claim.token, "ann", task.id)
    app.claim_by_id(task.id, "bob", lease=1)
    clock.pass_seconds(2)
    app.recover()
    claim = app.claim_by_id(task.id, "cid")
    app.complete(claim)
    yield reply("completed", claim.token, "cid", task.id)


def cancel_and_retry(app: dibs.Dibs) -> Iterator[Acknowledged]:
    waiting, running = app.enqueue("mail"), app.enqueue("mail")
    app.cancel(waiting.id)
    app.retry(waiting.id)
    app.enqueue("mail", expires_at=datetime(2000, 1, 1, tzinfo=UTC))
    app.upkeep()
    claim = app.claim_by_id(running.id, "ann")
    app.release(claim)
    yield reply("released", claim.token, "ann", running.id)
    claim = app.claim_by_id(running.id, "bob")
    app.cancel(running.id)
    app.finish([(claim, dibs.Cancelled())])
    yield reply("cancelled", claim.token, "bob", running.id)


# Planted violations: the order of events


@pytest.mark.parametrize("left_out", range(len(FULL_LIFE)), ids=lambda n: FULL_LIFE[n].event.value)
def test_a_missing_entry_is_noticed(left_out: int) -> None:
    rest = FULL_LIFE[:left_out] + FULL_LIFE[left_out + 1 :]
    same_state = {Event.REPLACED, Event.CANCEL_REQUESTED, Event.IGNORED, Event.DISCARDED, Event.RESTORED}
    silent = FULL_LIFE[left_out].event in same_state  # the task stays where it is, so nothing misses the entry
    assert verify(rest, tasks=[]).ok is silent


def test_a_history_that_does_not_begin_with_enqueued_is_caught() -> None:
    assert codes(verify(history(claimed(1, "ann"), completed(1, "ann")))) == [Code.NO_BEGINNING]


def test_a_transition_that_is_not_allowed_is_caught() -> None:
    report = verify(history(ENQUEUED, entry("claimed", "pending", "completed", 1, "ann")))
    assert codes(report) == [Code.MOVE_NOT_ALLOWED]
    assert (report.violations[0].task_id, report.violations[0].entry_id) == (1, 2)


def test_replacing_a_task_that_has_started_is_not_allowed() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), released(1, "ann"), entry("replaced", "pending", "pending", 1))
    assert codes(verify(entries)) == [Code.MOVE_NOT_ALLOWED]


def test_retrying_a_completed_task_is_not_allowed() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"), retried(1, before="completed"))
    assert codes(verify(entries)) == [Code.MOVE_NOT_ALLOWED]


def test_pruning_that_changes_the_final_state_is_not_allowed() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"), entry("pruned", "completed", "failed", 1))
    assert codes(verify(entries)) == [Code.MOVE_NOT_ALLOWED]


def test_a_change_that_blocks_a_task_or_frees_a_step_is_not_allowed() -> None:
    blocked = history(ENQUEUED, entry("changed", "pending", "blocked"))
    freed = history(entry("enqueued", None, "blocked"), entry("changed", "blocked", "pending"))
    assert codes(verify(blocked)) == codes(verify(freed)) == [Code.MOVE_NOT_ALLOWED]


def test_a_change_of_a_claimed_task_is_not_allowed() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), entry("changed", "claimed", "claimed", 1))
    assert codes(verify(entries)) == [Code.MOVE_NOT_ALLOWED]


def test_a_broken_chain_is_caught() -> None:
    entries = history(ENQUEUED, entry("promoted", "scheduled", "pending"))
    assert codes(verify(entries)) == [Code.BROKEN_CHAIN]


def test_a_second_enqueued_entry_is_a_broken_chain() -> None:
    assert codes(verify(history(ENQUEUED, ENQUEUED))) == [Code.BROKEN_CHAIN]


@pytest.mark.parametrize("end", [completed(1, "ann"), failed(1, "ann", to="failed")], ids=lambda e: e.event.value)
def test_a_transition_after_the_final_state_is_caught(end: HistoryEntry) -> None:
    assert codes(verify(history(ENQUEUED, claimed(1, "ann"), end, claimed(2, "bob")))) == [Code.LIFE_AFTER_END]


def test_a_second_completion_under_the_same_token_is_caught() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"), completed(1, "ann"))
    assert codes(verify(entries)) == [Code.STALE_TOKEN, Code.LIFE_AFTER_END]


def test_a_transition_after_pruning_is_caught() -> None:
    cancelled = entry("cancelled", "pending", "cancelled")
    entries = history(ENQUEUED, cancelled, pruned(0, "cancelled"), retried(0, before="cancelled"))
    assert codes(verify(entries)) == [Code.LIFE_AFTER_PRUNING]


def test_entries_out_of_order_are_caught() -> None:
    first, second, third = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"))
    swapped = [first, msgspec.structs.replace(second, id=3), msgspec.structs.replace(third, id=2)]
    assert codes(verify(swapped)) == [Code.OUT_OF_ORDER]


# Planted violations: tokens and workers


def test_a_claim_of_a_claimed_task_is_a_double_claim() -> None:
    report = verify(history(ENQUEUED, claimed(1, "ann"), claimed(2, "bob"), completed(2, "bob")))
    assert codes(report) == [Code.DOUBLE_CLAIM]
    assert report.violations[0].entry_id == 3


def test_a_request_to_stop_does_not_end_a_claim() -> None:
    asked = entry("cancel_requested", "claimed", "claimed", 1, "ann")
    assert codes(verify(history(ENQUEUED, claimed(1, "ann"), asked, claimed(2, "bob")))) == [Code.DOUBLE_CLAIM]


def test_a_reused_token_is_a_double_claim() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), recovered(1, "ann"), claimed(1, "bob"), completed(1, "bob"))
    report = verify(entries)
    assert codes(report) == [Code.DOUBLE_CLAIM]
    assert report.violations[0].entry_id == 4


def test_an_old_token_does_not_lower_the_highest_one() -> None:
    lives = [claimed(1, "ann"), released(1, "ann"), claimed(2, "ann"), released(2, "ann")]
    again = [claimed(1, "bob"), released(1, "bob"), claimed(2, "cid")]
    assert codes(verify(history(ENQUEUED, *lives, *again))) == [Code.DOUBLE_CLAIM, Code.DOUBLE_CLAIM]


def test_a_skipped_token_is_caught() -> None:
    report = verify(history(ENQUEUED, claimed(1, "ann"), released(1, "ann"), claimed(3, "bob"), completed(3, "bob")))
    assert codes(report) == [Code.SKIPPED_TOKEN]


def test_a_first_token_that_is_not_1_is_skipped() -> None:
    assert codes(verify(history(ENQUEUED, claimed(2, "ann")))) == [Code.SKIPPED_TOKEN]


STALE = [
    completed(1, "ann"),
    failed(1, "ann"),
    released(1, "ann"),
    recovered(1, "ann"),
    entry("cancel_requested", "claimed", "claimed", 1, "ann"),
    entry("cancelled", "claimed", "cancelled", 1, "ann"),
]


@pytest.mark.parametrize("late", STALE, ids=lambda e: e.event.value)
def test_a_stale_token_honoured_while_another_is_live_is_caught(late: HistoryEntry) -> None:
    lost = [ENQUEUED, claimed(1, "ann"), recovered(1, "ann"), claimed(2, "ann")]
    report = verify(history(*lost, late))
    assert codes(report) == [Code.STALE_TOKEN]
    assert report.violations[0].entry_id == 5


@pytest.mark.parametrize("late", STALE, ids=lambda e: e.event.value)
def test_a_token_honoured_after_its_claim_ended_is_caught(late: HistoryEntry) -> None:
    lost = [ENQUEUED, claimed(1, "ann"), recovered(1, "ann")]
    assert codes(verify(history(*lost, late))) == [Code.STALE_TOKEN]


FOREIGN = [
    completed(1, "bob"),
    failed(1, "bob"),
    released(1, "bob"),
    entry("cancelled", "claimed", "cancelled", 1, "b"),
]


@pytest.mark.parametrize("write", FOREIGN, ids=lambda e: e.event.value)
def test_a_foreign_worker_honoured_is_caught(write: HistoryEntry) -> None:
    assert codes(verify(history(ENQUEUED, claimed(1, "ann"), write))) == [Code.FOREIGN_WORKER]


def test_a_recovery_need_not_name_the_worker_it_takes_the_task_from() -> None:
    nameless = entry("recovered", "claimed", "pending", 1)
    assert verify(history(ENQUEUED, claimed(1, "ann"), nameless)).ok


def test_a_token_that_changes_without_a_claim_is_caught() -> None:
    entries = history(ENQUEUED, claimed(1, "ann"), failed(1, "ann", to="failed"), retried(0))
    assert codes(verify(entries)) == [Code.WRONG_TOKEN]


# Planted violations: conservation


DONE = history(ENQUEUED, claimed(1, "ann"), completed(1, "ann"))


def test_a_task_in_the_last_state_of_its_history_is_conserved() -> None:
    assert verify(DONE, tasks=[stored("completed", 1)]).ok


def test_a_lost_task_is_caught() -> None:
    assert codes(verify(DONE, tasks=[])) == [Code.LOST_TASK]


def test_a_pruned_task_is_not_lost() -> None:
    assert verify(history(*DONE, pruned(1)), tasks=[]).ok


def test_a_pruned_task_that_is_still_there_is_caught() -> None:
    report = verify(history(*DONE, pruned(1)), tasks=[stored("completed", 1)])
    assert codes(report) == [Code.LIFE_AFTER_PRUNING]


def test_an_unrecorded_task_is_caught() -> None:
    report = verify(DONE, tasks=[stored("completed", 1), stored("pending", 0, task_id=2)])
    assert [(violation.code, violation.task_id) for violation in report.violations] == [(Code.UNRECORDED_TASK, 2)]


def test_a_task_in_another_state_than_its_history_says_is_caught() -> None:
    assert codes(verify(DONE, tasks=[stored("pending", 1)])) == [Code.STATE_DIFFERS]


def test_a_task_with_another_token_than_its_history_says_is_caught() -> None:
    assert codes(verify(DONE, tasks=[stored("completed", 2)])) == [Code.TOKEN_DIFFERS]


# Planted violations: answers to clients


def test_acknowledged_replies_are_found_in_the_history() -> None:
    answers = [
        reply("enqueued", 0, None),
        reply("claimed", 1, "ann"),
        reply("completed", 1, "ann"),
    ]
    assert verify(DONE, acknowledged=[*answers, *answers]).ok  # an answer may be received twice


@pytest.mark.parametrize(
    "answer",
    [
        reply("claimed", 2, "ann"),
        reply("claimed", 1, "bob"),
        reply("failed", 1, "ann"),
        reply("released", 1, "ann"),
        reply("completed", 2, "ann"),
        reply("enqueued", 0, None, task_id=2),
    ],
    ids=str,
)
def test_an_acknowledged_reply_that_is_not_in_the_history_is_caught(answer: Acknowledged) -> None:
    report = verify(DONE, acknowledged=[answer])
    assert [(violation.code, violation.task_id) for violation in report.violations] == [
        (Code.NOT_RECORDED, answer.task_id)
    ]


def test_a_claim_acknowledged_to_two_workers_is_a_double_claim() -> None:
    report = verify(DONE, acknowledged=[reply("claimed", 1, "ann"), reply("claimed", 1, "bob")])
    assert codes(report) == [Code.DOUBLE_CLAIM, Code.NOT_RECORDED]


def test_the_same_token_of_two_tasks_is_not_a_double_claim() -> None:
    other = history(*DONE[:1], claimed(1, "bob"), task_id=2, first_id=4)
    assert verify([*DONE, *other], acknowledged=[reply("claimed", 1, "ann"), reply("claimed", 1, "bob", task_id=2)]).ok


TWICE = [reply("completed", 1, "ann"), reply("completed", 2, "bob")]


def test_two_acknowledged_completions_are_a_doubled_completion() -> None:
    entries = history(*DONE, claimed(2, "bob"), completed(2, "bob"))
    assert Code.DOUBLED_COMPLETION in codes(verify(entries, acknowledged=TWICE))


def test_two_acknowledged_completions_with_a_retry_in_between_are_not_doubled() -> None:
    entries = history(*DONE, retried(1, before="completed"), claimed(2, "bob"), completed(2, "bob"))
    assert Code.DOUBLED_COMPLETION not in codes(verify(entries, acknowledged=TWICE))


def test_a_retry_before_or_after_two_completions_does_not_justify_the_second() -> None:
    before = history(
        ENQUEUED, entry("cancelled", "pending", "cancelled"), retried(0, "cancelled"), *DONE[1:], claimed(2, "bob")
    )
    entries = history(*before, completed(2, "bob"), retried(2, before="completed"))
    assert Code.DOUBLED_COMPLETION in codes(verify(entries, acknowledged=TWICE))


# Histories whose beginning was pruned


@pytest.mark.parametrize("start", range(1, len(FULL_LIFE)), ids=lambda n: FULL_LIFE[n].event.value)
def test_an_incomplete_history_may_begin_anywhere(start: int) -> None:
    assert verify(FULL_LIFE[start:], complete=False, tasks=[]).ok
    assert not verify(FULL_LIFE[start:], tasks=[]).ok


def test_an_incomplete_history_still_knows_the_holder_of_a_claim_made_before_it() -> None:
    asked = entry("cancel_requested", "claimed", "claimed", 7, "ann")
    assert codes(verify(history(asked, completed(7, "bob")), complete=False)) == [Code.FOREIGN_WORKER]
    assert codes(verify(history(asked, completed(6, "ann")), complete=False)) == [Code.STALE_TOKEN]


def test_an_incomplete_history_is_checked_from_its_first_entry() -> None:
    assert codes(verify(history(claimed(7, "ann"), claimed(8, "bob")), complete=False)) == [Code.DOUBLE_CLAIM]
    assert codes(verify(history(released(7, "ann"), claimed(9, "bob")), complete=False)) == [Code.SKIPPED_TOKEN]


def test_an_incomplete_history_still_detects_lost_tasks_that_it_contains() -> None:
    assert verify([], complete=False, tasks=[stored("pending", 0)]).ok
    assert codes(verify(DONE[2:], complete=False, tasks=[])) == [Code.LOST_TASK]


def test_an_incomplete_history_confirms_only_replies_that_it_covers() -> None:
    rest = history(claimed(2, "bob"), completed(2, "bob"))
    gone = [
        reply("enqueued", 0, None),
        reply("claimed", 1, "ann"),
        reply("claimed", 1, "ann", task_id=9),
    ]
    assert verify(rest, complete=False, acknowledged=gone).ok
    assert codes(verify(rest, complete=False, acknowledged=[reply("claimed", 2, "ann")])) == [Code.NOT_RECORDED]
    assert verify(rest[1:], complete=False, acknowledged=[reply("claimed", 2, "bob")]).ok


# The report


def test_a_clean_report_lists_what_was_checked() -> None:
    assert str(verify(DONE)) == "3 operations on 1 tasks (1 claims, 1 completions): no violation"


def test_a_report_lists_each_violation_with_its_task_and_entry() -> None:
    report = verify(history(ENQUEUED, claimed(1, "ann"), completed(1, "bob")), tasks=[stored("completed", 1)])
    assert not report.ok
    assert str(report).splitlines() == [
        "3 operations on 1 tasks (1 claims, 1 completions): violations: 1",
        "  task 1, entry 3: foreign_worker_honoured: completed by bob, but ann held the task",
    ]


def test_a_long_report_counts_the_violations_it_leaves_out() -> None:
    lines = str(VerifyReport(0, 0, 0, 0, [Violation(Code.LOST_TASK, n, "gone") for n in range(25)])).splitlines()
    assert len(lines) == 22
    assert lines[1] == "  task 0: lost_task: gone"
    assert lines[-1] == "  … and 5 more"


# Recordings


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    detailed = msgspec.structs.replace(FULL_LIFE[3], by="key:ops", detail={"message": "two\nlines", "code": [1, None]})
    entries = [*FULL_LIFE[:3], detailed, *FULL_LIFE[4:]]
    assert dump(iter(entries), tmp_path / "run.jsonl") == len(entries)
    assert list(load(tmp_path / "run.jsonl")) == entries
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert len(lines) == len(entries)
    assert '"at":"2025-11-12T10:30:00.123456Z"' in lines[0]


MALFORMED = {
    "half a line": b'{"id": 4, "task_id"',
    "no JSON": b"hello",
    "an empty line": b"",
    "another object": b'{"id": 4}',
    "an unknown event": b'{"id":4,"task_id":1,"event":"eaten","from_state":null,"to_state":"pending","worker_id":null,'
    b'"token":0,"by":null,"at":"2025-11-12T10:30:00Z","detail":null}',
    "no UTF-8": b'{"id":4,"by":"\xff"}',
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_line_is_refused_with_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "run.jsonl"
    dump(DONE, path)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InvalidValue, match=r"Line 4 of .*run\.jsonl"):
        list(load(path))


def test_a_recording_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    dump(DONE[:1], path)
    path.write_bytes(path.read_bytes() + b"broken\n")
    entries = load(path)
    assert next(entries) == DONE[0]
    with pytest.raises(InvalidValue):
        next(entries)
