"""Programs that fork while they use a store, as some servers do: `python -m tests.helpers.forking PROGRAM URL`."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import dibs
from dibs.store.sqlite import writer

CHILDREN = 4
EACH = 25


def go_on_at_once(url: str) -> None:
    """Parent and children continue with the same object; a second thread of the parent writes all the time."""
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
    """The parent closes the store, and the child continues, as a daemon that leaves its terminal does."""
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


def two_threads_fork(url: str) -> None:
    """Two threads start a child each, at the same moment, again and again."""
    app = dibs.Dibs(url)
    together = threading.Barrier(2)

    def fork_often() -> None:
        for _ in range(EACH):
            app.enqueue("before")
            together.wait()
            end_of(os.fork())

    threads = [threading.Thread(target=fork_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    use(app, "after")


def others_open(url: str) -> None:
    """Others open the file for the first time, or wait for something to change, while this thread forks."""
    app = dibs.Dibs(url)
    app.enqueue("before")
    stop = threading.Event()
    others = [threading.Thread(target=other, args=[app, url, stop]) for other in (open_until, wait_until)]
    for thread in others:
        thread.start()
    open_files = sum(end_of(fork_to_look(url)) for _ in range(4 * EACH))
    stop.set()
    for thread in others:
        thread.join()
    sys.exit(f"{open_files} children inherited an open database" if open_files else 0)


def open_until(_: dibs.Dibs, url: str, stop: threading.Event) -> None:
    while not stop.is_set():
        with dibs.Dibs(url) as app:
            app.get(1)


def wait_until(app: dibs.Dibs, _: str, stop: threading.Event) -> None:
    while not stop.is_set():
        wakeups = app._store.wakeups
        seen = wakeups.generation
        app.get(1)
        wakeups.wait(seen, 0.01)


def fork_to_look(url: str) -> int:
    """A child that ends with 1 if it has inherited the database as an open file."""
    child = os.fork()
    if not child:
        os._exit(any(url.removeprefix("sqlite:///") in name for name in open_files()))
    return child


def open_files() -> list[str]:
    """What the process has open, by name."""
    return [str(file.readlink()) for file in list(Path("/proc/self/fd").iterdir()) if file.is_symlink()]


def end_of(child: int) -> int:
    """Its exit code; in the child, the end."""
    if not child:
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


PROGRAMS = {program.__name__: program for program in (go_on_at_once, parent_closes, two_threads_fork, others_open)}

if __name__ == "__main__":
    writer.BUSY_TIMEOUT = 5.0
    PROGRAMS[sys.argv[1]](sys.argv[2])
