"""dibs.testing: tests of users run on a real queue of their own, with a clock that the test advances."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import State
from dibs.observe.verify import verify
from dibs.store.open import sqlite_file
from dibs.testing import Clock, Sandbox, isolated

App = dibs.Dibs | dibs.AsyncDibs


@pytest.fixture(params=[dibs.Dibs, dibs.AsyncDibs], ids=["sync", "async"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An app of either kind, whose own store no test may touch."""
    made: App = request.param(f"sqlite:///{tmp_path}/own.db")
    return made


@pytest.fixture
def box(app: App, tmp_path: Path) -> Iterator[Sandbox]:
    with isolated(app) as box:
        yield box
    assert list(tmp_path.iterdir()) == []


def now(value: Any) -> Any:
    """What a verb of either client gives."""
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def events(app: App, task_id: int) -> list[str]:
    return [entry.event.value for entry in now(app.history(task_id))]


# The sandbox


def test_the_app_uses_another_queue_inside_the_block_and_its_own_after_it(url: str) -> None:
    with dibs.Dibs(url) as app:
        kept = app.enqueue("kept")
        with isolated(app) as box:
            assert app.list_tasks() == []
            app.enqueue("gone")
            folder = sqlite_file(app.url)
            assert folder is not None
            assert folder.exists()
            assert box.app is app
        assert app.url == url
        assert [task.id for task in app.list_tasks()] == [kept.id]
        assert not folder.parent.exists()


def test_the_app_gets_its_queue_back_when_the_test_fails(app: App) -> None:
    url, store = app.url, app._store
    with pytest.raises(ZeroDivisionError), isolated(app):
        _ = 1 / 0
    assert (app.url, app._store) == (url, store)


def test_each_block_has_a_queue_of_its_own_also_inside_another(app: App) -> None:
    with isolated(app) as outer:
        now(app.enqueue("outer"))
        with isolated(app) as inner:
            inner.assert_nothing_enqueued()
        outer.assert_enqueued("outer", count=1)


# The clock


def test_the_clock_stands_still_until_it_is_advanced(app: App, box: Sandbox) -> None:
    task = now(app.enqueue("work"))
    assert task.created_at == box.clock.now == box.clock.now
    box.clock.advance(90)
    assert now(app.enqueue("work")).created_at == task.created_at + timedelta(seconds=90)
    new_year = datetime(2030, 1, 1, tzinfo=UTC)
    box.clock.set(new_year)
    assert now(app.enqueue("work")).created_at == box.clock.now == new_year


def test_the_clock_begins_with_the_real_time() -> None:
    before = datetime.now(UTC)
    assert before <= Clock().now <= datetime.now(UTC)


def test_the_clock_is_advanced_by_the_sum_of_durations(app: App, box: Sandbox) -> None:
    before = box.clock.now
    box.advance(1, minutes=2, hours=3, days=4)
    assert box.clock.now - before == timedelta(seconds=1, minutes=2, hours=3, days=4)


@pytest.mark.parametrize(
    "turn",
    [
        lambda clock: clock.advance(-1),
        lambda clock: clock.advance(hours="1"),
        lambda clock: clock.advance(days=1e9),
        lambda clock: clock.set(datetime(2030, 1, 1)),  # noqa: DTZ001
    ],
)
def test_the_clock_refuses_what_it_cannot_show(turn: Callable[[Clock], None]) -> None:
    with pytest.raises(dibs.InvalidValue):
        turn(Clock())


# Run one handler


def test_run_now_returns_the_result_as_it_is_stored(app: App, box: Sandbox) -> None:
    @app.task
    def pair(first: int, second: str = "two") -> Any:
        return (first, second, uuid.UUID(int=5))

    assert box.run_now(pair, 1) == [1, "two", "00000000-0000-0000-0000-000000000005"]
    assert box.run_now(pair, second="zwei", first=1)[1] == "zwei"


def test_run_now_converts_the_arguments_to_json_and_back(app: App, box: Sandbox) -> None:
    received: list[Any] = []

    @app.task
    def keep(when: datetime, place: tuple[int, int]) -> None:
        received.extend([when, place])

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert box.run_now(keep, moment, (1, 2)) is None
    assert received == [moment, (1, 2)]
    assert now(app.list_tasks())[0].params == {"when": "2030-01-01T00:00:00Z", "place": [1, 2]}
    with pytest.raises(dibs.InvalidValue, match="when"):
        box.run_now(keep, when="soon", place=(1, 2))


