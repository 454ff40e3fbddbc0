"""Mistakes with many tasks. Both type checkers refuse exactly the lines that are marked."""

from __future__ import annotations

import dibs

app = dibs.Dibs("sqlite://")
async_app = dibs.AsyncDibs("sqlite://")


@app.task
def resize(picture: int, width: int = 800) -> dict[str, int]:
    return {"picture": picture, "width": width}


@async_app.task
async def scale(picture: int, width: int = 800) -> int:
    return picture * width


resize.map(["a", "b"])  # refused
resize.map([1, 2], height=400)  # refused
resize.map([1, 2], width="400")  # refused
resize.map(7)  # refused
resize.starmap([("a", 400)])  # refused
resize.keyed(lambda picture, width=800: 7)  # refused

texts: list[str] = resize.map([1]).results()  # refused
width: str = resize.map([1])[0].result["width"]  # refused


async def main() -> None:
    print(scale.map([1]).ids)  # refused
    tasks = await scale.map(["a"])  # refused
    print(tasks.results()[0])  # refused
    for task in tasks.as_completed():  # refused
        print(task)
