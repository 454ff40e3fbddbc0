"""Captured logs: each line belongs to the attempt that logged it, in every lane; handlers never wait for the store."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import dibs
import dibs.logs
from dibs import InvalidValue, LogCapture, State
from dibs.handlers import running
from dibs.testing import isolated
from dibs.worker import log_writer
from dibs.worker.attempt_log import text_of
from tests.helpers.databases import sqlite_path
from tests.helpers.each import for_each
from tests.helpers.logged import app as apart
from tests.helpers.logged import leaves_a_thread, logs_apart
from tests.helpers.waiting import until

log = logging.getLogger("tests.task_logs")
log.setLevel(logging.DEBUG)


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application whose handlers capture their logs."""
    with dibs.Dibs(url, capture_logs=True) as app:
        yield app


def drain(app: dibs.Dibs, **options: Any) -> None:
    with app.worker(burst=True, **options) as worker:
        until(worker._nothing_is_left, 30)


def messages(app: dibs.Dibs, task_id: int, **options: Any) -> list[str]:
    return [line.message for line in app.logs(task_id, **options)]


# Which lines


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_lines_of_many_tasks_at_once_are_stored_with_their_own_task(app: dibs.Dibs, lane: str) -> None:
    def plain(n: int) -> None:
        for part in range(5):
            log.info("%d.%d", n, part)
            time.sleep(0.001)

    async def coroutine(n: int) -> None:
        for part in range(5):
            log.info("%d.%d", n, part)
            await asyncio.sleep(0.001)

    job = app.task(name="job")(coroutine if lane == "loop" else plain)
    tasks = [job.enqueue(n) for n in range(40)]
    drain(app)
    for n, task in enumerate(tasks):
        assert [line.message for line in task.logs()] == [f"{n}.{part}" for part in range(5)]
        assert [line.number for line in task.logs()] == [1, 2, 3, 4, 5]


