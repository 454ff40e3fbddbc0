"""Retry rules of handlers: which exceptions are worth another attempt, and when it is due, in every lane."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import dibs
from dibs import Backoff, InvalidValue, LinearBackoff, NewTask, Permanent, Retry, State, Task
from dibs.testing import isolated
from tests.helpers.each import for_each
from tests.helpers.rules import app as apart
from tests.helpers.rules import fails_apart, stops_apart
from tests.helpers.waiting import until

LONG = Backoff(3000, 3000)


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Odd(BaseException):
    """Not an Exception."""


def outcomes(app: dibs.Dibs, raised: BaseException, **options: Any) -> list[Task]:
    """The tasks of a plain and of a coroutine handler after their first attempt, which raised the error."""

    @app.task(**options)
    def plain() -> None:
        raise raised

    @app.task(**options)
    async def coroutine() -> None:
        raise raised

    with app.worker():
        tasks = [plain.enqueue(), coroutine.enqueue()]
        assert until(lambda: all(app.get(task.id).attempts == 1 for task in tasks))
    return [app.get(task.id) for task in tasks]


@pytest.mark.parametrize(
    ("raised", "options", "retried"),
    [
        (TimeoutError(), {"retry_on": (TimeoutError, ConnectionError)}, True),
        (ConnectionResetError(), {"retry_on": (TimeoutError, ConnectionError)}, True),
        (ValueError(), {"retry_on": (TimeoutError, ConnectionError)}, False),
        (ValueError(), {"give_up_on": ValueError}, False),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no"), {"give_up_on": ValueError}, False),
        (TypeError(), {"give_up_on": (ValueError,)}, True),
        (ConnectionResetError(), {"retry_on": OSError, "give_up_on": ConnectionError}, False),
        (FileNotFoundError(), {"retry_on": OSError, "give_up_on": ConnectionError}, True),
        (KeyError(), {"retry_on": ()}, False),
        (Odd(), {"retry_on": OSError}, False),
        (Retry(3000), {"retry_on": OSError, "give_up_on": Exception}, True),
        (Permanent(), {"retry_on": BaseException}, False),
    ],
    ids=[
        *("named", "subclass", "not named", "given up", "subclass given up", "not given up", "given up wins"),
        *("not given up of both", "none named", "no Exception", "Retry", "Permanent"),
    ],
)
def test_the_exception_decides_whether_another_attempt_follows(
    app: dibs.Dibs, raised: BaseException, options: dict[str, Any], retried: bool
) -> None:
    for task in outcomes(app, raised, backoff=LONG, **options):
        assert task.state is (State.SCHEDULED if retried else State.FAILED)
        assert task.error.permanent is not retried


def by_the_message(attempt: int, error: Exception) -> float | None:
    return float(str(error)) + attempt


def returns_none(attempt: int, error: Exception) -> float | None:
    return None


def breaks(attempt: int, error: Exception) -> float:
    raise RuntimeError("broken rule")


def returns_nonsense(attempt: int, error: Exception) -> Any:
    return "soon"


def is_negative(attempt: int, error: Exception) -> float:
    return -1


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff(100, 300), [100, 200, 300, 300]),
        (LinearBackoff(100, 250), [100, 200, 250, 250]),
        ([100, 1000, 20], [100, 1000, 20, 20]),
        (by_the_message, [41, 42, 43, 44]),
        (returns_none, [1, 2, 4, 8]),
        (breaks, [1, 2, 4, 8]),
        (returns_nonsense, [1, 2, 4, 8]),
        (is_negative, [1, 2, 4, 8]),
    ],
    ids=["exponential", "linear", "list", "function", "None", "raises", "nonsense", "negative"],
)
def test_the_backoff_gives_the_delay_before_each_attempt(
    app: dibs.Dibs, backoff: Any, delays: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=5, backoff=backoff)
    def fails() -> None:
        raise ValueError("40")

    with isolated(app) as box:
        task = fails.enqueue()
        for delay in delays:
            box.drain()
            waits = (app.get(task.id).run_at - box.clock.now).total_seconds()
            exact = backoff is by_the_message
            assert waits == pytest.approx(delay, rel=1e-6 if exact else 0.11)
            box.clock.advance(waits)
        box.drain()
        done = app.get(task.id)
    assert (done.state, done.error.type, done.error.message) == (State.FAILED, "ValueError", "40")
    broken = [entry for entry in caplog.records if getattr(entry, "event", None) == "task.backoff_failed"]
    assert len(broken) == (5 if backoff in (breaks, returns_nonsense, is_negative) else 0)


def test_retry_without_a_delay_waits_as_long_as_the_rules_say(app: dibs.Dibs) -> None:
    seen: list[Exception] = []

    def by_cause(attempt: int, error: Exception) -> float:
        seen.append(error)
        return 77

    @app.task(backoff=by_cause)
    def again() -> None:
        raise Retry from KeyError("the cause")

    with isolated(app) as box:
        task = again.enqueue()
        box.drain()
        assert app.get(task.id).run_at == box.clock.now + timedelta(seconds=77)
    assert [type(error) for error in seen] == [KeyError]


def test_retry_with_a_delay_waits_for_that_delay(app: dibs.Dibs) -> None:
    @app.task(give_up_on=Exception, backoff=[500])
    def again() -> None:
        raise Retry(77) from KeyError("the cause")

    with isolated(app) as box:
        task = again.enqueue()
        box.drain()
        assert app.get(task.id).run_at == box.clock.now + timedelta(seconds=77)


def test_rules_also_apply_to_tasks_that_were_enqueued_without_them(app: dibs.Dibs) -> None:
    @app.task(give_up_on=ValueError, backoff=[500])
    def job(text: str) -> None:
        int(text)
        raise KeyError

    with isolated(app) as box:
        app.enqueue_many([NewTask("job", {"text": "x"}), NewTask("job", {"text": "1"})])
        [failed] = box.drain()
        assert failed.params == {"text": "x"}
        [waiting] = box.enqueued()
        assert 440 < (waiting.run_at - box.clock.now).total_seconds() < 560


@pytest.mark.parametrize("lane", ["thread", "loop"])
@pytest.mark.parametrize(
    ("options", "state", "waits"),
    [
        ({"retry_on": TimeoutError}, State.SCHEDULED, 1),
        ({"retry_on": ConnectionError}, State.FAILED, None),
        ({"give_up_on": OSError}, State.FAILED, None),  # TimeoutError is a subclass
        ({"backoff": [2000]}, State.SCHEDULED, 2000),
        ({"backoff": breaks}, State.SCHEDULED, 1),
    ],
    ids=["retried", "not named", "given up", "list", "function"],
)
def test_a_timeout_counts_as_a_timeout_error(
    app: dibs.Dibs, lane: str, options: dict[str, Any], state: State, waits: float | None
) -> None:
    over = threading.Event()

    def slow() -> None:
        over.wait(30)

    async def slow_too() -> None:
        await asyncio.sleep(30)

    handler = app.task(timeout=0.3, name="slow", **options)(slow if lane == "thread" else slow_too)
    with app.worker(grace=0):
        task = handler.enqueue()
        assert until(lambda: app.get(task.id).attempts == 1)
        found = app.get(task.id)
        over.set()
    assert (found.state, found.error.type) == (state, "TimedOut")
    if waits is not None:
        [failed] = [entry for entry in app.history(task.id) if entry.event.value == "failed"]
        assert (found.run_at - failed.at).total_seconds() == pytest.approx(waits, rel=0.11)


def test_a_child_process_applies_the_rules_of_its_handler(url: str) -> None:
    apart.use_url(url)
    with apart, apart.worker(children=1):
        tasks = [fails_apart.enqueue("ValueError"), fails_apart.enqueue("KeyError"), stops_apart.enqueue()]
        assert until(lambda: all(apart.get(task.id).attempts == 1 for task in tasks), 60)
        given_up, retried, died = (apart.get(task.id) for task in tasks)
    assert (given_up.state, given_up.error.type, given_up.error.permanent) == (State.FAILED, "ValueError", True)
    [failed] = [entry for entry in apart.history(retried.id) if entry.event.value == "failed"]
    assert (retried.run_at - failed.at).total_seconds() == pytest.approx(1234, abs=0.01)
    assert (died.state, died.error.type) == (State.SCHEDULED, "ProcessDied")  # no exception, so no rule applies


@for_each(
    "options, complaint",
    [
        ({"retry_on": "TimeoutError"}, "not an exception class"),
        ({"retry_on": (TimeoutError, 7)}, "7, which is not an exception class"),
        ({"give_up_on": TimeoutError()}, "not an exception class"),
        ({"retry_on": Retry}, "chooses the end of the attempt itself"),
        ({"backoff": []}, "at least one"),
        ({"backoff": [1, -2]}, "from 0 to one year"),
        ({"backoff": [float("nan")]}, "from 0 to one year"),
        ({"backoff": ["1"]}, "from 0 to one year"),
        ({"backoff": 5}, "5 is not a backoff"),
        ({"backoff": Backoff}, "is not a backoff"),
        ({"backoff": lambda attempt: 1}, "does not take two arguments"),
    ],
)
def test_wrong_rules_are_refused_at_the_declaration(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        dibs.Dibs().task(name="job", **options)(lambda: None)


def test_an_async_backoff_function_is_refused() -> None:
    async def later(attempt: int, error: Exception) -> float:
        return 1

    with pytest.raises(InvalidValue, match="later is async"):
        dibs.Dibs().task(name="job", backoff=later)(lambda: None)


@for_each("step, cap", [(-1, 5), (6, 5), (1, float("inf")), ("1", 5)])
def test_a_wrong_linear_backoff_is_refused(step: Any, cap: Any) -> None:
    with pytest.raises(InvalidValue, match="0 <= step <= cap"):
        LinearBackoff(step, cap)


@for_each("backoff", [[1, 2], LinearBackoff(), by_the_message])
def test_the_backoff_of_single_tasks_cannot_replace_that_of_the_handler(backoff: Any) -> None:
    handler: Any = dibs.Dibs().task(name="job", backoff=backoff)(lambda: None)
    with pytest.raises(InvalidValue, match="computed by its workers"):
        handler.options(backoff=Backoff(5))


@for_each(
    "backoff, stored",
    [
        (LinearBackoff(5, 60), Backoff(5, 60)),
        ([7, 90, 3], Backoff(7, 90)),
        (by_the_message, Backoff()),
        (Backoff(3, 4), Backoff(3, 4)),
    ],
)
def test_the_store_keeps_an_exponential_backoff_for_attempts_without_an_exception(
    backoff: Any, stored: Backoff
) -> None:
    new: Callable[[], NewTask] = dibs.Dibs().task(name="job", backoff=backoff)(lambda: None).new
    assert new().backoff == stored
