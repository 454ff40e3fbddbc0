"""Mistakes in workflows. Both type checkers refuse exactly the lines that are marked."""

from __future__ import annotations

import dibs
from dibs.testing import isolated

app = dibs.Dibs("sqlite://")


@app.task
def resize(picture: int, width: int = 800) -> int:
    return picture * width


@app.task
def publish(ctx: dibs.Context, title: str) -> int:
    ctx.step(resize, picture="7")  # refused
    ctx.step(resize.new(height=7))  # refused
    ctx.options(name="a").step(resize)  # refused
    return len(title)


with app.workflow("album") as flow:
    first = flow.step(resize, picture="7")  # refused
    flow.step(resize, pictures=7)  # refused
    flow.step(resize)  # refused
    flow.step(publish.new(7), after=[first])  # refused
    flow.step(resize.new(7), after=7)  # refused
    flow.step(7)  # refused
    flow.options(name="b").step(resize, 7, "400")  # refused
    flow.finalize(publish, 7)  # refused
    flow.finalize(publish.new("all"), when="later")  # refused
    flow.finalize("in-another-program", when=True)  # refused

state: int = flow.wait().state  # refused
name: str = flow.wait().names  # refused


async def begin() -> None:
    async with app.workflow("album"):  # refused
        pass


with isolated(app) as box:
    title: str = box.run_now(resize, 7)  # refused
    box.run_now(resize, "7")  # refused