def test_a_line_has_the_level_logger_time_and_attempt_of_its_record(app: dibs.Dibs) -> None:
    @app.task(max_attempts=2, backoff=[0])
    def job(ctx: dibs.Context) -> None:
        log.log(35, "attempt %d", ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("no")

    task, began = job.enqueue(), time.time()
    drain(app)
    first, second = task.logs()
    assert (first.attempt, first.token, first.number) == (1, 1, 1)
    assert (second.attempt, second.token, second.number) == (2, 2, 1)
    assert (first.level, first.logger, first.message) == ("warning", "tests.task_logs", "attempt 1")
    assert began - 1 < first.at.timestamp() < time.time() + 1


def test_a_traceback_is_part_of_the_message_and_ctx_log_needs_no_prefix(app: dibs.Dibs) -> None:
    @app.task
    def job(ctx: dibs.Context) -> None:
        ctx.log.warning("hello")
        try:
            raise KeyError("lost")
        except KeyError:
            log.exception("failed with %s", "style")

    task = job.enqueue()
    drain(app)
    hello, failed = messages(app, task.id)
    assert hello == "hello"
    assert failed.startswith("failed with style\nTraceback")
    assert failed.endswith("KeyError: 'lost'")
    wrong = logging.LogRecord("a", logging.INFO, "", 0, "two arguments %s %s", ("one",), None)
    assert text_of(wrong).startswith("'two arguments %s %s' (its arguments do not fit")


def test_secrets_are_masked(app: dibs.Dibs) -> None:
    @app.task
    def job() -> None:
        log.warning("connects to postgresql://me:hunter2@db/x with password=hunter3")

    task = job.enqueue()
    drain(app)
    assert messages(app, task.id) == ["connects to postgresql://me:***@db/x with password=***"]


def test_only_handlers_with_the_option_capture_and_records_outside_of_attempts_are_not(app: dibs.Dibs) -> None:
    @app.task(capture_logs=False)
    def silent() -> None:
        log.warning("silent")

    @app.task
    def loud() -> None:
        log.warning("loud")

    @app.on_success
    def hook(ended: dibs.EndedAttempt) -> None:
        log.warning("after the attempt")

    without, with_lines = silent.enqueue(), loud.enqueue()
    drain(app)
    assert messages(app, without.id) == []
    assert messages(app, with_lines.id) == ["loud"]


def test_records_of_dibs_itself_are_not_captured(app: dibs.Dibs) -> None:
    @app.task
    def job() -> None:
        logging.getLogger("dibs.worker").warning("about the worker")
        logging.getLogger("dibs").warning("about dibs")
        logging.getLogger("dibster").warning("another library")

    task = job.enqueue()
    drain(app)
    assert messages(app, task.id) == ["another library"]


def test_a_thread_of_a_handler_is_captured_if_it_runs_in_a_copy_of_the_context(app: dibs.Dibs) -> None:
    @app.task
    def job() -> None:
        copied = contextvars.copy_context()
        for target in (lambda: log.warning("outside"), lambda: copied.run(log.warning, "inside")):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()

    @app.task
    async def awaits() -> None:
        await asyncio.to_thread(log.warning, "inside")
        await asyncio.gather(asyncio.create_task(_logs()))

    async def _logs() -> None:
        log.warning("task")

    first, second = job.enqueue(), awaits.enqueue()
    drain(app)
    assert messages(app, first.id) == ["inside"]
    assert messages(app, second.id) == ["inside", "task"]


def test_lines_after_the_end_of_an_attempt_are_dropped(app: dibs.Dibs) -> None:
    after, done = threading.Event(), threading.Event()

    @app.task
    def job() -> None:
        copied = contextvars.copy_context()

        def later() -> None:
            after.wait(30)
            copied.run(log.warning, "late")
            done.set()

        threading.Thread(target=later).start()
        log.warning("in time")

    task = job.enqueue()
    with app.worker():
        task.wait(30)
        until(lambda: messages(app, task.id) == ["in time"])
        after.set()
        done.wait(30)
    assert messages(app, task.id) == ["in time"]


def test_a_thread_that_runs_after_its_timeout_logs_under_its_own_attempt(app: dibs.Dibs) -> None:
    timed_out, logged = threading.Event(), threading.Event()

    @app.task(timeout=0.2, max_attempts=2, backoff=[0])
    def job(ctx: dibs.Context) -> None:
        log.warning("attempt %d begins", ctx.attempt)
        if ctx.attempt == 1:
            timed_out.wait(30)
            log.warning("attempt 1 goes on")
            logged.set()

    task = job.enqueue()
    with app.worker():
        task.wait(30)
        timed_out.set()
        logged.wait(30)
        until(lambda: len(messages(app, task.id)) == 3)
    assert messages(app, task.id, attempt=1) == ["attempt 1 begins", "attempt 1 goes on"]
    assert messages(app, task.id, attempt=2) == ["attempt 2 begins"]


# Bounds and filters


def test_lines_beyond_the_bounds_are_dropped_and_counted(app: dibs.Dibs) -> None:
    @app.task(capture_logs=LogCapture(max_lines=3))
    def many() -> None:
        for n in range(10):
            log.warning("line %d", n)

    @app.task(capture_logs=LogCapture(max_bytes=100))
    def long() -> None:
        log.warning("é" * 40)
        log.warning("x" * 30)
        log.warning("short")

    one, two = many.enqueue(), long.enqueue()
    drain(app)
    assert messages(app, one.id) == ["line 0", "line 1", "line 2", "7 more lines were dropped."]
    assert messages(app, two.id) == ["é" * 40, "2 more lines were dropped."]


def test_a_level_is_the_lowest_that_is_captured(app: dibs.Dibs) -> None:
    @app.task(capture_logs=LogCapture(level="error"))
    def quiet() -> None:
        log.warning("no")
        log.error("yes")

    @app.task(capture_logs=LogCapture(level="debug"))
    def verbose() -> None:
        log.debug("yes")

    @app.task
    def standard() -> None:
        log.debug("no")
        log.info("yes")

    tasks = [quiet.enqueue(), verbose.enqueue(), standard.enqueue()]
    drain(app)
    assert [messages(app, task.id) for task in tasks] == [["yes"]] * 3
    assert messages(app, tasks[0].id, level="ERROR") == ["yes"]


def test_a_filter_drops_and_rewrites_copies_of_records(app: dibs.Dibs, caplog: pytest.LogCaptureFixture) -> None:
    def mask(record: logging.LogRecord) -> Any:
        log.warning("a filter that logs is not captured")
        if record.msg == "drop":
            return None
        if record.msg == "keep":
            return True
        record.msg, record.args = f"masked {record.msg}", ()
        return record

    @app.task(capture_logs=LogCapture(filter=mask))
    def job() -> None:
        for text in ("keep", "drop", "other"):
            log.warning(text)

    task = job.enqueue()
    drain(app)
    assert messages(app, task.id) == ["keep", "masked other"]
    assert "masked" not in caplog.text


def test_a_filter_that_fails_drops_its_records_and_is_logged_once(
    app: dibs.Dibs, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise ZeroDivisionError(record.msg)

    @app.task(capture_logs=LogCapture(filter=broken))
    def job() -> None:
        log.warning("one")
        log.warning("two")

    tasks = [job.enqueue(), job.enqueue()]
    drain(app)
    assert [messages(app, task.id) for task in tasks] == [[], []]
    assert [task.wait(0).state for task in tasks] == [State.COMPLETED] * 2
    assert caplog.text.count("the filter test_a_filter_that_fails") == 1


def test_logs_of_batch_handlers_are_not_captured_although_the_app_captures_logs(app: dibs.Dibs) -> None:
    @app.batch_task(wait=0)
    def together(items: Sequence[dibs.BatchItem[dict[str, int]]]) -> list[int]:
        log.warning("together")
        return [len(items) for _ in items]

    @app.task
    def alone() -> None:
        log.warning("alone")

    batched, single = together.enqueue({"page": 1}), alone.enqueue()
    drain(app)
    assert batched.wait(0).result == 1
    assert messages(app, batched.id) == []
    assert messages(app, single.id) == ["alone"]


@for_each("option", [True, LogCapture(level="error")])
def test_a_batch_handler_refuses_to_capture_logs(option: Any) -> None:
    with pytest.raises(InvalidValue, match="logs of a batch handler cannot be captured"):
        dibs.Dibs("sqlite:///never-opened.db").batch_task(capture_logs=option)


@for_each("option", [1, "print", LogCapture])
def test_a_wrong_option_is_refused_where_it_is_declared(option: Any) -> None:
    url = "sqlite:///never-opened.db"
    with pytest.raises(InvalidValue, match="capture_logs"):
        dibs.Dibs(url, capture_logs=option)
    with pytest.raises(InvalidValue, match="capture_logs"):
        dibs.Dibs(url).task(capture_logs=option)


@for_each("values", [{"level": "loud"}, {"max_lines": 0}, {"max_bytes": 0}, {"filter": "x"}, {"prints": 1}])
def test_a_wrong_capture_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        LogCapture(**values)


# Printed text


def test_printed_lines_are_captured_by_option_and_still_printed(
    app: dibs.Dibs, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.task(capture_logs=LogCapture(prints=True))
    def job() -> None:
        print("one", 1)
        print("two\nthree")
        print("\n")
        for percent in (10, 50, 100):
            sys.stderr.write(f"\r{percent} %")
        sys.stdout.writelines(["fo", "ur"])

    @app.task
    def other() -> None:
        print("not captured")

    task, without = job.enqueue(), other.enqueue()
    before = sys.stdout, sys.stderr
    drain(app)
    assert (sys.stdout, sys.stderr) == before
    lines = [(line.logger, line.message) for line in task.logs()]
    assert sorted(lines[:3]) == sorted([("stdout", "one 1"), ("stdout", "two"), ("stdout", "three")])
    assert sorted(lines[3:]) == [("stderr", "100 %"), ("stdout", "four")]
    assert messages(app, without.id) == []
    printed = capsys.readouterr()
    assert "two\nthree\n" in printed.out
    assert "not captured\n" in printed.out
    assert printed.err.endswith("\r100 %")


def test_what_a_log_handler_writes_to_a_stream_is_captured_once(app: dibs.Dibs) -> None:
    class Late(logging.StreamHandler[Any]):
        """Writes to what sys.stderr is at the time."""

        def emit(self, record: logging.LogRecord) -> None:
            self.stream = sys.stderr
            super().emit(record)

    @app.task(capture_logs=LogCapture(prints=True))
    def job() -> None:
        log.warning("once")

    handler = Late()
    log.addHandler(handler)
    try:
        task = job.enqueue()
        drain(app)
    finally:
        log.removeHandler(handler)
    assert messages(app, task.id) == ["once"]


# Child processes


def test_a_child_process_sends_what_it_logs_and_prints(url: str) -> None:
    with apart:
        apart.use_url(url)
        task = logs_apart.enqueue()
        drain(apart, children=1)
        assert [(line.logger, line.message) for line in task.logs()] == [
            ("tests.logged", "one ?"),
            ("stdout", "two 2"),
            ("dibs.task", "four"),
            ("stderr", "three"),
        ]


def test_a_child_that_is_killed_loses_nothing_that_it_has_logged(url: str) -> None:
    with apart:
        apart.use_url(url)
        task = logs_apart.enqueue(dies=True)
        drain(apart, children=1)
        assert task.wait(0).error.type == "ProcessDied"  # type: ignore[union-attr]
        assert [line.message for line in task.logs()] == ["one ?", "two 2", "four"]


def test_records_of_a_child_get_the_fields_of_the_attempt(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.addFilter(fields := dibs.logs.TaskFields())
    try:
        with apart:
            apart.use_url(url)
            task = logs_apart.enqueue()
            drain(apart, children=1)
    finally:
        caplog.handler.removeFilter(fields)
    [record] = (record for record in caplog.records if record.name == "tests.logged")
    assert (record.task_id, record.task_type) == (task.id, "logs_apart")  # type: ignore[attr-defined]


def test_a_log_that_is_written_while_another_line_is_added_does_not_block(app: dibs.Dibs) -> None:
    class Collected:
        """What the garbage collector may do at any time, also while a lock is held."""

        def __eq__(self, other: object) -> bool:
            log.warning("nested")
            return NotImplemented

        __hash__ = None  # type: ignore[assignment]

    @app.task
    def job() -> None:
        context = running.current.get()
        assert context is not None
        sink: Any = context.sink
        put = sink._put

        def put_and_collect(line: dibs.LogLine, forced: bool) -> bool:
            assert line.message == "nested" or Collected() != 1
            return bool(put(line, forced))

        sink._put = put_and_collect
        log.warning("outer")

    task = job.enqueue()
    drain(app)
    assert sorted(messages(app, task.id)) == ["nested", "outer"]


def test_a_thread_that_a_handler_leaves_in_a_child_belongs_to_no_attempt(url: str) -> None:
    with apart:
        apart.use_url(url)
        tasks = [leaves_a_thread.enqueue(), *[logs_apart.enqueue() for _ in range(5)]]
        drain(apart, children=1)
        for task in tasks:
            assert "stray" not in [line.message for line in task.logs()]


# Writing


def test_lines_are_written_while_the_attempt_runs_and_soon_after_its_end(app: dibs.Dibs) -> None:
    go_on = threading.Event()

    @app.task
    def job() -> None:
        log.warning("begins")
        go_on.wait(30)
        log.warning("ends")

    task = job.enqueue()
    with app.worker():
        until(lambda: messages(app, task.id) == ["begins"], 10)
        assert app.get(task.id).state is State.CLAIMED  # type: ignore[union-attr]
        go_on.set()
        task.wait(30)
        until(lambda: messages(app, task.id) == ["begins", "ends"], 10)


def test_a_stopping_worker_writes_the_lines_of_attempts_that_it_releases(app: dibs.Dibs) -> None:
    began = threading.Event()

    @app.task
    def job(ctx: dibs.Context) -> None:
        log.warning("begins")
        began.set()
        while not ctx.cancelled:
            time.sleep(0.01)

    task = job.enqueue()
    with app.worker(grace=0):
        began.wait(30)
    assert messages(app, task.id) == ["begins"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_handlers_do_not_wait_while_the_store_is_locked(app: dibs.Dibs, url: str) -> None:
    logged = threading.Event()
    locked = threading.Event()

    @app.task
    def job() -> None:
        locked.wait(30)
        for n in range(500):
            log.warning("line %d", n)
        logged.set()

    task = job.enqueue()
    with app.worker():
        until(lambda: app.get(task.id).state is State.CLAIMED, 30)  # type: ignore[union-attr]
        other = sqlite3.connect(sqlite_path(url), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        locked.set()
        assert logged.wait(5)
        other.execute("ROLLBACK")
        other.close()
        task.wait(30)
        until(lambda: len(messages(app, task.id)) == 500, 30)


def test_lines_that_find_no_room_are_dropped_and_counted(app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "MAX_PENDING", 4)
    monkeypatch.setattr(log_writer, "INTERVAL", 60.0)

    @app.task
    def job() -> None:
        for n in range(10):
            log.warning("line %d", n)

    task = job.enqueue()
    drain(app)
    assert messages(app, task.id) == ["line 0", "line 1", "line 2", "line 3", "6 more lines were dropped."]


def test_more_lines_than_a_batch_are_all_written(app: dibs.Dibs) -> None:
    @app.task(capture_logs=LogCapture(max_lines=5000))
    def job() -> None:
        for n in range(2500):
            log.warning("%d", n)

    task = job.enqueue()
    drain(app)
    assert messages(app, task.id) == [str(n) for n in range(2500)]


def test_a_worker_without_the_option_has_no_thread_and_no_log_handler(url: str) -> None:
    with dibs.Dibs(url) as app:

        @app.task
        def job() -> None:
            log.warning("not captured")

        task, before = job.enqueue(), logging.getLogger().handlers[:]
        with app.worker(burst=True) as worker:
            task.wait(30)
            assert "dibs-logs" not in {thread.name for thread in threading.enumerate()}
            assert logging.getLogger().handlers == before
            assert worker._log_writer is None
        assert messages(app, task.id) == []


UNCONFIGURED = """
import logging, sys, dibs
app = dibs.Dibs(sys.argv[1], capture_logs=True)
@app.task
def job():
    logging.getLogger("a").info("info")
    logging.getLogger("a").warning("warning")
task = job.enqueue()
app.worker(burst=True).run()
print(*[line.message for line in task.logs()], logging.getLogger().handlers, logging.getLogger().level)
"""


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_program_without_logging_configuration_captures_info_and_prints_warnings_as_before(url: str) -> None:
    ran = subprocess.run([sys.executable, "-c", UNCONFIGURED, url], capture_output=True, text=True, check=True)
    assert ran.stdout == "info warning [] 30\n"
    assert "warning\n" in ran.stderr
    assert "info" not in ran.stderr


# The task in other log entries, and tests


def test_records_get_the_fields_of_the_attempt(app: dibs.Dibs, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(capture_logs=False, queue="mail")
    def job(ctx: dibs.Context) -> dict[str, Any]:
        log.warning("with fields", extra={"queue": "mine"})
        return dibs.logs.task_fields()

    caplog.handler.addFilter(fields := dibs.logs.TaskFields())
    try:
        task = job.enqueue()
        drain(app, worker_id="worker-1")
        log.warning("outside")
    finally:
        caplog.handler.removeFilter(fields)
    inside, outside = (record for record in caplog.records if record.name == log.name)
    about = {"task_id": task.id, "task_type": "job", "queue": "mail", "attempt": 1, "token": 1, "worker_id": "worker-1"}
    assert app.get(task.id).result == about  # type: ignore[union-attr]
    assert {name: getattr(inside, name) for name in about} == {**about, "queue": "mine"}
    assert {name: getattr(outside, name) for name in about} == dict.fromkeys(about)


def test_captured_lines_are_readable_in_tests(url: str) -> None:
    app = dibs.Dibs(url)

    @app.task(capture_logs=LogCapture(prints=True))
    def job(n: int) -> None:
        logging.getLogger("tests.other").info("runs %d", n)  # below the level of the root logger
        print("printed")

    @app.task(capture_logs=True, max_attempts=1)
    async def fails() -> None:
        log.warning("fails")
        raise ValueError("no")

    before = logging.getLogger().handlers[:], logging.getLogger().level
    with isolated(app) as box:
        box.run_now(job, 1)
        job.enqueue(2)
        fails.enqueue()
        tasks = box.drain()
        assert [messages(app, task.id) for task in tasks] == [["runs 2", "printed"], ["fails"]]
        assert messages(app, 1) == ["runs 1", "printed"]
    assert (logging.getLogger().handlers, logging.getLogger().level) == before


def test_capturing_lowers_no_level_for_other_log_handlers(app: dibs.Dibs) -> None:
    written: list[str] = []

    class Other(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    plain, verbose = logging.getLogger("tests.plain"), logging.getLogger("tests.verbose")
    verbose.setLevel(logging.DEBUG)

    @app.task
    def job() -> None:
        plain.info("of a logger without a level")
        plain.warning("a warning")
        verbose.info("of a logger with a level")

    root, other = logging.getLogger(), Other()
    root.addHandler(other)
    before = root.level
    try:
        task = job.enqueue()
        drain(app)
    finally:
        root.removeHandler(other)
    assert messages(app, task.id) == ["of a logger without a level", "a warning", "of a logger with a level"]
    assert [each for each in written if each in messages(app, task.id)] == ["a warning", "of a logger with a level"]
    assert (root.level, other.filters) == (before, [])