def test_run_now_is_a_real_claim_with_a_real_outcome(app: App, box: Sandbox) -> None:
    @app.task
    def work(ctx: dibs.Context) -> list[int]:
        held = now(app.get(ctx.task.id)) if isinstance(app, dibs.Dibs) else None
        assert held is None or (held.state, held.token) == (State.CLAIMED, ctx.token)
        return [ctx.task.id, ctx.token, ctx.attempt]

    task_id, token, attempt = box.run_now(work)
    assert (token, attempt) == (1, 1)
    assert events(app, task_id) == ["enqueued", "claimed", "completed"]


def test_run_now_runs_coroutine_functions(app: App, box: Sandbox) -> None:
    @app.task
    async def work(ctx: dibs.Context, n: int) -> int:
        await asyncio.sleep(0)
        return n + ctx.attempt

    assert box.run_now(work, 4) == 5


def test_run_now_runs_handlers_of_child_processes_in_this_process(app: App, box: Sandbox) -> None:
    called: list[int] = []

    @app.task(lane="process")
    def work() -> None:
        called.append(1)

    box.run_now(work)
    assert called == [1]


class OutOfStock(Exception):
    pass


def test_run_now_raises_what_the_handler_raised(app: App, box: Sandbox) -> None:
    raised = OutOfStock("no more of these")

    @app.task
    def sell() -> None:
        raise raised

    @app.task
    async def sell_later() -> None:
        raise raised

    for handler in (sell, sell_later):
        with pytest.raises(OutOfStock) as caught:
            box.run_now(handler)
        assert caught.value is raised
    failed = now(app.list_tasks(type="sell"))[0]
    assert (failed.state, failed.attempts, failed.error.type) == (State.SCHEDULED, 1, "OutOfStock")


