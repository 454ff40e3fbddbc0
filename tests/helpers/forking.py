"""Programs that fork while they use a store, as some servers do: `python -m tests.helpers.forking PROGRAM URL`."""

from __future__ import annotations

import os
import sys
import threading

import dibs
from dibs.store.sqlite import writer

CHILDREN = 4
EACH = 25


def go_on_together(url: str) -> None:
    """Parent and children go on with the very same object, the parent with a second thread that writes all the time."""
    app = dibs.Dibs(url)
    app.enqueue("before", {"pid": os.getpid()})
    app.stats()  # a reader is open as well
    stop = threading.Event()
    writer = threading.Thread(target=write_until, args=[app, stop])
    writer.start()
    children = [fork(app) for _ in range(CHILDREN)]
    use(app, "parent")
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    use(app, "after")
    stop.set()
    writer.join()
    app.close()
    sys.exit(any(ended))


def fork(app: dibs.Dibs) -> int:
    child = os.fork()
    if child:
        return child
    use(app, "child")
    sys.exit(0)  # the ordinary way out, with every destructor and exit handler that the parent has, too


def use(app: dibs.Dibs, kind: str) -> None:
    for number in range(EACH):
        task = app.enqueue(kind, {"pid": os.getpid(), "number": number})
        claim = app.claim_by_id(task.id, f"process-{os.getpid()}")
        app.complete(claim, number)
        found = app.get(task.id)
        assert found is not None
        assert found.result == number


def write_until(app: dibs.Dibs, stop: threading.Event) -> None:
    while not stop.is_set():
        app.enqueue("meanwhile", {"pid": os.getpid()})


def parent_closes(url: str) -> None:
    """The parent lets go of the store, and the child goes on: a daemon that leaves its terminal does this."""
    app = dibs.Dibs(url)
    app.enqueue("before")
    child_is_open, tell_parent = os.pipe()
    parent_is_done, tell_child = os.pipe()
    child = os.fork()
    if not child:
        app.enqueue("child")
        os.write(tell_parent, b"!")
        os.read(parent_is_done, 1)
        for _ in range(EACH):
            app.enqueue("child")
        os._exit(0)
    os.read(child_is_open, 1)
    app.close()
    os.write(tell_child, b"!")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    writer.BUSY_TIMEOUT = 5.0
    {"go_on_together": go_on_together, "parent_closes": parent_closes}[sys.argv[1]](sys.argv[2])
