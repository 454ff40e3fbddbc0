"""Batch handlers: many tasks in one call, each with its own claim, outcome, timeout and retries, in every lane."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dibs
from dibs import BatchItem, ClaimRef, Released, State
from dibs.testing import isolated
from tests.helpers import batches
from tests.helpers.batches import Document, Items, indexed
from tests.helpers.consistency import all_tasks, assert_balanced
from tests.helpers.tasks import events
from tests.helpers.waiting import let_pass, until
from tests.helpers.workers import WorkerProcesses

FOREVER = 3600.0
LANES = ("thread", "loop", "process")


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


@pytest.fixture
def apart(url: str) -> Iterator[dibs.Dibs]:
    """The application whose handlers child processes and worker processes import."""
    batches.app.use_url(url)
    with batches.app as app:
        yield app


def declare(app: dibs.Dibs, lane: str, function: Callable[[Items], Any] = indexed, **options: Any) -> Any:
    """A batch handler in this lane."""

    def plain(items: Items) -> list[Any]:
        return function(items)  # type: ignore[no-any-return]

    async def coroutine(items: Items) -> list[Any]:
        returned = function(items)
        return await returned if asyncio.iscoroutine(returned) else returned  # type: ignore[no-any-return]

    return app.batch_task(name="index", **options)(coroutine if lane == "loop" else plain)


def handler_of(app: dibs.Dibs, apart: dibs.Dibs, lane: str, **options: Any) -> Any:
    return batches.index_apart if lane == "process" else declare(app, lane, size=20, wait=0.05, **options)


def stored(app: dibs.Dibs, tasks: Sequence[dibs.Task]) -> list[dibs.Task]:
    return [app.wait(task.id, 30) for task in tasks]


# Outcomes


@pytest.mark.parametrize("lane", LANES)
def test_a_call_has_up_to_size_tasks_and_an_outcome_for_each(app: dibs.Dibs, apart: dibs.Dibs, lane: str) -> None:
    handler = handler_of(app, apart, lane)
    does = {"fail": State.SCHEDULED, "retry": State.SCHEDULED, "snooze": State.SCHEDULED, "give up": State.FAILED}
    good = app.enqueue_many([handler.new(Document(str(n))) for n in range(45)])
    other = {kind: app.enqueue_many([handler.new(Document("x", kind))])[0] for kind in [*does, "cancel"]}
    misfit = app.enqueue(handler.name, {"titel": "x"})
    owner = apart if lane == "process" else app
    with owner.worker(children=1):
        done = stored(app, good)
        assert (app.wait(misfit.id, 30).error.type, app.get(misfit.id).error.permanent) == ("InvalidValue", True)
        assert app.wait(other["cancel"].id, 30).state is State.CANCELLED
        for kind, state in does.items():
            until(lambda kind=kind, state=state: app.get(other[kind].id).state is state or kind == "fail")
    assert {task.state for task in done} == {State.COMPLETED}
    assert max(task.result["of"] for task in done) == 20
    assert [task.result["token"] for task in done] == [task.token for task in done]
    assert (app.get(other["snooze"].id).attempts, app.get(other["retry"].id).attempts) == (0, 1)
    assert app.get(other["give up"].id).error.message == "never"
    assert app.get(other["fail"].id).error.type == "ValueError"


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_an_exception_fails_all_tasks_and_each_has_its_own_retries(app: dibs.Dibs, lane: str) -> None:
    def function(items: Items) -> Any:
        if items[0].ctx.attempt == 1:
            raise TimeoutError("all of them")
        return indexed(items)

    handler = declare(app, lane, function, size=2, wait=FOREVER, backoff=[0], give_up_on=ValueError)
    last, again = app.enqueue_many([handler.options(max_attempts=1).new(Document("a")), handler.new(Document("b"))])
    with app.worker():
        assert app.wait(last.id, 30).error.message == "all of them"
        until(lambda: app.get(again.id).state is State.CLAIMED)  # alone, it waits for another one
        handler.enqueue(Document("c"))
        assert app.wait(again.id, 30).state is State.COMPLETED
    assert [app.get(each.id).attempts for each in (last, again)] == [1, 2]


@pytest.mark.parametrize(
    "returned", [None, [1], [1, 2, 3], "ab", {1: 2, 3: 4}, iter([1, 2])], ids=lambda each: type(each).__name__
)
def test_anything_but_one_outcome_for_each_task_fails_all_with_a_clear_error(returned: Any) -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    handler = declare(app, "thread", lambda items: returned, max_attempts=1)
    with isolated(app) as box:
        errors = box.run_batch(handler, [Document("a"), Document("b")])
    for error in errors:
        assert "The batch handler 'index' returned" in str(error)
        assert "for 2 items" in str(error)


def test_retry_rules_judge_the_exception_of_each_task() -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")

    def function(items: Items) -> list[Exception]:
        return [KeyError("gone") if item.value.does == "fail" else TimeoutError("slow") for item in items]

    handler = declare(app, "thread", function, retry_on=TimeoutError, backoff=lambda attempt, error: 7)
    with isolated(app) as box:
        dead, late = handler.enqueue(Document("a", "fail")), handler.enqueue(Document("b"))
        assert [task.id for task in box.drain()] == [dead.id]
        assert app.get(dead.id).error.permanent
        assert (app.get(late.id).run_at - box.clock.now).total_seconds() == 7


def test_a_result_that_cannot_be_stored_fails_its_task_alone(apart: dibs.Dibs) -> None:
    handler = batches.unpackable_apart
    tasks = apart.enqueue_many([handler.new(Document("a", does)) for does in ("fail", "index")])
    with apart.worker(children=1):
        states = [task.state for task in stored(apart, tasks)]
    assert states == [State.FAILED, State.COMPLETED]
    assert "cannot be stored" in apart.get(tasks[0].id).error.message


# Collecting


def test_a_full_batch_starts_at_once_and_an_incomplete_one_after_wait(app: dibs.Dibs) -> None:
    handler = declare(app, "thread", size=3, wait=FOREVER)
    with app.worker():
        tasks = app.enqueue_many([handler.new(Document("a")) for _ in range(4)])
        until(lambda: app.get(tasks[-1].id).state is State.CLAIMED)
        done = stored(app, tasks[:3])
        assert {task.result["of"] for task in done} == {3}
        later = app.enqueue_many([handler.new(Document("a")) for _ in range(2)])
        assert {task.result["of"] for task in stored(app, [tasks[3], *later])} == {3}
    app.handlers.clear()
    handler = declare(app, "thread", size=3, wait=0.2)
    with app.worker():
        began = time.monotonic()
        assert app.wait(handler.enqueue(Document("a")).id, 30).result["of"] == 1
        assert time.monotonic() - began > 0.19


def test_a_burst_does_not_wait_for_further_tasks(app: dibs.Dibs) -> None:
    handler = declare(app, "loop", size=100, wait=FOREVER)
    tasks = app.enqueue_many([handler.new(Document("a")) for _ in range(250)])
    assert app.worker(burst=True).run() == 0
    assert sorted({task.result["of"] for task in stored(app, tasks)}) == [50, 100]


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_a_worker_that_stops_releases_the_tasks_that_wait_for_others(app: dibs.Dibs, lane: str) -> None:
    handler = declare(app, lane, wait=FOREVER)
    task = handler.enqueue(Document("a"))
    with app.worker():
        until(lambda: app.get(task.id).state is State.CLAIMED)
    assert (app.get(task.id).state, app.get(task.id).attempts) == (State.PENDING, 0)
    assert events(app, task.id) == ["enqueued", "claimed", "released"]


def test_the_leases_of_waiting_tasks_are_renewed_and_a_cancel_request_takes_effect(app: dibs.Dibs) -> None:
    called: list[str] = []

    def function(items: Items) -> list[int]:
        called.extend(item.value.title for item in items)
        return [0 for _ in items]

    handler = declare(app, "thread", function, size=2, wait=FOREVER)
    with app.worker(lease=1, upkeep_every=0.1):
        unwanted = handler.enqueue(Document("unwanted"))
        until(lambda: app.get(unwanted.id).state is State.CLAIMED)
        app.cancel(unwanted.id)
        let_pass(2)  # two leases: the claim is neither lost nor run
        assert app.get(unwanted.id).token == 1
        wanted = handler.enqueue(Document("wanted"))
        assert app.wait(wanted.id, 30).state is State.COMPLETED
        assert app.wait(unwanted.id, 30).state is State.CANCELLED
    assert called == ["wanted"]


def test_a_task_that_expires_while_it_waits_for_others_does_not_start(app: dibs.Dibs) -> None:
    handler = declare(app, "thread", size=2, wait=FOREVER)
    late = handler.options(expires_in=1).enqueue(Document("late"))
    with app.worker(upkeep_every=0.1):
        until(lambda: app.get(late.id).state is State.CLAIMED)
        let_pass(1.1)
        task = handler.options(expires_in=60).enqueue(Document("in time"))
        assert app.wait(task.id, 30).result["of"] == 1
        assert app.wait(late.id, 30).expired


def test_a_task_with_a_limit_waits_for_a_permit_and_not_for_its_batch(app: dibs.Dibs) -> None:
    app.limit("index", max=3)
    handler = declare(app, "thread", wait=0.05, limits=["index"])
    tasks = app.enqueue_many([handler.new(Document("a")) for _ in range(10)])
    with app.worker():
        done = stored(app, tasks)
    assert max(task.result["of"] for task in done) == 3


def test_a_task_with_a_limit_has_its_turn_while_others_fill_all_batches(
    app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.worker.lanes.IN_TURN_INTERVAL", 0.1)
    over = threading.Event()

    def function(items: Items) -> list[Any]:
        if not over.is_set():
            app.enqueue_many([handler.options(priority=1).new(Document("a")) for _ in items])  # there are always others
        return indexed(items)

    app.limit("index", max=3)
    handler = declare(app, "thread", function, size=5, wait=0)
    app.enqueue_many([handler.options(priority=1).new(Document("a")) for _ in range(40)])
    limited = handler.options(limits=["index"], priority=1).enqueue(Document("limited"))
    with app.worker(concurrency=2):
        done = app.wait(limited.id, 30)
        over.set()
    assert done.state is State.COMPLETED


@pytest.mark.parametrize("ordinary", ["short", "long"])
def test_batches_and_ordinary_tasks_take_turns_in_one_place(app: dibs.Dibs, ordinary: str) -> None:
    handler = declare(app, "thread", size=10, wait=0)
    over = threading.Event()

    @app.task
    def other() -> None:
        if ordinary == "long":
            time.sleep(0.06)
        if not over.is_set():
            app.enqueue_many([other.new() for _ in range(2)])  # there is always another one

    app.enqueue_many([other.new() for _ in range(50)])
    with app.worker(concurrency=1, grace=0):
        until(lambda: len(app.list_tasks(state="completed", type="other", limit=100)) > 3)
        tasks = app.enqueue_many([handler.new(Document("a")) for _ in range(20)])
        done = stored(app, tasks)
        over.set()
    assert {task.state for task in done} == {State.COMPLETED}


# Stopping


@pytest.mark.parametrize("lane", LANES)
def test_a_cancel_request_reaches_one_task_of_a_running_call(
    app: dibs.Dibs, apart: dibs.Dibs, lane: str, tmp_path: Path
) -> None:
    async def coroutine(items: Items) -> list[Any]:
        batches.note(items)
        while not (tmp_path / "go").exists():  # noqa: ASYNC110 (child processes wait for the file too)
            await asyncio.sleep(0.005)
        return [dibs.Cancel() if item.ctx.cancelled else indexed([item])[0] for item in items]

    def plain(items: Items) -> Any:
        return asyncio.run(coroutine(items))

    owner = apart if lane == "process" else app
    handler = batches.index_apart if lane == "process" else declare(app, lane, coroutine if lane == "loop" else plain)
    does = "stay" if lane == "process" else "index"
    first, second = app.enqueue_many([handler.new(Document(name, does, str(tmp_path))) for name in ("a", "b")])
    with owner.worker(children=1):
        until((tmp_path / "b.1.began").exists)
        app.cancel(first.id)
        if lane != "process":  # there, the handler goes on with the second when the first is cancelled
            let_pass(1)
        (tmp_path / "go").touch()
        assert app.wait(second.id, 30).state is State.COMPLETED
        expected = State.COMPLETED if lane == "process" else State.CANCELLED
        assert app.wait(first.id, 30).state is expected


@pytest.mark.parametrize("lane", LANES)
def test_each_task_has_its_own_timeout_and_the_last_one_stops_the_call(
    app: dibs.Dibs, apart: dibs.Dibs, lane: str, tmp_path: Path
) -> None:
    stopped = threading.Event()

    async def coroutine(items: Items) -> list[Any]:
        batches.note(items)
        try:
            await asyncio.sleep(60 if items[0].ctx.attempt == 1 else 0)
        finally:
            stopped.set()
        return indexed(items)

    def plain(items: Items) -> Any:
        batches.note(items)
        while items[0].ctx.attempt == 1 and not all(item.ctx.cancelled for item in items):
            time.sleep(0.005)
        stopped.set()
        return indexed(items)

    owner = apart if lane == "process" else app
    options: dict[str, Any] = {"concurrency": 1} if lane == "thread" else {}
    if lane == "process":
        handler: Any = batches.index_apart
    else:
        handler = declare(app, lane, coroutine if lane == "loop" else plain, wait=0.05, backoff=[0])
    new = [
        handler.options(timeout=timeout).new(Document(str(timeout), "stay", str(tmp_path))) for timeout in (0.5, 1.5)
    ]
    quick, slow = app.enqueue_many(new)
    with owner.worker(children=1, **options):
        until((tmp_path / "1.5.1.began").exists)
        until(lambda: app.get(quick.id).error is not None)
        assert app.get(slow.id).state is State.CLAIMED
        assert not stopped.is_set()
        assert app.get(quick.id).error.type == "TimedOut"
        until(lambda: app.get(slow.id).error is not None)
        assert lane == "process" or stopped.wait(10)
        (tmp_path / "go").touch()
        done = stored(app, [quick, slow])
    assert {(task.state, task.attempts) for task in done} == {(State.COMPLETED, 2)}


def test_a_task_whose_claim_is_lost_is_refused_alone(app: dibs.Dibs) -> None:
    go, seen = threading.Event(), threading.Event()

    def function(items: Items) -> Any:
        if items[0].ctx.token == 1:
            seen.set()
            until(lambda: items[0].ctx.cancelled)
            assert not items[1].ctx.cancelled
            go.wait(30)
        return indexed(items)

    handler = declare(app, "thread", function, size=2, wait=FOREVER)
    tasks = app.enqueue_many([handler.new(Document("a")), handler.new(Document("b"))])
    with app.worker(worker_id="w-1"):
        assert seen.wait(30)
        app.finish([(ClaimRef(tasks[0].id, 1, "w-1"), Released())])
        until(lambda: app.get(tasks[0].id).token == 2)  # the same worker has claimed it again
        go.set()
        assert app.wait(tasks[1].id, 30).result["token"] == 1
        handler.enqueue(Document("c"))
        assert app.wait(tasks[0].id, 30).result["token"] == 2
    assert_balanced(app)


def test_a_running_call_is_released_when_the_grace_period_is_over(app: dibs.Dibs) -> None:
    began = threading.Event()

    async def coroutine(items: Items) -> None:
        began.set()
        await asyncio.sleep(60)

    handler = declare(app, "loop", coroutine, wait=0)
    tasks = app.enqueue_many([handler.new(Document("a")) for _ in range(3)])
    with app.worker(grace=0):
        assert began.wait(30)
    assert {(app.get(task.id).state, app.get(task.id).attempts) for task in tasks} == {(State.PENDING, 0)}


# Death


def test_a_task_that_kills_its_worker_ends_in_the_dead_letter_and_the_others_of_its_batch_do_not(
    apart: dibs.Dibs, workers: WorkerProcesses
) -> None:
    new = [batches.index.options(max_attempts=2).new(Document(str(n), "die" if n == 7 else "index")) for n in range(20)]
    tasks = apart.enqueue_many(new)

    def over() -> bool:
        if not any(worker.process.poll() is None for worker in workers.all):
            workers.start(program="tests.helpers.work_batches", lease=1, upkeep_every=0.1, concurrency=1)
        return all(task.finished for task in all_tasks(apart))

    until(over, 60)
    assert [task.title for task in map(_document, apart.list_tasks(state="failed"))] == ["7"]
    others = [apart.get(task.id) for task in tasks if task.params["title"] != "7"]
    assert {task.attempts for task in others} == {1}
    assert_balanced(apart, [State.COMPLETED, State.FAILED])


def _document(task: dibs.Task) -> Document:
    return msgspec.convert(task.params, Document)


def test_a_task_that_kills_its_child_process_is_tried_again_alone(apart: dibs.Dibs) -> None:
    tasks = apart.enqueue_many(
        [batches.index_apart.new(Document(str(n), "die" if n == 3 else "index")) for n in range(10)]
    )
    with apart.worker(children=1):
        done = stored(apart, tasks)
    assert [task.params["title"] for task in done if task.state is State.FAILED] == ["3"]
    assert {(task.attempts, task.result["of"]) for task in done if task.state is State.COMPLETED} == {(2, 1)}


# Hooks, workflows, tests


def test_middleware_of_the_handler_is_around_the_call_and_hooks_are_called_for_each_task(app: dibs.Dibs) -> None:
    calls: list[Any] = []

    @app.middleware
    def around_attempts(ctx: dibs.Context, call_next: Any) -> Any:
        raise AssertionError("the middleware of the app is not around batches")

    def around(items: Items, call_next: Any) -> Any:
        calls.append(len(items))
        return call_next()

    @app.on_success
    def success(ended: dibs.EndedAttempt) -> None:
        calls.append(ended.task.params["title"])

    @app.on_dead
    def dead(ended: dibs.EndedAttempt) -> None:
        calls.append(ended.failure.message)

    handler = declare(app, "thread", middleware=[around], wait=0)
    app.middleware(around_attempts)
    app.enqueue_many([handler.new(Document("a")), handler.new(Document("b", "give up"))])
    app.worker(burst=True).run()
    assert (calls[0], sorted(calls[1:])) == (2, ["a", "never"])


def test_the_resources_of_the_lifespan_and_progress_reach_each_item(app: dibs.Dibs) -> None:
    @app.lifespan
    def lifespan() -> Iterator[str]:
        yield "pool"

    def function(items: Items) -> list[str]:
        for percent, item in enumerate(items):
            item.ctx.progress(percent, item.value.title)
        return [item.ctx.resources for item in items]

    handler = declare(app, "thread", function, wait=0)
    tasks = app.enqueue_many([handler.new(Document(title)) for title in "abc"])
    app.worker(burst=True).run()
    done = stored(app, tasks)
    assert [(task.result, task.progress, task.progress_message) for task in done] == [
        ("pool", 0, "a"),
        ("pool", 1, "b"),
        ("pool", 2, "c"),
    ]


@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_steps_of_a_workflow_read_the_results_of_their_parents_and_add_steps(app: dibs.Dibs, lane: str) -> None:
    def function(items: Items) -> list[Any]:
        for item in items:
            if item.value.title == "last":
                item.ctx.step(handler, Document("added"))
        return [[item.value.title, *item.ctx.results.values()] for item in items]

    handler = declare(app, lane, function, wait=0)
    with app.workflow("flow") as flow:
        a, b = flow.step(handler, Document("a")), flow.step(handler, Document("b"))
        flow.step(handler, Document("last"), after=[a, b])
    app.worker(burst=True).run()
    results = {task.params["title"]: task.result for task in all_tasks(app)}
    assert results == {
        "a": ["a"],
        "b": ["b"],
        "last": ["last", ["a"], ["b"]],
        "added": ["added", ["last", ["a"], ["b"]]],
    }


def test_the_sandbox_runs_batch_handlers() -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    handler = declare(app, "thread", size=3)
    with isolated(app) as box:
        assert box.run_now(handler, Document("a"))["of"] == 1
        with pytest.raises(ValueError, match="no"):
            box.run_now(handler, Document("a", "fail"))
        good, bad = box.run_batch(handler, [Document("a"), Document("b", "fail")])
        assert (good["of"], repr(bad)) == (2, "ValueError('no')")
        for _ in range(4):
            handler.enqueue(Document("a"))
        assert [task.result["of"] for task in box.drain()] == [3, 3, 3, 1]
        handler.enqueue(Document("b", "fail"))
        with pytest.raises(ValueError, match="no"):
            box.drain(raise_errors=True)

        @app.task
        def ordinary(n: int) -> None: ...

        with pytest.raises(dibs.InvalidValue, match="no batch handler"):
            box.run_batch(ordinary, [1])  # type: ignore[arg-type]


def test_an_async_application_runs_batch_handlers_on_its_loop(url: str) -> None:
    async def main() -> None:
        async with dibs.AsyncDibs(url) as app:

            @app.batch_task(size=3, wait=0.05)
            async def index(items: Items) -> list[str]:
                return [item.value.title for item in items]

            async with app.worker():
                tasks = [await index.enqueue(Document(title)) for title in "abcd"]
                assert [(await task.wait(30)).result for task in tasks] == ["a", "b", "c", "d"]
            with isolated(app) as box:
                assert await box.run_batch_async(index, [Document("e"), Document("f")]) == ["e", "f"]

    asyncio.run(main())


def test_a_batch_handler_works_over_http(url: str, server_host: Any) -> None:
    with server_host.serving(url) as place, dibs.Dibs(place) as app:
        handler = declare(app, "thread", size=5, wait=0.05)
        tasks = app.enqueue_many([handler.new(Document(str(n))) for n in range(12)])
        by_hand = app.enqueue("index", {"title": "over HTTP"})
        with app.worker():
            done = stored(app, [*tasks, by_hand])
        assert {task.state for task in done} == {State.COMPLETED}
        assert max(task.result["of"] for task in done) == 5


# Declarations


@dataclass
class Keyed:
    site: str
    number: int = 0


class Struct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    site_name: str


class Row(msgspec.Struct, array_like=True):
    site: str


def test_the_params_are_the_fields_of_the_document() -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")

    @app.batch_task(group_by="site", key_scope="always")
    def keyed(items: Sequence[BatchItem[Keyed]]) -> list[Keyed]:
        return [item.value for item in items]

    @app.batch_task(group_by="siteName")
    def struct(items: list[BatchItem[Struct]]) -> tuple[str, ...]:
        return tuple(item.value.site_name for item in items)

    @app.batch_task
    def free(items: Sequence[BatchItem[dict[str, int]]]) -> Sequence[None]:
        return [None for _ in items]

    assert keyed.new(Keyed("a", 7)).params == {"site": "a", "number": 7}
    assert struct.new(Struct("a")).params == {"siteName": "a"}
    with isolated(app) as box:
        assert keyed.options(key="k").enqueue(Keyed("a")).group == "a"
        assert keyed.options(key="k").enqueue(Keyed("a")).deduplicated
        assert box.run_now(keyed, Keyed("b", 7)) == Keyed("b", 7)
        assert box.run_now(struct, Struct("a")) == "a"
        assert box.run_now(free, {"a": 1}) is None
    for wrong in ((), (Keyed("a"), Keyed("b")), ("a",), (Keyed(7),)):  # type: ignore[arg-type]
        with pytest.raises(dibs.InvalidValue, match="keyed"):
            keyed.new(*wrong)


def no_items() -> list[int]:
    return []


def two(items: Sequence[BatchItem[Keyed]], ctx: dibs.Context) -> list[int]:
    return []


def bare(items) -> list[int]:  # type: ignore[no-untyped-def]
    return []


def plain_list(items: list[Keyed]) -> list[int]:
    return []


def numbers(items: Sequence[BatchItem[int]]) -> list[int]:
    return []


def rows(items: Sequence[BatchItem[Row]]) -> list[int]:
    return []


def unknown(items: Sequence[BatchItem[Nowhere]]) -> list[int]:  # type: ignore[name-defined]  # noqa: F821
    return []


def good(items: Sequence[BatchItem[Keyed]]) -> list[int]:
    return []


async def plain_middleware_inside(items: Sequence[BatchItem[Keyed]]) -> list[int]:
    return []


def around(items: Any, call_next: Any) -> Any:
    return call_next()


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (no_items, {}, "must have one parameter"),
        (two, {}, "must have one parameter"),
        (bare, {}, "has no annotation"),
        (plain_list, {}, "is annotated with"),
        (numbers, {}, "not stored as a JSON object"),
        (rows, {}, "not stored as a JSON object"),
        (unknown, {}, "cannot be read at run time"),
        (good, {"size": 0}, "size must be between 1 and 1,000"),
        (good, {"wait": -1}, "wait must be between"),
        (good, {"schedule": "* * * * *"}, "has no schedule"),
        (good, {"group_by": "nothing"}, "has no field 'nothing'"),
        (good, {"lane": "loop"}, "cannot run in the lane"),
        (good, {"middleware": [lambda items: None]}, "does not take two arguments"),
        (plain_middleware_inside, {"middleware": [around]}, "cannot wait for what is inside"),
    ],
)
def test_a_wrong_declaration_is_refused(function: Any, options: dict[str, Any], message: str) -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    with pytest.raises(dibs.InvalidValue, match=message):
        app.batch_task(**options)(function)
    assert app.handlers == {}
