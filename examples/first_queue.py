"""A first queue: an app with three handlers, and what happens to some of their tasks, printed to the terminal.

`python first_queue.py` runs it; it keeps its tasks in a temporary SQLite file and needs no server. For a queue
of your own in `dibs.db`, run `dibs worker first_queue:app` in this folder.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path

import dibs

app = dibs.Dibs("sqlite:///dibs.db")


@app.task(max_attempts=5, timeout=30)
def resize(picture: int, width: int = 800) -> dict[str, int]:
    time.sleep(0.05)
    return {"picture": picture, "width": width}


@app.task(backoff=dibs.Backoff(base=0.2))
def fetch(ctx: dibs.Context, address: str) -> str:
    if ctx.attempt == 1:
        raise ConnectionError(f"{address} does not answer")
    return f"what {address} said"


@app.task
def export(ctx: dibs.Context, rows: int) -> int:
    for row in range(rows):
        ctx.raise_if_cancelled()
        ctx.progress(100 * row // rows, f"row {row}")
        time.sleep(0.05)
    return rows


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="  the worker's log: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        app.use_url(f"sqlite:///{(Path(folder) / 'first.db').as_posix()}")
        with app:
            tell_the_story()


def tell_the_story() -> None:
    print("Enqueue: five pictures, the last the most urgent; an address that does not answer at first; a long export.")
    pictures = app.enqueue_many([resize.options(priority=n).new(n) for n in range(1, 6)])
    fetched = fetch.options(key="first-fetch").enqueue("example")
    again = fetch.options(key="first-fetch").enqueue("example")
    print(f"  the key 'first-fetch' was used twice: both times task {again.id}, deduplicated: {again.deduplicated}")
    export_all = export.enqueue(rows=10_000)
    unwanted = resize.options(delay=3600).enqueue(picture=7)
    print(f"  task {unwanted.id} is {unwanted.state}, then {app.cancel(unwanted.id).state}")

    print("\nWork: one worker with two threads, in the background of this program.")
    with app.worker(concurrency=2):
        for task in pictures:
            print(f"  task {task.id}: {task.wait(timeout=30).result}")
        print(f"  task {fetched.id}: {fetched.wait(timeout=30).result!r}, on its second attempt")
        app.cancel(export_all.id)
        print(f"  task {export_all.id} was asked to stop, and is {export_all.wait(timeout=30).state}")

    print(f"\nLook: the queue now holds {app.stats().depth}.")
    print(f"The history of task {fetched.id}:")
    for entry in app.history(fetched.id):
        detail = f"  ({entry.detail['message']})" if entry.event is dibs.Event.FAILED and entry.detail else ""
        print(f"  {entry.at:%H:%M:%S.%f}  {entry.event:<9} -> {entry.to_state:<9}{detail}")


if __name__ == "__main__":
    main()
