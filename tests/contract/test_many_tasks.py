"""Many tasks at once: map enqueues a stream in chunks, and one handle waits for all tasks and reads the results."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import dibs
from dibs import (
    Completed,
    InvalidValue,
    KeyConflict,
    NotAllEnqueued,
    ResultMismatch,
    ResultMissing,
    TaskNotFound,
    WaitTimeout,
    procedures,
)
from dibs.many import enqueue, handles, watch
from tests.helpers.clients import AsyncAsSync
from tests.helpers.retention import NOTHING, keep
from tests.helpers.waiting import until

CHUNK = 10


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks, pages and batches of ten, so that few tasks show what happens with many."""
    monkeypatch.setattr(enqueue, "MAX_BATCH", CHUNK)
    monkeypatch.setattr(handles, "PAGE", CHUNK)
    monkeypatch.setattr(watch, "MAX_STATES", CHUNK)


@pytest.fixture
def double(app: Any) -> Any:
    @app.task
    def double(number: int, plus: int = 0) -> dict[str, int]: ...

    return double


def now(app: Any, value: Any) -> Any:
    """The value, awaited or collected if it comes from AsyncDibs."""
    if inspect.isasyncgen(value):
        return app.loop.run(_collect(value))
    if inspect.isgenerator(value):
        return list(value)
    return app.loop.run(value) if inspect.iscoroutine(value) else value


async def _collect(values: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in values]


def read(app: Any, tasks: Any) -> list[Any]:
    """The tasks of the handle as they are now."""
    found: list[Any] = now(app, aiter(tasks) if isinstance(app, AsyncAsSync) else iter(tasks))
    return found


def run_all(app: Any, count: int = 1000) -> None:
    """Complete up to this many tasks with twice their number, and fail the ones with a negative number."""
    claims = app.claim_many("w", count)
    outcomes: list[Any] = []
    for claim in claims:
        number = claim.task.params["number"]
        failed = dibs.Failed(dibs.Failure("ValueError", f"{number} is negative"), permanent=True)
        outcomes.append((claim, failed if number < 0 else Completed({"number": 2 * number})))
    app.finish(outcomes)


# Enqueue


def test_map_stores_a_task_for_each_item_in_order_with_the_other_arguments(app: Any, double: Any) -> None:
    tasks = now(app, double.options(priority=5).map(range(25), plus=1))
    assert len(tasks) == 25
    assert [task.params for task in read(app, tasks)] == [{"number": n, "plus": 1} for n in range(25)]
    assert {task.priority for task in read(app, tasks)} == {5}
    assert repr(tasks).endswith(f"Tasks(25 tasks, {tasks.ids[0]} to {tasks.ids[-1]})")
    assert len(now(app, double.map([]))) == 0


def test_starmap_takes_the_first_arguments_from_tuples(app: Any, double: Any) -> None:
    tasks = now(app, double.starmap([(1, 2), (3, 4)]))
    assert [task.params for task in read(app, tasks)] == [{"number": 1, "plus": 2}, {"number": 3, "plus": 4}]


def test_chunks_are_stored_while_the_items_come(app: Any, url: str, double: Any) -> None:
    stored: list[int] = []

    def items() -> Iterator[int]:
        with dibs.Dibs(url) as other:
            for number in range(25):
                if number in {CHUNK, 2 * CHUNK}:
                    stored.append(len(other.list_tasks()))
                yield number

    now(app, double.map(items()))
    assert stored == [CHUNK, 2 * CHUNK]


def test_an_async_iterable_is_followed(app: Any, double: Any) -> None:
    if not isinstance(app, AsyncAsSync):
        pytest.skip("AsyncDibs only")

    async def items() -> AsyncIterator[int]:
        for number in range(12):
            yield number

    assert len(now(app, double.map(items()))) == 12


def test_middleware_is_called_once_for_each_chunk(app: Any, double: Any) -> None:
    sizes: list[int] = []

    async def around_async(tasks: Any, call_next: Any) -> Any:
        sizes.append(len(tasks))
        return await call_next(tasks)

    def around(tasks: Any, call_next: Any) -> Any:
        sizes.append(len(tasks))
        return call_next(tasks)

    app.enqueue_middleware(around_async if isinstance(app, AsyncAsSync) else around)
    now(app, double.map(range(25)))
    assert sizes == [10, 10, 5]


def test_an_error_of_the_iterable_carries_the_stored_tasks(app: Any, double: Any) -> None:
    def items() -> Iterator[int]:
        yield from range(25)
        raise OSError("the disk is gone")

    with pytest.raises(NotAllEnqueued, match=r"20 tasks \(\d+ to \d+\) are stored.* the disk is gone") as raised:
        now(app, double.map(items()))
    assert isinstance(raised.value.__cause__, OSError)
    assert len(raised.value.tasks) == len(app.list_tasks()) == 20


