"""@app.task: which functions may be handlers, which arguments they take, and errors where the mistake is."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from dibs import Context, Dibs, InvalidValue, Lane
from dibs.store.operation import Operation
from tests.helpers.processes import ROOT


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dibs]:
    """An application whose store is never opened."""
    with Dibs(f"sqlite:///{tmp_path}/never.db") as app:
        yield app
    assert list(tmp_path.iterdir()) == []


def test_a_handler_can_be_called_like_its_function(app: Dibs) -> None:
    @app.task
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @app.task(max_attempts=2)
    async def add_async(a: int, b: int = 1) -> int:
        return a + b

    assert add(1) == 2
    assert asyncio.run(add_async(1, b=4)) == 5
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


def test_the_lane_of_a_handler_follows_from_its_function_by_default(app: Dibs) -> None:
    @app.task
    def plain() -> None: ...

    @app.task
    async def coroutine() -> None: ...

    @app.task(lane="process")
    def apart() -> None: ...

    @app.task(lane="process")
    async def coroutine_apart() -> None: ...

    lanes = [handler.lane for handler in app.handlers.values()]
    assert lanes == [Lane.THREAD, Lane.LOOP, Lane.PROCESS, Lane.PROCESS]


@pytest.mark.parametrize(("lane", "complaint"), [("fiber", "no lane"), ("loop", "plain function")])
def test_a_lane_that_does_not_fit_the_function_is_refused(app: Dibs, lane: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):

        @app.task(lane=lane)
        def plain() -> None: ...


def test_a_coroutine_function_cannot_run_in_a_thread(app: Dibs) -> None:
    with pytest.raises(InvalidValue, match="async function"):

        @app.task(lane="thread")
        async def coroutine() -> None: ...


def test_two_handlers_with_one_name_are_refused(app: Dibs) -> None:
    @app.task
    def job() -> None: ...

    with pytest.raises(InvalidValue, match="A handler named 'job' already exists"):

        @app.task(name="job")
        def other() -> None: ...


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"timeout": -1}, {"name": ""}, {"backoff": 3}])
def test_wrong_options_are_refused_at_the_declaration(app: Dibs, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):

        @app.task(**options)
        def job() -> None: ...


def test_an_unknown_option_is_refused_at_the_declaration_with_the_most_similar_one(app: Dibs) -> None:
    with pytest.raises(TypeError, match=r"handler 'job' has the unknown option 'time_out'; .* 'timeout'"):

        @app.task(time_out=3)  # type: ignore[call-overload]
        def job() -> None: ...


def test_parameters_without_a_name_are_refused(app: Dibs) -> None:
    with pytest.raises(InvalidValue, match="cannot be given by name"):

        @app.task
        def positional(a: int, /) -> None: ...

    with pytest.raises(InvalidValue, match="cannot be given by name"):

        @app.task
        def variable(*args: int) -> None: ...


def test_a_call_becomes_params_by_name(app: Dibs) -> None:
    @app.task
    def job(a: int, b: str = "x", *, at: datetime | None = None, **rest: Any) -> None: ...

    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert job.new(1).params == {"a": 1}
    assert job.new(1, "y", at=moment, more=[1]).params == {"a": 1, "b": "y", "at": "2026-01-02T00:00:00Z", "more": [1]}


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((), {}, "missing a required argument: 'width'"),
        ((1, 2, 3, 4), {}, "too many positional arguments"),
        ((1,), {"hight": 3}, "hight"),
        (("wide",), {}, "Expected `int`"),
        ((1.5,), {}, "Expected `int`"),
        ((1,), {"mode": "bend"}, "bend"),
        ((object(),), {}, "not JSON"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_when_it_is_made(
    app: Dibs, args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    @app.task
    def resize(width: int, height: int = 3, mode: Literal["crop", "fit"] = "fit") -> None: ...

    for refused in (resize.new, resize.enqueue):
        with pytest.raises(InvalidValue, match=complaint):
            refused(*args, **kwargs)


def test_a_context_is_passed_by_the_worker_and_not_by_the_caller(app: Dibs) -> None:
    @app.task
    def by_name(ctx, n=1): ...  # type: ignore[no-untyped-def]

    @app.task
    def by_annotation(n: int, context: Context) -> None: ...

    @app.task
    def by_text(context: Context, n: int) -> None: ...

    @app.task
    def own(n: int, ctx: int) -> None: ...

    assert by_name.new(2).params == {"n": 2}
    assert by_annotation.new(2).params == {"n": 2}
    assert by_text.new(2).params == {"n": 2}
    assert own.new(2, 3).params == {"n": 2, "ctx": 3}


def test_without_annotations_any_json_is_accepted(app: Dibs) -> None:
    @app.task
    def loose(a, b=None): ...  # type: ignore[no-untyped-def]

    assert loose.new([1, "x"], b={"c": None}).params == {"a": [1, "x"], "b": {"c": None}}


def test_annotations_that_only_a_type_checker_can_resolve_check_nothing(app: Dibs) -> None:
    @app.task
    def odd(a: NoSuchName, context: Context) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert odd.new(a=1).params == {"a": 1}


def test_options_return_a_new_handler_and_leave_the_first_unchanged(app: Dibs) -> None:
    @app.task(max_attempts=4)
    def job() -> None: ...

    assert (job.options(priority=3).new().priority, job.new().priority) == (3, 0)
    assert job.options(priority=3).options(timeout=5).new().priority == 3
    assert job.options(priority=3).new().max_attempts == 4
    with pytest.raises(InvalidValue):
        job.options(priority=math.inf).new()  # type: ignore[typeddict-item]


def test_enqueue_hands_one_new_task_to_the_store(app: Dibs, tmp_path: Path) -> None:
    @app.task
    def job(n: int) -> None: ...

    assert job.new(1) == job.new(n=1)
    assert isinstance(app._store.queue.enqueue([job.new(1)]), Operation)


def test_a_scheduled_handler_must_not_require_arguments(app: Dibs) -> None:
    with pytest.raises(InvalidValue, match="missing a required argument"):

        @app.task(schedule="@daily")
        def report(year: int) -> None: ...

    assert not app.handlers


def test_the_first_calls_of_a_handler_may_be_concurrent() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.helpers.first_calls"], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 0
