# pyright: strict
"""Programs that use typed tasks of Dibs as intended. Both type checkers accept every line."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import LogRecord
from typing import Any, assert_type

import dibs

app = dibs.Dibs("sqlite://")


@dataclass
class Size:
    width: int
    height: int


@app.task
def resize(picture: int, width: int = 800) -> dict[str, int]:
    return {"picture": picture, "width": width}


@app.task(max_attempts=5, timeout=30)
def measure(ctx: dibs.Context, picture: int) -> Size:
    ctx.progress(50)
    return Size(picture, picture)


@app.task
async def fetch(url: str) -> datetime:
    return datetime.now(UTC)


@app.task(name="remove")
def remove_picture(picture: int) -> None: ...


# The result of a task has the return type of its handler, before and after waiting.
task = resize.enqueue(7, width=400)
assert_type(task, dibs.Task[dict[str, int]])
assert_type(task.wait(), dibs.Task[dict[str, int]])
assert_type(task.wait(timeout=30).result, dict[str, int])
assert_type(task.result["width"], int)
assert_type(measure.enqueue(7).wait().result, Size)
assert_type(measure.enqueue(picture=7).wait().result.width, int)
assert_type(fetch.enqueue("https://example.org").wait().result, datetime)
assert_type(remove_picture.enqueue(7), dibs.Task[None])
assert_type(resize.options(priority=5).enqueue(7), dibs.Task[dict[str, int]])
assert_type(task.raw_result, Any)

# A direct call runs the function.
assert_type(resize(7), dict[str, int])
started: Coroutine[Any, Any, datetime] = fetch("https://example.org")
started.close()

# A handler reads its tasks by id with their type; the client reads plain JSON.
found = resize.get(7)
assert_type(found, dibs.Task[dict[str, int]] | None)
plain = app.get(7)
assert plain is not None
assert_type(plain.result, Any)
assert_type(app.enqueue("resize", {"picture": 7}).wait().result, Any)


# Annotations without a type argument mean a task or handler of any type.
def show(which: dibs.Task) -> str:
    return which.state


def show_width(sizes: dibs.Task[Mapping[str, int]]) -> int:
    return sizes.wait().result["width"]


def enqueue_twice(handler: dibs.Handler[[int], Size]) -> list[Size]:
    return [handler.enqueue(picture).wait().result for picture in (1, 2)]


show(task)
show_width(task)
enqueue_twice(measure)


# What a handler logs is kept with its task, if its option says so.
def keep(record: LogRecord) -> LogRecord | None:
    return record if record.levelno > 10 else None


@app.task(capture_logs=dibs.LogCapture(prints=True, filter=keep))
def logs(picture: int) -> None: ...


assert_type(logs.enqueue(7).logs(), list[dibs.LogLine])
assert_type(next(task.follow_logs(level="error")).level, dibs.LogLevel)


# A handler on a connection of the program has the arguments and the result of the handler.
def ship_in_transaction(connection: object) -> None:
    assert_type(resize.on(connection).enqueue(7, width=400), dibs.Task[dict[str, int]])
    assert_type(resize.options(priority=5).on(connection).enqueue(7).wait().result["width"], int)
    assert_type(measure.on(connection).new(7), dibs.NewTask)
    assert_type(app.on(connection), dibs.Dibs)
