"""dibs.testing and workflows: drain runs a whole workflow in order, with its finalizer, on the clock of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import WorkflowState
from dibs.testing import Sandbox, isolated


@pytest.fixture
def app(tmp_path: Path) -> dibs.Dibs:
    """An app whose own store no test may touch."""
    return dibs.Dibs(f"sqlite:///{tmp_path}/own.db")


@pytest.fixture
def box(app: dibs.Dibs) -> Iterator[Sandbox]:
    with isolated(app) as box:
        yield box


def test_a_drain_runs_a_workflow_to_its_end(app: dibs.Dibs, box: Sandbox) -> None:
    @app.task
    def split(ctx: dibs.Context, parts: int) -> None:
        for n in range(parts):
            ctx.step(double, n=n)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def total(ctx: dibs.Context) -> int:
        return int(sum(ctx.results.of(double)))

    with app.workflow("sum") as flow:
        with flow.workflow("parts") as parts:
            parts.step(split, parts=4)
        flow.step(split, parts=3)
        flow.finalize(total)
    done = box.drain()
    assert [task.type for task in done] == ["split", "split", *["double"] * 7, "total"]
    assert done[-1].result == 0 + 2 + 4
    assert app.wait_workflow(flow.id, 0).state is WorkflowState.COMPLETED


def test_a_drain_runs_many_tasks_and_the_finalizer_of_a_failed_workflow(app: dibs.Dibs, box: Sandbox) -> None:
    @app.task(max_attempts=1)
    def halve(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    @app.task
    def clean_up(ctx: dibs.Context) -> list[str]:
        return [*ctx.execution.completed, *ctx.execution.failed]

    tasks = halve.map([2, 4])
    with app.workflow("halves", on_failure="continue") as flow:
        flow.step(halve, n=2)
        flow.step(halve, n=3)
        flow.finalize(clean_up, when="failure")
    assert box.drain()[-1].result == ["halve", "halve-2"]
    assert tasks.results(0) == [1, 2]
    with pytest.raises(dibs.WorkflowFailed, match="3 is odd"):
        flow.result(0)


def test_a_drain_runs_a_recursive_crawl(app: dibs.Dibs, box: Sandbox) -> None:
    @app.task
    def crawl(ctx: dibs.Context, depth: int) -> int:
        for _ in range(depth):
            ctx.step(crawl, depth=depth - 1)
        return depth

    with app.workflow("site") as flow:
        flow.step(crawl, depth=3)
    assert [task.result for task in box.drain()].count(0) == 6
    assert app.wait_workflow(flow.id, 0).state is WorkflowState.COMPLETED


def test_a_handler_without_a_workflow_has_no_results_and_keeps_its_checkpoints(app: dibs.Dibs, box: Sandbox) -> None:
    @app.task
    def look(ctx: dibs.Context) -> list[Any]:
        return [dict(ctx.results), ctx.workflow_id, ctx.checkpoint("n", lambda: (1, 2)), ctx.checkpoint("n", dict)]

    @app.task
    async def look_async(ctx: dibs.Context) -> list[Any]:
        async def one() -> int:
            return 1

        return [dict(ctx.results), await ctx.checkpoint("n", one)]

    assert box.run_now(look) == [{}, None, [1, 2], [1, 2]]
    assert box.run_now(look_async) == [{}, 1]
    assert asyncio.run(box.run_now_async(look_async)) == [{}, 1]


def test_a_deadline_follows_the_clock_of_the_test(app: dibs.Dibs, box: Sandbox) -> None:
    @app.task
    def late() -> None: ...

    with app.workflow("late", deadline=60) as flow:
        flow.step(late.options(delay=3600))
    box.clock.advance(61)
    assert box.drain() == []
    assert app.wait_workflow(flow.id, 0).state is WorkflowState.FAILED
