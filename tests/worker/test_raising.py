"""Every exception, result or invalid argument of a handler ends its attempt, and nothing else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import dibs
from dibs import Backoff, Cancel, Permanent, Retry, Snooze, State
from tests.helpers.tasks import events
from tests.helpers.waiting import until


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Odd(BaseException):
    """Not even an Exception."""


@pytest.mark.parametrize(
    "raised", [ValueError, Odd, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
def test_every_exception_fails_the_attempt_and_the_worker_continues(
    app: dibs.Dibs, raised: type[BaseException]
) -> None:
    @app.task(max_attempts=1)
    def plain() -> None:
        raise raised("no")

    @app.task(max_attempts=1)
    async def coroutine() -> None:
        raise raised("no")

    @app.task
    def fine() -> str:
        return "fine"

    @app.task
    async def fine_too() -> str:
        return "fine"

    with app.worker(concurrency=1, lease=60):
        for handler in (plain, coroutine):
            task = handler.enqueue().wait(30)
            assert task.state is State.FAILED
            assert (task.error.type, task.error.message) == (raised.__qualname__, "no")
            assert "raise raised" in task.error.traceback
        assert [handler.enqueue().wait(30).result for handler in (fine, fine_too)] == ["fine", "fine"]


def test_a_failed_attempt_is_tried_again_with_backoff_until_none_is_left(app: dibs.Dibs) -> None:
    seen: list[int] = []

    @app.task(max_attempts=3, backoff=Backoff(0.02, 0.02))
    def fails(ctx: dibs.Context) -> None:
        seen.append(ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt}")

    with app.worker():
        task = fails.enqueue().wait(30)
    assert seen == [1, 2, 3]
    assert (task.state, task.attempts, task.error.message) == (State.FAILED, 3, "attempt 3")


def test_retry_sets_the_delay_and_keeps_the_cause(app: dibs.Dibs) -> None:
    @app.task(max_attempts=2, backoff=Backoff(300, 300))
    def again(ctx: dibs.Context) -> int:
        if ctx.attempt == 1:
            raise Retry(0.05) from ValueError("the cause")
        return ctx.attempt

    with app.worker():
        task = again.enqueue().wait(30)
    assert (task.result, task.attempts) == (2, 2)
    [failed] = [entry for entry in app.history(task.id) if entry.event.value == "failed"]
    assert (failed.to_state, failed.detail["message"]) == (State.SCHEDULED, "the cause")


def test_snooze_spends_no_attempt(app: dibs.Dibs) -> None:
    @app.task(max_attempts=1)
    def later(ctx: dibs.Context) -> list[int]:
        if ctx.token < 4:
            raise Snooze(0.02)
        return [ctx.token, ctx.attempt]

    with app.worker():
        task = later.enqueue().wait(30)
    assert (task.result, task.attempts) == ([4, 1], 1)
    assert events(app, task.id).count("released") == 3


def test_permanent_sends_the_task_to_the_dead_letter_at_once(app: dibs.Dibs) -> None:
    @app.task(max_attempts=5)
    def hopeless() -> None:
        raise Permanent("no such customer")

    with app.worker():
        task = hopeless.enqueue().wait(30)
    assert (task.state, task.attempts, task.error.message) == (State.FAILED, 1, "no such customer")


def test_permanent_keeps_its_message_and_the_traceback_of_its_cause(app: dibs.Dibs) -> None:
    @app.task(max_attempts=3)
    def parse() -> None:
        try:
            int("x")
        except ValueError as error:
            raise Permanent("bad input") from error

    @app.task(max_attempts=3)
    def parse_silently() -> None:
        raise Permanent from KeyError("who")

    with app.worker():
        task, silent = parse.enqueue().wait(30), parse_silently.enqueue().wait(30)
    assert (task.error.type, task.error.message, task.error.permanent) == ("ValueError", "bad input", True)
    assert "invalid literal for int()" in task.error.traceback
    assert (silent.error.type, silent.error.message, silent.error.permanent) == ("KeyError", "'who'", True)


def test_retry_keeps_a_message_of_its_own_and_the_traceback_of_its_cause(app: dibs.Dibs) -> None:
    @app.task(max_attempts=1)
    def again() -> None:
        raise Retry(5, "the upstream is busy") from ValueError("the cause")

    with app.worker():
        task = again.enqueue().wait(30)
    assert (task.error.type, task.error.message, task.error.permanent) == ("ValueError", "the upstream is busy", False)
    assert "the cause" in task.error.traceback


def test_a_permanent_failure_is_marked_as_permanent_in_the_log(
    app: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=3)
    def hopeless() -> None:
        raise Permanent("no such customer")

    with app.worker():
        hopeless.enqueue().wait(30)
    told = [record.message for record in caplog.records if "(hopeless, " in record.message]
    assert len(told) == 1
    assert told[0].endswith("Permanent: no such customer; the failure is permanent, the task is in the dead letter")


def test_cancel_ends_the_task_as_cancelled(app: dibs.Dibs) -> None:
    @app.task
    def enough() -> None:
        raise Cancel("nobody needs it")

    @app.task
    async def enough_too() -> None:
        raise Cancel("nobody needs it")

    with app.worker():
        assert enough.enqueue().wait(30).state is State.CANCELLED
        assert enough_too.enqueue().wait(30).state is State.CANCELLED


@dataclass
class Size:
    """A result that is not JSON, but easily made so."""

    width: int
    at: datetime


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("returned", "kept"),
    [
        (None, None),
        ({"a": [1, 2.5, "x", None, True]}, {"a": [1, 2.5, "x", None, True]}),
        (Size(3, MOMENT), {"width": 3, "at": "2026-01-02T03:04:05.678901Z"}),
        (MOMENT, "2026-01-02T03:04:05.678901Z"),
        ((1, {2: "two"}), [1, {"2": "two"}]),
    ],
)
def test_a_result_is_stored_as_json(app: dibs.Dibs, returned: Any, kept: Any) -> None:
    @app.task
    def give() -> Any:
        return returned

    @app.task
    async def give_too() -> Any:
        return returned

    with app.worker():
        for task in (give.enqueue(), give_too.enqueue()):
            done = task.wait(30)
            assert (done.state, done.result) == (State.COMPLETED, kept)


@pytest.mark.parametrize("returned", [object(), float("nan"), {"a": 2**70}, "\ud800", sys])
def test_a_result_that_is_not_json_fails_permanently_with_a_message(app: dibs.Dibs, returned: Any) -> None:
    @app.task(max_attempts=5)
    def give() -> Any:
        return returned

    @app.task
    def fine() -> None: ...

    with app.worker():
        task, neighbour = app.enqueue_many([give.new(), fine.new()])
        dead = task.wait(30)
        assert neighbour.wait(30).state is State.COMPLETED
    assert (dead.state, dead.attempts, dead.result) == (State.FAILED, 1, None)
    print(dead.error.type, dead.error.message)
    assert dead.error.type == "InvalidValue"


@pytest.mark.parametrize(
    ("params", "complaint"),
    [({}, "width"), ({"width": "wide"}, "width"), ({"width": 1, "hight": 2}, "hight"), ({"width": None}, "width")],
)
def test_params_that_do_not_fit_the_handler_fail_permanently_with_a_message(
    app: dibs.Dibs, params: dict[str, Any], complaint: str
) -> None:
    @app.task(max_attempts=5, register_schema=False)  # with the schema, the enqueue would be refused
    def resize(width: int, height: int = 3) -> None:
        raise AssertionError("it must not be called")

    with app.worker():
        dead = app.enqueue("resize", params, max_attempts=5).wait(30)
    assert (dead.state, dead.attempts) == (State.FAILED, 1)
    assert dead.error.type == "InvalidValue"
    assert "resize" in dead.error.message
    assert complaint in dead.error.message


def test_an_error_text_that_no_database_can_store_is_stored_with_replacements(app: dibs.Dibs) -> None:
    @app.task(max_attempts=1)
    def nasty() -> None:
        raise ValueError("nul \x00, surrogate \ud800, " + "long " * 100_000)

    with app.worker():
        task = nasty.enqueue().wait(30)
    assert task.state is State.FAILED
    assert "long long" in task.error.message


def test_a_type_without_a_handler_is_left_alone(app: dibs.Dibs) -> None:
    @app.task
    def known() -> None: ...

    foreign = app.enqueue("unknown")
    with app.worker():
        assert known.enqueue().wait(30).state is State.COMPLETED
    assert app.get(foreign.id) == foreign


def test_an_outcome_is_written_although_another_outcome_of_its_batch_cannot_be(app: dibs.Dibs) -> None:
    @app.task(max_attempts=1)
    def give(what: int) -> Any:
        return float("inf") if what == 7 else what

    tasks = app.enqueue_many([give.new(what) for what in range(20)])
    with app.worker():
        until(lambda: all(task.wait(30) for task in tasks))
    ends = [task.wait(0).state for task in tasks]
    assert [n for n, state in enumerate(ends) if state is not State.COMPLETED] == [7]


def test_a_failed_attempt_is_one_line_in_the_log(app: dibs.Dibs, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(max_attempts=2, backoff=Backoff(0.01, 0.01))
    def stumble() -> None:
        raise ValueError("no\nway")

    with app.worker():
        task = stumble.enqueue()
        assert task.wait(30).state is State.FAILED
    told = [record.message for record in caplog.records if "(stumble, " in record.message]
    assert len(told) == 2
    assert told[0].startswith(f"task {task.id} (stumble, attempt 1) failed: ValueError: no; the next attempt is due at")
    assert told[1] == f"task {task.id} (stumble, attempt 2) failed: ValueError: no; the task is in the dead letter"
