"""Log lines of tasks: each is stored once, under the attempt that has logged it, and is deleted with its task."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import dibs
from dibs.errors import InvalidValue, TaskNotFound
from dibs.model.logs import MAX_MESSAGE, LogFilter, LogLevel, LogLine
from tests.helpers import tables
from tests.helpers.clients import Clock, run
from tests.helpers.each import for_each
from tests.helpers.retention import NOTHING, keep

AT = datetime(2025, 11, 12, 10, 30, 0, 123456, tzinfo=UTC)


def line(claim: Any, number: int, message: str = "hello", **options: Any) -> LogLine:
    level = options.pop("level", LogLevel.INFO)
    values = {"attempt": 1, "at": AT, "logger": "videos", **options}
    return LogLine(claim.task_id, claim.token, number=number, level=level, message=message, **values)


def add(app: Any, *lines: LogLine) -> int:
    stored: int = run(app, app._store.logs.add_log_lines(lines))
    return stored


def claimed(app: Any, worker_id: str = "worker-1", **options: Any) -> dibs.Claim:
    held: dibs.Claim = app.claim_by_id(app.enqueue("download", **options).id, worker_id)
    return held


def messages(app: Any, task_id: int, **options: Any) -> list[str]:
    return [each.message for each in app.logs(task_id, **options)]


def test_lines_are_read_as_they_were_written_in_the_order_of_their_numbers(app: Any) -> None:
    held, other = claimed(app), claimed(app)
    written = [
        line(held, 1, "one"),
        line(held, 2, "two\nlines", level=LogLevel.ERROR),
        line(held, 3, 'ü "€" \\', logger="stdout", at=AT + timedelta(days=1)),
    ]
    assert add(app, written[2], line(other, 1), written[0], written[1]) == 4
    assert app.logs(held.task_id) == written
    assert app.get(held.task_id).id == held.task_id
    assert [each.id for each in written] == ["1-1", "1-2", "1-3"]


def test_a_repeated_write_changes_nothing(app: Any, url: str) -> None:
    held = claimed(app)
    assert add(app, line(held, 1), line(held, 2)) == 2
    before = tables.read(url)
    assert add(app, line(held, 1, "other"), line(held, 2)) == 0
    assert tables.read(url) == before
    assert add(app, line(held, 2), line(held, 3), line(held, 3)) == 1


def test_a_task_without_lines_has_none_and_an_unknown_task_is_refused(app: Any) -> None:
    held = claimed(app)
    assert app.logs(held.task_id) == []
    assert add(app) == 0
    for read in (app.logs, lambda task_id: list(app.follow_logs(task_id))):
        with pytest.raises(TaskNotFound):
            read(404)


def test_lines_of_an_attempt_whose_claim_is_lost_are_kept_under_that_attempt(app: Any, clock: Clock) -> None:
    frozen = claimed(app)
    clock.advance(61)
    app.recover()
    live = app.claim_by_id(frozen.task_id, "worker-2")
    add(app, line(live, 1, "second attempt", attempt=2))
    assert add(app, line(frozen, 1, "late")) == 1
    assert messages(app, frozen.task_id) == ["late", "second attempt"]
    assert messages(app, frozen.task_id, attempt=1) == ["late"]
    assert messages(app, frozen.task_id, attempt=2) == ["second attempt"]


def test_lines_under_a_token_that_was_not_issued_or_of_no_task_are_dropped(app: Any) -> None:
    held = claimed(app)
    unknown = dibs.ClaimRef(404, 1, "worker-1")
    next_token = dibs.ClaimRef(held.task_id, held.token + 1, "worker-1")
    assert add(app, line(unknown, 1), line(next_token, 1), line(held, 1), line(held, 2, attempt=2)) == 1
    assert messages(app, held.task_id) == ["hello"]


def test_lines_are_deleted_with_their_task_and_later_ones_are_dropped(app: Any, url: str) -> None:
    keep(app, **NOTHING)
    held, kept = claimed(app), claimed(app)
    add(app, line(held, 1), line(kept, 1))
    app.complete(held)
    app.prune()
    assert add(app, line(held, 2)) == 0
    assert len(tables.read(url)["dibs_log_lines"]) == 1
    with pytest.raises(TaskNotFound):
        app.logs(held.task_id)


def test_lines_of_steps_are_deleted_with_their_workflow(app: Any, url: str) -> None:
    keep(app, **NOTHING)
    step = dibs.NewStep(name="a", task=dibs.NewTask("download"))
    app.start_workflow(dibs.NewWorkflow(name="order", steps=[step]))
    held = app.claim("worker-1")
    add(app, line(held, 1))
    app.complete(held)
    app.upkeep()
    app.prune()
    assert tables.read(url)["dibs_log_lines"] == []


def test_lines_are_filtered_by_level(app: Any) -> None:
    held = claimed(app)
    add(app, *(line(held, number, level.value, level=level) for number, level in enumerate(LogLevel, 1)))
    assert messages(app, held.task_id, level="warning") == ["warning", "error", "critical"]
    assert messages(app, held.task_id, level="debug") == [level.value for level in LogLevel]


def test_pages_continue_after_the_last_line_across_attempts(app: Any, clock: Clock) -> None:
    first = claimed(app)
    add(app, *(line(first, number, f"a{number}") for number in range(1, 4)))
    clock.advance(61)
    app.recover()
    second = app.claim_by_id(first.task_id, "worker-1")
    add(app, line(second, 1, "b1", attempt=2))
    found, which = [], LogFilter(limit=2)
    while (page := run(app, app._store.logs.log_page(first.task_id, which))).lines:
        found.append([each.message for each in page.lines])
        which = which.following(page)
    assert found == [["a1", "a2"], ["a3", "b1"]]
    assert not page.ended


@for_each("text", ["\x00", "a\x00b", "\ud800", "x" * (MAX_MESSAGE * 3), "\U0001f600" * MAX_MESSAGE, ""])
def test_any_text_is_stored(app: Any, text: str) -> None:
    held = claimed(app)
    assert add(app, line(held, 1, text, logger=text)) == 1
    [found] = app.logs(held.task_id)
    assert len(found.message) <= MAX_MESSAGE
    assert found.message[:1] == {"\x00": "␀", "\ud800": "�"}.get(text[:1], text[:1])


def test_following_ends_after_the_end_of_the_task_with_all_lines(app: Any) -> None:
    held = claimed(app)
    add(app, line(held, 1, "one"))
    followed = app.follow_logs(held.task_id)
    assert next(followed).message == "one"
    add(app, line(held, 2, "two"))
    app.complete(held)
    assert [each.message for each in followed] == ["two"]


def test_following_waits_for_the_next_line(app: Any) -> None:
    held = claimed(app)
    add(app, line(held, 1, "one"))
    followed = app.follow_logs(held.task_id)
    next(followed)
    writer = threading.Timer(0.3, lambda: (add(app, line(held, 2, "two")), app.complete(held)))
    writer.start()
    assert next(followed).message == "two"
    writer.join()
    assert list(followed) == []


def test_following_one_attempt_ends_with_that_attempt(app: Any) -> None:
    held = claimed(app)
    add(app, line(held, 1, "one"))
    app.fail(held, "no", retry_in=0)
    assert [each.message for each in app.follow_logs(held.task_id, attempt=1)] == ["one"]


def test_following_ends_when_the_task_is_pruned(app: Any) -> None:
    keep(app, **NOTHING)
    held = claimed(app)
    add(app, line(held, 1, "one"))
    followed = app.follow_logs(held.task_id)
    next(followed)
    app.complete(held)
    app.prune()
    assert list(followed) == []


@for_each("options", [{"level": "loud"}, {"level": 30}, {"attempt": 0}, {"attempt": "1"}])
def test_wrong_filters_are_refused(app: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        app.logs(claimed(app).task_id, **options)


def test_wrong_positions_and_sizes_are_refused() -> None:
    for options in ({"after": "1"}, {"after": "1-"}, {"after": 5}, {"limit": 0}, {"limit": 501}):
        with pytest.raises(InvalidValue):
            LogFilter(**options)  # type: ignore[arg-type]


def test_a_batch_of_too_many_lines_is_refused(app: Any) -> None:
    held = claimed(app)
    with pytest.raises(InvalidValue):
        add(app, *[line(held, 1)] * 1001)


def test_lines_are_the_same_after_a_retry_of_the_task(app: Any) -> None:
    held = claimed(app)
    add(app, line(held, 1, "first run"))
    app.fail(held, "no", permanent=True)
    app.retry(held.task_id)
    assert messages(app, held.task_id) == ["first run"]


@pytest.mark.database("tables are read")
def test_a_write_and_a_prune_at_once_leave_no_line_without_a_task(app: Any, url: str) -> None:
    keep(app, **NOTHING)
    claims = [claimed(app) for _ in range(30)]
    writers = [
        threading.Thread(target=lambda held=held: [add(app, line(held, number)) for number in range(1, 20)])
        for held in claims
    ]
    for writer in writers:
        writer.start()
    app.finish([(held, dibs.Completed(None)) for held in claims])
    app.prune()
    for writer in writers:
        writer.join()
    found = tables.read(url)
    assert {row[0] for row in found["dibs_log_lines"]} <= {row[0] for row in found["dibs_tasks"]}
    app.prune()  # of the tasks that the first one has skipped, because lines were being written
    found = tables.read(url)
    assert (found["dibs_tasks"], found["dibs_log_lines"]) == ([], [])


def test_a_line_is_a_value() -> None:
    held = dibs.ClaimRef(7, 2, "worker-1")
    assert msgspec.structs.replace(line(held, 3), message="x").id == "2-3"
    assert [LogLevel.of(number) for number in (0, 5, 10, 25, 30, 45, 99)] == [
        *[LogLevel.DEBUG] * 3, LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR, LogLevel.CRITICAL
    ]  # fmt: skip
