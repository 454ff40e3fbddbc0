"""Forgotten awaits and other mistakes with workflows of AsyncDibs. Both type checkers refuse the marked lines."""

from __future__ import annotations

import dibs

app = dibs.AsyncDibs("sqlite://")


@app.task
async def resize(picture: int) -> int:
    return picture


def state_of(workflow: dibs.Workflow) -> str:
    return workflow.wait().state


async def main() -> None:
    async with app.workflow("album") as flow:
        flow.step(resize, picture="7")  # refused
    flow.wait(timeout=30)  # refused
    flow.result()  # refused
    app.workflow_result(flow.id)  # refused
    flow.stored.wait()  # refused
    flow.stored.result()  # refused
    state = flow.wait().state  # refused
    total: int = flow.result()  # refused
    known: int = flow.stored.result()  # refused
    pages = flow.result()["pages"]  # refused
    found = app.get_workflow(7).state  # refused
    state_of(await flow.wait())  # refused
    with app.workflow("album"):  # refused
        pass
    print(state, total, known, pages, found)
