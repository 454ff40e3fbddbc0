"""Outcome hooks: called in the worker after the outcome is stored, at most once; a hook that fails changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dibs
from dibs import Context, EndedAttempt, InvalidValue, NewTask, State
from dibs.testing import isolated
from tests.helpers.each import for_each
from tests.helpers.hooks import app as apart
from tests.helpers.hooks import heard_apart, tells_apart
from tests.helpers.waiting import until

KINDS = ("on_success", "on_error", "on_dead", "on_cancel")


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Notes(list[tuple[str, EndedAttempt]]):
    """Hooks of all kinds that note their calls."""

    def hook(self, kind: str, awaited: bool = False) -> Any:
        async def hook_async(ended: EndedAttempt) -> None:
            self.append((kind, ended))

        def hook(ended: EndedAttempt) -> None:
            self.append((kind, ended))

        return hook_async if awaited else hook

    def on(self, app: dibs.Dibs, awaited: bool = False) -> None:
        for kind in KINDS:
            getattr(app, kind)(self.hook(kind, awaited))

    def of(self, task_id: int) -> list[str]:
        return [kind for kind, ended in self if ended.task.id == task_id]


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_each_outcome_has_its_hooks(app: dibs.Dibs, awaited: bool, lane: str) -> None:
    notes = Notes()
    notes.on(app, awaited)

    def plain(ctx: Context, does: str) -> str:
        if does == "fails" or (does == "recovers" and ctx.attempt == 1):
            raise ValueError("no")
        if does == "snoozes" and ctx.token == 1:
            raise dibs.Snooze(0.01)
        if does == "cancels":
            raise dibs.Cancel
        return does

    async def coroutine(ctx: Context, does: str) -> str:
        return plain(ctx, does)

    job = app.task(name="job", max_attempts=2, backoff=[0])(coroutine if lane == "loop" else plain)
    expected = {
        "completes": ["on_success"],
        "recovers": ["on_error", "on_success"],
        "fails": ["on_error", "on_error", "on_dead"],
        "cancels": ["on_cancel"],
        "snoozes": ["on_success"],
    }
    tasks = {does: job.enqueue(does) for does in expected}
    outside = job.options(delay=3600).enqueue("completes")
    with app.worker(burst=True):
        for task in tasks.values():
            task.wait(30)
        app.cancel(outside.id)
    assert {does: notes.of(task.id) for does, task in tasks.items()} == expected
    assert notes.of(outside.id) == []  # it ended outside of an attempt


def test_a_hook_is_given_the_attempt_after_it_is_stored(app: dibs.Dibs) -> None:
    seen: list[tuple[EndedAttempt, Any]] = []

    @app.lifespan
    def opens() -> Iterator[str]:
        yield "resources"

    def note(ended: EndedAttempt) -> None:
        stored = app.get(ended.task.id)
        seen.append((ended, (stored.state, stored.result, stored.attempts)))

    @app.task(on_success=note, on_error=[note], max_attempts=2, backoff=[0])
    def job(ctx: Context) -> dict[str, int]:
        if ctx.attempt == 1:
            raise ValueError("no")
        return {"n": 1}

    with app.worker():
        task = job.enqueue()
        assert until(lambda: len(seen) == 2)
    (failed, _), (completed, stored) = seen
    assert (failed.attempt, failed.state, failed.will_retry, failed.result) == (1, State.PENDING, True, None)
    assert failed.failure is not None
    assert (failed.failure.type, failed.failure.message) == ("ValueError", "no")
    assert (completed.attempt, completed.state, completed.will_retry) == (2, State.COMPLETED, False)
    assert (completed.result, completed.failure, completed.resources) == ({"n": 1}, None, "resources")
    assert (completed.task.id, completed.token, completed.task.type) == (task.id, 2, "job")
    assert completed.seconds is not None
    assert stored == (State.COMPLETED, {"n": 1}, 2)


def test_hooks_of_the_app_are_called_before_those_of_the_handler_in_their_order(app: dibs.Dibs) -> None:
    calls: list[str] = []
    for name in ("first", "second"):
        app.on_success(lambda ended, name=name: calls.append(name))
    job = app.task(name="job", on_success=[lambda ended: calls.append("third"), lambda ended: calls.append("fourth")])(
        lambda: None
    )
    app.task(name="other")(lambda: None)
    with app.worker(burst=True):
        job.enqueue().wait(30)
        app.enqueue("other").wait(30)
    assert calls == ["first", "second", "third", "fourth", "first", "second"]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_a_hook_that_fails_is_logged_and_changes_nothing(
    app: dibs.Dibs, awaited: bool, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()

    def breaks(ended: EndedAttempt) -> None:
        raise error("broken hook")

    async def breaks_async(ended: EndedAttempt) -> None:
        await asyncio.sleep(0)
        raise ValueError("broken hook")

    app.on_success(breaks_async if awaited else breaks)
    notes.on(app)
    job = app.task(name="job")(lambda: 1)
    with app.worker():
        tasks = [job.enqueue().wait(30) for _ in range(2)]
        assert until(lambda: len(notes) == 2)
    assert [(task.state, task.result, task.attempts) for task in tasks] == [(State.COMPLETED, 1, 1)] * 2
    failed = [entry for entry in caplog.records if getattr(entry, "event", None) == "hook.failed"]
    assert [entry.task_id for entry in failed] == [task.id for task in tasks]  # type: ignore[attr-defined]
    assert "broken hook" in failed[0].getMessage()


def test_a_hook_that_hangs_delays_no_outcome(app: dibs.Dibs) -> None:
    may_go = threading.Event()
    app.on_success(lambda ended: may_go.wait(30))
    job = app.task(name="job")(lambda: None)
    with app.worker():
        assert {job.enqueue().wait(30).state for _ in range(5)} == {State.COMPLETED}
        may_go.set()


def test_a_timeout_and_a_request_to_cancel_have_hooks(app: dibs.Dibs) -> None:
    notes = Notes()
    notes.on(app)
    running = threading.Event()

    @app.task(timeout=0.3, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task
    async def stays() -> None:
        running.set()
        await asyncio.sleep(60)

    with app.worker():
        late, stopped = slow.enqueue(), stays.enqueue()
        assert running.wait(30)
        app.cancel(stopped.id)
        assert until(lambda: len(notes) == 3)
    assert notes.of(late.id) == ["on_error", "on_dead"]
    assert notes.of(stopped.id) == ["on_cancel"]


def test_a_task_whose_claim_was_lost_has_no_hooks(app: dibs.Dibs) -> None:
    notes = Notes()
    notes.on(app)
    began, may_go = threading.Event(), threading.Event()

    @app.task
    def job() -> None:
        began.set()
        may_go.wait(30)

    with app.worker():
        task = job.enqueue()
        assert began.wait(30)
        held = app.get(task.id)
        app.release(dibs.ClaimRef(task.id, held.token, held.worker_id or ""), delay=3600)
        may_go.set()
    assert notes == []


def test_what_a_hook_enqueues_is_done_in_the_same_burst(app: dibs.Dibs) -> None:
    @app.on_success
    def follow(ended: EndedAttempt) -> None:
        if ended.task.type == "first":
            threading.Event().wait(0.3)  # longer than a burst needs to find nothing
            app.enqueue("second")

    app.task(name="first")(lambda: None)
    app.task(name="second")(lambda: None)
    for _ in range(2):
        app.enqueue("first")
    assert app.worker(burst=True).run() == 0
    assert sorted((task.type, task.state.value) for task in app.list_tasks()) == [
        *[("first", "completed")] * 2,
        *[("second", "completed")] * 2,
    ]


def test_the_hooks_of_a_child_process_are_called_in_the_worker(url: str) -> None:
    heard_apart.clear()
    apart.use_url(url)
    with apart, apart.worker(children=1):
        done, died = tells_apart.enqueue("x"), tells_apart.enqueue("dies")
        assert until(lambda: len(heard_apart) == 3, 60)
    assert heard_apart == [(done.id, "x"), (died.id, "ProcessDied"), (died.id, "ProcessDied")]


def test_more_waiting_calls_than_memory_allows_are_dropped_and_logged(
    app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dibs.worker.hook_runner.MAX_WAITING", 3)
    may_go, calls = threading.Event(), []

    @app.on_success
    def slow(ended: EndedAttempt) -> None:
        may_go.wait(30)
        calls.append(ended.task.id)

    job = app.task(name="job")(lambda: None)
    with app.worker():
        tasks = [job.enqueue().wait(30) for _ in range(5)]
        assert until(lambda: any(getattr(entry, "event", None) == "hook.dropped" for entry in caplog.records))
        may_go.set()
    assert calls == [task.id for task in tasks[:3]]


def test_hooks_run_in_tests_as_in_a_worker(app: dibs.Dibs) -> None:
    notes = Notes()
    notes.on(app)
    notes.on(app, awaited=True)

    @app.task(max_attempts=1)
    def job(n: int) -> int:
        return 10 // n

    with isolated(app) as box:
        box.resources = "fake"
        assert box.run_now(job, 5) == 2
        with pytest.raises(ZeroDivisionError):
            box.run_now(job, 0)
    assert [kind for kind, _ in notes] == [*["on_success"] * 2, *["on_error"] * 2, *["on_dead"] * 2]
    assert {ended.resources for _, ended in notes} == {"fake"}

    async def play() -> None:
        with isolated(app) as box:
            assert await box.run_now_async(job, 5) == 2

    notes.clear()
    asyncio.run(play())
    assert [kind for kind, _ in notes] == ["on_success"] * 2


def test_the_worker_of_an_app_without_hooks_has_no_thread_for_them(app: dibs.Dibs) -> None:
    app.task(name="job")(lambda: None)
    with app.worker():
        app.enqueue_many([NewTask("job")])
        assert "dibs-hooks" not in {thread.name for thread in threading.enumerate()}


@for_each("wrong", [7, dict, lambda: None, lambda a, b: None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_hook_is_refused_at_its_declaration(kind: str, wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"not a function|does not take one argument"):
        getattr(dibs.Dibs("sqlite:///nowhere.db"), kind)(wrong)
    with pytest.raises(InvalidValue, match=r"not a function|does not take one argument"):
        dibs.Dibs("sqlite:///nowhere.db").task(name="job", **{kind: wrong})(lambda: None)
