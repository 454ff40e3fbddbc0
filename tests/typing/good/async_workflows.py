# pyright: strict
"""Workflows of AsyncDibs. Both type checkers accept every line."""

from __future__ import annotations

from typing import Any, assert_type

import dibs

app = dibs.AsyncDibs("sqlite://")


@app.task
async def resize(picture: int) -> int:
    return picture


async def main() -> None:
    async with app.workflow("album", key="album-7") as flow:
        first = flow.step(resize, picture=7)
        with flow.workflow("more", after=first) as more:
            more.step(resize, 8)
    assert_type(await flow.wait(timeout=30), dibs.AsyncWorkflow)
    assert_type(await flow.result(timeout=30), Any)
    assert_type(flow.stored, dibs.AsyncWorkflow)
    assert_type(await flow.stored.result(), Any)
    assert_type((await app.wait_workflow(flow.id)).state, dibs.WorkflowState)
    assert_type(await app.workflow_result(flow.id), Any)
    if (workflow := await app.get_workflow(flow.id)) is not None:
        assert_type(await workflow.wait(), dibs.AsyncWorkflow)
    for listed in await app.list_workflows(name="album"):
        assert_type(listed, dibs.AsyncWorkflow)