def test_a_refused_item_stops_its_chunk_and_no_chunk_before(app: Any, double: Any) -> None:
    items: list[Any] = [*range(15), {"not": "a number"}, *range(5)]
    with pytest.raises(NotAllEnqueued) as raised:
        now(app, double.map(items))
    assert isinstance(raised.value.__cause__, InvalidValue | TypeError)
    assert len(raised.value.tasks) == len(app.list_tasks()) == 10


def test_an_error_before_anything_is_stored_is_raised_as_it_is(app: Any, double: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        now(app, double.map(1 // n for n in [0]))
    with pytest.raises(InvalidValue, match="widht"):
        now(app, double.map([1], widht=3))
    assert app.list_tasks() == []


def test_an_interrupt_names_the_stored_tasks(app: Any, double: Any) -> None:
    class Stop(BaseException):
        """Not KeyboardInterrupt, which would end the thread of the loop."""

    def items() -> Iterator[int]:
        yield from range(15)
        raise Stop

    with pytest.raises(Stop) as raised:
        now(app, double.map(items()))
    assert "10 tasks" in raised.value.__notes__[0]


# Keys


def test_one_key_for_all_items_is_refused(app: Any, double: Any) -> None:
    with pytest.raises(InvalidValue, match="the key 'all'"):
        now(app, double.options(key="all").map([1, 2]))
    assert app.list_tasks() == []


def test_with_a_key_for_each_item_map_can_be_repeated(app: Any, double: Any) -> None:
    keyed = double.keyed(lambda number, plus=0: f"double-{number}")
    first, second = now(app, keyed.map(range(12))), now(app, keyed.map(reversed(range(12))))
    assert first.ids == second.ids[::-1]
    assert [task.key for task in read(app, first)] == [f"double-{n}" for n in range(12)]
    assert now(app, keyed.enqueue(3)).id == first.ids[3]
    with pytest.raises(KeyConflict):
        now(app, keyed.map([3], plus=1))


def test_items_with_the_same_key_are_one_task(app: Any, double: Any) -> None:
    tasks = now(app, double.keyed(lambda number: f"{number % 2}").options(on_conflict="keep").map(range(4)))
    assert tasks.ids == [*tasks.ids[:2], *tasks.ids[:2]]
    run_all(app)
    assert [result["number"] for result in now(app, tasks.results())] == [0, 2, 0, 2]
    assert len(now(app, tasks.as_completed())) == 2
    assert now(app, tasks.counts()) == {"completed": 2}


# Wait and read


def test_results_come_in_the_order_of_the_items(app: Any, double: Any) -> None:
    tasks = now(app, double.map(range(25)))
    run_all(app)
    assert now(app, tasks.wait()) is tasks
    assert [result["number"] for result in now(app, tasks.results())] == [2 * n for n in range(25)]
    assert now(app, tasks.counts()) == {"completed": 25}


def test_results_are_converted_to_the_return_type(app: Any) -> None:
    @app.task
    def work(number: int) -> frozenset[int]: ...

    tasks = now(app, work.map([1]))
    app.complete(app.claim("w"), [1, 2])
    assert now(app, tasks.results()) == [frozenset({1, 2})]
    assert now(app, work.tasks(tasks.ids).results()) == [frozenset({1, 2})]
    assert now(app, app.tasks(tasks.ids).results()) == [[1, 2]]


def test_a_failed_task_is_raised_with_its_error_without_waiting_for_the_others(app: Any, double: Any) -> None:
    tasks = now(app, double.map([-7, 1, 2]))
    run_all(app, 1)
    with pytest.raises(ResultMissing, match=rf"Task {tasks.ids[0]} \(double\).*ValueError: -7 is negative"):
        now(app, tasks.results(timeout=30))
    with pytest.raises(
        ResultMissing, match=r"it has failed with ValueError: -7 is negative\.\nhint: results\(return_ex"
    ):
        now(app, app.tasks(tasks.ids).results(timeout=30))


def test_errors_are_returned_in_place_of_results(app: Any, double: Any) -> None:
    tasks = now(app, double.map([1, -7, 2, 3]))
    app.cancel(tasks.ids[3])
    run_all(app)
    one, failed, two, cancelled = now(app, tasks.results(return_exceptions=True))
    assert (one, two) == ({"number": 2}, {"number": 4})
    assert isinstance(failed, ResultMissing)
    assert "-7 is negative" in str(failed)
    assert "it was cancelled" in str(cancelled)


def test_a_result_that_does_not_fit_is_raised_or_returned(app: Any, double: Any) -> None:
    tasks = now(app, double.map([1]))
    app.complete(app.claim("w"), "two")
    with pytest.raises(ResultMismatch):
        now(app, tasks.results())
    [error] = now(app, tasks.results(return_exceptions=True))
    assert isinstance(error, ResultMismatch)


def test_a_deleted_task_has_finished_and_has_no_result(app: Any, double: Any) -> None:
    tasks = now(app, double.map(range(3)))
    keep(app, **NOTHING)
    run_all(app, 1)
    app.prune()
    run_all(app)
    assert now(app, now(app, tasks.wait(5)).counts()) == {"completed": 2, "pruned": 1}
    assert len(now(app, tasks.as_completed())) == 2
    with pytest.raises(TaskNotFound):
        now(app, tasks.results())
    gone, *others = now(app, tasks.results(return_exceptions=True))
    assert isinstance(gone, TaskNotFound)
    assert others == [{"number": 2}, {"number": 4}]
    with pytest.raises(TaskNotFound):
        now(app, tasks[0])


def test_a_timeout_says_how_many_tasks_are_open(app: Any, double: Any) -> None:
    tasks = now(app, double.map(range(25)))
    run_all(app, 3)
    app.claim("w")
    with pytest.raises(WaitTimeout, match=r"22 of 25 tasks .* 0\.05 seconds: 21 pending, 1 claimed") as raised:
        now(app, tasks.wait(0.05))
    assert "continue" in raised.value.hint
    with pytest.raises(WaitTimeout):
        now(app, tasks.results(0))


@pytest.mark.parametrize("timeout", [math.nan, "5", True])
def test_a_timeout_that_is_no_number_is_refused(app: Any, double: Any, timeout: Any) -> None:
    tasks = now(app, double.map([1]))
    for wait in (lambda: tasks.wait(timeout), lambda: app.wait(tasks.ids[0], timeout)):
        with pytest.raises(InvalidValue, match="timeout must be a number of seconds"):
            now(app, wait())


def test_a_timeout_of_one_task_is_in_the_singular(app: Any, double: Any) -> None:
    with pytest.raises(WaitTimeout, match=r"^1 of 1 task has not finished after 0 seconds: 1 pending\."):
        now(app, now(app, double.map([1])).wait(0))


def test_positions_slices_and_ids_name_tasks(app: Any, double: Any) -> None:
    tasks = now(app, double.map(range(5)))
    assert now(app, tasks[3]).params["number"] == 3
    assert tasks[1:3].ids == tasks.ids[1:3]
    assert now(app, app.tasks(tasks.ids)[-1]).id == tasks.ids[-1]
    with pytest.raises(IndexError):
        now(app, tasks[5])
    with pytest.raises(InvalidValue):
        app.tasks([-1])


@pytest.mark.own_connections
def test_a_wait_ends_when_others_finish_the_tasks_in_any_order(
    url: str, open_app: Callable[..., Any], app: Any, double: Any
) -> None:
    tasks = now(app, double.map(range(3 * CHUNK)))
    other = open_app(url)
    seen: list[int] = []

    def follow() -> None:
        if isinstance(app, AsyncAsSync):
            app.loop.run(follow_async())
        else:
            seen.extend(task.id for task in tasks.as_completed(30))

    async def follow_async() -> None:
        async for task in tasks.as_completed(30):
            seen.append(task.id)  # noqa: PERF401 - the test reads it meanwhile

    follower = threading.Thread(target=follow)
    follower.start()
    for task_id in reversed(tasks.ids[CHUNK:]):  # the first tasks stay open
        other.complete(other.claim_by_id(task_id, "w"), {"number": 1})
    until(lambda: len(seen) == 2 * CHUNK)
    run_all(other)
    follower.join(30)
    assert sorted(seen) == tasks.ids


def test_a_wait_over_http_rests_for_a_second_at_most_however_long_it_takes(app: Any) -> None:
    store = app.app._store if isinstance(app, AsyncAsSync) else app._store
    rests = [procedures._rest(store, 0.001, rounds) for rounds in (1, 10, 100_000)]
    assert rests == sorted(rests)
    assert rests[-1] == (1.0 if store.served else 0.004)


# The store


def test_states_and_tasks_are_read_in_batches(app: Any, double: Any) -> None:
    tasks = now(app, double.map(range(3)))
    run_all(app, 1)
    assert now(app, app._count_states(tasks.ids)) == {"completed": 1, "pending": 2}
    found = now(app, app._read_many([tasks.ids[2], 10**9, tasks.ids[0]]))
    assert [task.id for task in found.tasks] == [tasks.ids[2], tasks.ids[0]]
    assert found.left == []


def test_a_page_ends_where_its_tasks_have_much_content(app: Any) -> None:
    @app.task
    def work(text: str) -> str: ...

    tasks = now(app, work.map(["x" * 900_000] * 6))
    found = now(app, app._read_many(tasks.ids))
    assert 1 <= len(found.tasks) < 6
    assert [task.id for task in found.tasks] + list(found.left) == tasks.ids
    assert len(read(app, tasks)) == 6
    twice = app.tasks([tasks.ids[0]] * 6)
    assert [task.id for task in read(app, twice)] == twice.ids
