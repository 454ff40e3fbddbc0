"""Mistakes with tasks of Dibs. Both type checkers refuse exactly the lines that are marked."""

from __future__ import annotations

import dibs

app = dibs.Dibs("sqlite://")


@app.task
def resize(picture: int, width: int = 800) -> dict[str, int]:
    return {"picture": picture, "width": width}


@app.task(max_attempts=5)
async def fetch(ctx: dibs.Context, url: str) -> bytes:
    return url.encode()


resize.enqueue("7")  # refused
resize.enqueue(7, height=400)  # refused
resize.enqueue()  # refused
resize.new(7, width="400")  # refused
fetch.enqueue(url=7)  # refused
resize.on(object()).enqueue("7")  # refused
print(resize.on(object()).enqueue(7).wait().result.width)  # refused
resize.on()  # refused
resize.options(prority=5)  # refused

width: str = resize.enqueue(7).wait().result["width"]  # refused
text: str = fetch.enqueue("a").wait().result  # refused
print(resize.enqueue(7).wait().result.width)  # refused
print(resize.get(7).state)  # refused
length = len(fetch("a"))  # refused


def show(task: dibs.Task[str]) -> str:
    return task.wait().result


show(resize.enqueue(7))  # refused
show(app.enqueue("resize", {"picture": 7}))


def resize_all(handler: dibs.Handler[[str], int]) -> None: ...


resize_all(resize)  # refused


@app.task(max_attemps=5)  # refused
def crop(picture: int) -> None: ...
