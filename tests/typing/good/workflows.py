# pyright: strict
"""Workflows with checked steps. Both type checkers accept every line."""

from __future__ import annotations

from typing import Any, assert_type

import dibs
from dibs.testing import isolated

app = dibs.Dibs("sqlite://")


@app.task
def fetch(url: str) -> list[int]:
    return [len(url)]


@app.task
async def resize(picture: int, width: int = 800) -> int:
    return picture * width


@app.task
def publish(ctx: dibs.Context, title: str) -> int:
    if ctx.workflow_id is not None:
        added = ctx.step(resize, picture=7)
        ctx.step(resize.new(8, width=400), after=[added])
        ctx.options(name="last").step(resize, 9)
    return len(title)


with app.workflow("album") as flow:
    first = flow.step(fetch, "https://example.org")
    second = flow.step(resize, picture=7, width=400)
    third = flow.step(resize.new(picture=8), after=[first, second])
    flow.step(publish.new("mine"), after=third)
    flow.step(publish, title="ours", after=[third])  # not checked, because it has `after` beside the arguments
    flow.step("in-another-program", page=1, after="fetch")
    flow.options(name="more").step(resize, 9)
    flow.finalize(publish, "all")

with app.workflow("album") as flow:
    flow.finalize(publish.new("all"), when="always")
with app.workflow("album") as flow:
    flow.finalize(publish, "all", when="failure")  # not checked, because it has `when` beside the arguments
with app.workflow("album") as flow:
    flow.finalize("in-another-program", when="failure", to="ops")

assert_type(flow.wait(timeout=30), dibs.Workflow)
assert_type(flow.stored.wait(), dibs.Workflow)
assert_type(flow.result(), Any)
assert_type(app.wait_workflow(flow.id).wait().state, dibs.WorkflowState)

with isolated(app) as box:
    assert_type(box.run_now(resize, 7), int)
    assert_type(box.run_now(fetch, url="https://example.org"), list[int])