@pytest.mark.parametrize(
    ("ending", "state"),
    [
        (dibs.Retry(10), State.SCHEDULED),
        (dibs.Snooze(10), State.SCHEDULED),
        (dibs.Permanent("never"), State.FAILED),
        (dibs.Cancel(), State.CANCELLED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_run_now_raises_endings_as_well(app: App, box: Sandbox, ending: Exception, state: State) -> None:
    @app.task
    def work() -> None:
        raise ending

    with pytest.raises(type(ending)):
        box.run_now(work)
    assert now(app.list_tasks())[0].state is state


@pytest.mark.parametrize("result", [object(), 2**70, float("nan")], ids=["object", "huge", "nan"])
def test_run_now_refuses_a_result_that_is_not_json_as_a_worker_does(app: App, box: Sandbox, result: Any) -> None:
    @app.task
    def work() -> Any:
        return result

    with pytest.raises(dibs.InvalidValue):
        box.run_now(work)
    assert now(app.list_tasks())[0].state is State.FAILED


def test_run_now_does_not_wait_for_a_delay(app: App, box: Sandbox) -> None:
    @app.task
    def work() -> str:
        return "done"

    assert box.run_now(work.options(delay=3600, queue="slow", priority=3)) == "done"
    task = now(app.list_tasks())[0]
    assert (task.queue, task.priority) == ("slow", 3)


def test_progress_and_cancel_requests_are_visible_at_once(box: Sandbox, app: App) -> None:
    other = dibs.Dibs(app.url, clock=box.clock)

    @app.task
    def work(ctx: dibs.Context) -> str:
        ctx.progress(30, "a third")
        noted = other.get(ctx.task.id)
        assert noted is not None
        assert (noted.progress, noted.progress_message) == (30, "a third")
        assert not ctx.cancelled
        other.cancel(ctx.task.id)
        ctx.raise_if_cancelled()
        return "not reached"

    with other, pytest.raises(dibs.Cancel):
        box.run_now(work)
    assert now(app.list_tasks())[0].state is State.CANCELLED


# Run what waits


def test_drain_runs_all_tasks_in_the_order_of_a_worker_also_tasks_that_tasks_enqueue() -> None:
    app = dibs.Dibs()
    seen: list[str] = []

    @app.task
    def parent(name: str) -> None:
        seen.append(name)
        child.options(priority=5).enqueue(f"{name}'s child")

    @app.task
    def child(name: str) -> None:
        seen.append(name)

    with isolated(app) as box:
        parent.enqueue("ada")
        parent.enqueue("bob")
        parent.options(priority=9).enqueue("eve")
        finished = box.drain()
        assert seen == ["eve", "eve's child", "ada", "ada's child", "bob", "bob's child"]
        assert [task.params["name"] for task in finished] == seen
        assert {task.state for task in finished} == {State.COMPLETED}
        assert box.drain() == []
        assert verify(app.all_history()).violations == []


def test_a_task_that_becomes_due_takes_its_place_in_the_order(app: App, box: Sandbox) -> None:
    seen: list[int] = []

    @app.task
    def work(n: int) -> None:
        seen.append(n)

    now(work.enqueue(1))
    now(work.options(delay=10, priority=1).enqueue(2))
    box.clock.advance(10)
    box.drain()
    assert seen == [2, 1]


def test_drain_leaves_tasks_without_a_handler_and_tasks_of_paused_queues(app: App, box: Sandbox) -> None:
    @app.task
    def work() -> None: ...

    now(app.enqueue("unknown"))
    now(app.pause("paused"))
    now(work.options(queue="paused").enqueue())
    assert box.drain(advance=True) == []
    assert [task.state for task in box.enqueued()] == [State.PENDING, State.PENDING]


def test_drain_refuses_an_app_without_handlers(box: Sandbox) -> None:
    with pytest.raises(dibs.InvalidValue, match="no handlers"):
        box.drain()


def flaky(app: App, failures: int) -> Any:
    left = [OutOfStock(f"failure {n}") for n in range(failures)]

    @app.task(max_attempts=3)
    def work() -> str:
        if left:
            raise left.pop(0)
        return "at last"

    return work


def test_a_retry_stays_scheduled_until_the_clock_is_advanced(app: App, box: Sandbox) -> None:
    now(flaky(app, failures=1).enqueue())
    assert box.drain() == []
    [waiting] = box.enqueued()
    assert (waiting.state, waiting.attempts) == (State.SCHEDULED, 1)
    assert timedelta(0) < waiting.run_at - box.clock.now < timedelta(seconds=2)
    box.clock.set(waiting.run_at)
    [done] = box.drain()
    assert (done.result, done.attempts) == ("at last", 2)


def test_drain_with_advance_advances_the_clock_until_all_tasks_are_done(app: App, box: Sandbox) -> None:
    began = box.clock.now
    work = flaky(app, failures=2)
    now(work.options(delay=3600).enqueue())
    [done] = box.drain(advance=True)
    assert (done.result, done.attempts) == ("at last", 3)
    assert timedelta(seconds=3600) < box.clock.now - began < timedelta(seconds=3610)
    box.assert_nothing_enqueued()


def test_drain_returns_failed_tasks_as_well(app: App, box: Sandbox) -> None:
    now(flaky(app, failures=3).enqueue())
    [dead] = box.drain(advance=True)
    assert (dead.state, dead.error.message) == (State.FAILED, "failure 2")


def test_drain_with_advance_recovers_tasks_of_a_dead_worker(app: App, box: Sandbox) -> None:
    work = flaky(app, failures=0)
    task = now(work.enqueue())
    now(app.claim("dead-worker", lease=60))
    assert box.drain() == []
    [done] = box.drain(advance=True)
    assert (done.id, done.token, done.attempts) == (task.id, 2, 2)


def test_drain_can_raise_the_first_failure(app: App, box: Sandbox) -> None:
    now(flaky(app, failures=2).enqueue())
    with pytest.raises(OutOfStock, match="failure 0"):
        box.drain(raise_errors=True)
    assert box.enqueued()[0].attempts == 1
    with pytest.raises(OutOfStock, match="failure 1"):
        box.drain(advance=True, raise_errors=True)
    assert box.drain(advance=True, raise_errors=True)[0].result == "at last"


def test_a_snoozed_or_cancelled_task_is_not_a_failure(app: App, box: Sandbox) -> None:
    endings: list[Exception] = [dibs.Snooze(60), dibs.Cancel()]

    @app.task
    def work() -> None:
        raise endings.pop(0)

    now(work.enqueue())
    assert box.drain(raise_errors=True) == []
    assert [task.state for task in box.drain(advance=True, raise_errors=True)] == [State.CANCELLED]


def test_a_task_that_never_ends_fails_the_test_instead_of_hanging_it() -> None:
    app = dibs.Dibs()

    @app.task
    def again(n: int) -> None:
        again.enqueue(n + 1)

    with isolated(app) as box:
        again.enqueue(0)
        with pytest.raises(AssertionError, match=r"after 10 attempts: again\(n=10\)"):
            box.drain(limit=10)


def test_drain_may_run_exactly_as_many_tasks_as_its_limit(app: App, box: Sandbox) -> None:
    work = flaky(app, failures=0)
    now(work.enqueue())
    now(work.enqueue())
    assert len(box.drain(limit=2)) == 2


# Inside a running event loop


def test_the_async_variants_run_coroutine_functions_on_the_running_loop() -> None:
    app = dibs.AsyncDibs()
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def outer(ctx: dibs.Context) -> int:
        loops.append(asyncio.get_running_loop())
        await inner.enqueue(ctx.attempt)
        return 1

    @app.task
    def inner(n: int) -> int:
        with pytest.raises(RuntimeError):  # not on the loop, which it would block
            asyncio.get_running_loop()
        return n + 1

    async def test() -> None:
        with isolated(app) as box:
            assert await box.run_now_async(outer) == 1
            box.assert_enqueued(inner, n=1)
            assert [task.result for task in await box.drain_async()] == [2]
            assert loops == [asyncio.get_running_loop()]

    asyncio.run(test())


def test_the_async_variants_raise_what_the_handler_raised() -> None:
    app = dibs.AsyncDibs()

    @app.task
    async def sell() -> None:
        raise OutOfStock

    async def test() -> None:
        with isolated(app) as box:
            with pytest.raises(OutOfStock):
                await box.run_now_async(sell)
            with pytest.raises(OutOfStock):
                await box.drain_async(advance=True, raise_errors=True)

    asyncio.run(test())


def test_a_coroutine_function_cannot_be_run_inside_a_running_loop_and_the_error_has_a_hint(app: App) -> None:
    @app.task
    async def work() -> None: ...

    @app.task
    def plain() -> str:
        return "fine"

    async def test() -> None:
        with isolated(app) as box:
            with pytest.raises(dibs.InvalidValue, match="run_now_async"):
                box.run_now(work)
            assert box.run_now(plain) == "fine"

    asyncio.run(test())


def test_a_real_worker_runs_in_a_sandbox(app: App, box: Sandbox) -> None:
    task = now(flaky(app, failures=0).enqueue())
    with app.worker(concurrency=1):
        assert now(app.wait(task.id, timeout=20)).result == "at last"


# Look


def test_enqueued_lists_waiting_tasks_oldest_first(app: App, box: Sandbox) -> None:
    work = flaky(app, failures=0)
    first, second = now(work.options(delay=60).enqueue()), now(app.enqueue("other"))
    now(app.enqueue("other"))
    now(app.claim("worker-1", types=["other"]))
    assert [task.id for task in box.enqueued()] == [first.id, second.id + 1]
    assert [task.id for task in box.enqueued(work)] == [task.id for task in box.enqueued("work")] == [first.id]
    with pytest.raises(dibs.InvalidValue, match="neither a handler"):
        box.enqueued(print)  # type: ignore[arg-type]


def test_enqueued_lists_more_tasks_than_one_page(app: App, box: Sandbox) -> None:
    for _ in range(3):
        now(app.enqueue_many([dibs.NewTask("work")] * 500))
    assert len(box.enqueued()) == 1500
    box.assert_enqueued("work", count=1500)


def test_assert_enqueued_accepts_matching_tasks(app: App, box: Sandbox) -> None:
    @app.task
    def ship(order: int, when: datetime, tags: list[str]) -> None: ...

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    now(ship.options(queue="slow", priority=3, key="ship-1").enqueue(1, moment, ["a"]))
    now(ship.enqueue(2, moment, []))
    assert len(box.assert_enqueued(ship)) == 2
    assert [task.params["order"] for task in box.assert_enqueued(ship, order=1, when=moment, tags=("a",))] == [1]
    box.assert_enqueued("ship", count=1, queue="slow", priority=3, key="ship-1", order=1)
    box.assert_enqueued(ship, count=2, when=moment)
    box.assert_enqueued(ship, count=0, order=3)
    box.assert_enqueued(ship, priority=0, order=2)


@pytest.mark.parametrize(
    "wanted",
    [
        {"order": 2},
        {"item": 1},
        {"count": 2},
        {"count": 0},
        {"queue": "default"},
        {"priority": 0},
        {"key": "ship-2"},
    ],
    ids=str,
)
def test_assert_enqueued_refuses_everything_else(app: App, box: Sandbox, wanted: dict[str, Any]) -> None:
    now(app.enqueue("ship", {"order": 1}, queue="slow", priority=3, key="ship-1"))
    with pytest.raises(AssertionError, match="Expected"):
        box.assert_enqueued("ship", **wanted)


def test_a_failed_assertion_lists_the_waiting_tasks(app: App, box: Sandbox) -> None:
    work = flaky(app, failures=0)
    now(app.enqueue("ship", {"order": 1, "to": "ada"}, queue="slow", priority=3, key="ship-1"))
    box.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    now(app.enqueue("bill", {"order": 1}, delay=60))
    now(work.enqueue())
    box.drain()
    with pytest.raises(AssertionError) as caught:
        box.assert_enqueued("ship", count=2, queue="slow", order=2)
    assert str(caught.value) == (
        "Expected 2 tasks like ship(order=2), queue 'slow' to be waiting, found 0.\n"
        "Waiting tasks:\n"
        "  ship(order=1, to='ada'), queue 'slow', priority 3, key 'ship-1'\n"
        "  bill(order=1) (scheduled until 2030-01-01T00:01:00+00:00)\n"
        "  (started or finished: 1)"
    )


def test_assert_nothing_enqueued_lists_the_waiting_tasks(app: App, box: Sandbox) -> None:
    box.assert_nothing_enqueued()
    with pytest.raises(AssertionError, match=r"found 0.\nNo task is waiting."):
        box.assert_enqueued("ship")
    now(app.enqueue("ship"))
    with pytest.raises(AssertionError, match=r"ship\(\)"):
        box.assert_nothing_enqueued()


# Limits


def test_the_limits_that_the_app_declares_hold_in_the_sandbox(app: App) -> None:
    app.limit("stripe", max=1)

    @app.task(limits=["stripe"])
    def charge() -> None: ...

    with isolated(app) as box:
        first, _ = now(app.enqueue_many([charge.new(), charge.new()]))
        held = now(app.claim("somebody"))
        assert (held.task_id, now(app.claim("another"))) == (first.id, None)
        assert [limit.source for limit in now(app.limits())] == ["code"]
        assert box.drain() == []
        now(app.complete(held))
        assert len(box.drain()) == 1


def test_a_limit_that_is_declared_inside_the_block_holds(app: App) -> None:
    with isolated(app) as box:
        app.limit("stripe", max=1)
        ran: list[int] = []

        @app.task(limits=["stripe"])
        def charge(n: int) -> None:
            ran.append(n)

        box.run_now(charge, 1)
        assert [limit.name for limit in now(app.limits())] == ["stripe"]
        assert now(app.get_type_settings("charge")).limits == ["stripe"]


def test_run_now_beside_a_full_limit_is_refused(app: App) -> None:
    app.limit("stripe", max=1)

    @app.task(limits=["stripe"])
    def charge() -> None: ...

    with isolated(app) as box:
        now(app.enqueue("charge"))
        held = now(app.claim("somebody"))
        with pytest.raises(dibs.LimitReached, match="stripe"):
            box.run_now(charge)
        now(app.complete(held))
        box.run_now(charge)


def test_drain_runs_what_a_rate_allows_and_moves_the_clock_to_the_next_start_if_asked_to(app: App) -> None:
    app.limit("mail-api", rate="1/minute", burst=2)

    @app.task(limits=["mail-api"])
    def send(n: int) -> int:
        return n

    with isolated(app) as box:
        began = box.clock.now
        now(app.enqueue_many([send.new(n) for n in range(5)]))
        assert len(box.drain()) == 2
        assert len(box.enqueued(send)) == 3
        box.clock.advance(60)
        assert len(box.drain()) == 1
        assert len(box.drain(advance=True)) == 2
        assert box.clock.now - began == timedelta(minutes=3)


def test_the_app_stores_its_declarations_in_its_own_store_after_the_block(url: str) -> None:
    with dibs.Dibs(url) as app:
        app.limit("stripe", max=1)
        with isolated(app):
            app.enqueue("charge", limits=["stripe"])
        assert app.limits() == []
        app.enqueue("charge", limits=["stripe"])
        assert [limit.name for limit in app.limits()] == ["stripe"]
