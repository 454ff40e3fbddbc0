"""The SQLite writer: many callers share a commit, an error concerns one caller, and no caller waits forever."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import ClaimLost, ClaimRef, KeyConflict, NewTask, StoreBusy, StoreError, Verdict
from dibs.store.operation import Operation, Statements
from dibs.store.sqlite import writer
from dibs.store.sqlite.database_file import create
from dibs.store.sqlite.readers import READERS, Readers
from tests.helpers import forking
from tests.helpers.processes import ROOT, ask_all, processes
from tests.helpers.waiting import until
from tests.helpers.wal import commits_in_wal, empty_wal

CALLERS = 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "dibs.db"


@pytest.fixture
def app(path: Path) -> Iterator[dibs.Dibs]:
    """A client whose store is open."""
    with dibs.Dibs(f"sqlite:///{path}") as app:
        app.enqueue("first")
        yield app


@pytest.fixture
def other(path: Path, app: dibs.Dibs) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the file."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


@contextmanager
def locked(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def call_while_locked(other: sqlite3.Connection, calls: list[Callable[[], Any]]) -> list[Any]:
    """The answers of all calls, made from a thread each, which all wait for the lock before it is let go."""
    with ThreadPoolExecutor(len(calls)) as pool:
        with locked(other):
            futures = [pool.submit(call) for call in calls]
            until(lambda: threads_in_writer() == len(calls))
        return [answer_of(future) for future in futures]


def threads_in_writer() -> int:
    """How many threads are in the writer's code right now."""
    return sum(is_in_writer(frame) for frame in sys._current_frames().values())


def is_in_writer(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == writer.__file__:
            return True
        frame = frame.f_back
    return False


def answer_of(future: Future[Any]) -> Any:
    return future.exception() or future.result()


def params_stored(app: dibs.Dibs, type: str) -> list[Any]:
    return sorted(task.params["n"] for task in app.list_tasks(type=type, limit=1000))


# Group commit


def test_callers_that_wait_for_the_same_lock_share_a_commit(
    app: dibs.Dibs, path: Path, other: sqlite3.Connection
) -> None:
    empty_wal(other)
    call_while_locked(other, [lambda n=n: app.enqueue("t", {"n": n}) for n in range(CALLERS)])
    commits = commits_in_wal(path)
    assert params_stored(app, "t") == list(range(CALLERS))
    assert commits <= 3, f"{CALLERS} operations took {commits} commits"


def test_a_lone_caller_gets_a_commit_for_each_call(app: dibs.Dibs, path: Path, other: sqlite3.Connection) -> None:
    empty_wal(other)
    for n in range(5):
        app.enqueue("t", {"n": n})
        assert commits_in_wal(path) == n + 1


def test_an_event_loop_and_threads_share_a_commit(app: dibs.Dibs, path: Path, other: sqlite3.Connection) -> None:
    async def enqueue_all() -> None:
        looped = app_of_a_loop(app)
        await asyncio.gather(*(looped.enqueue("t", {"n": n}) for n in range(CALLERS, 2 * CALLERS)))

    empty_wal(other)
    calls = [lambda n=n: app.enqueue("t", {"n": n}) for n in range(CALLERS)]
    answers = call_while_locked(other, [*calls, lambda: asyncio.run(enqueue_all())])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert params_stored(app, "t") == list(range(2 * CALLERS))
    assert commits_in_wal(path) <= CALLERS


def app_of_a_loop(app: dibs.Dibs) -> dibs.AsyncDibs:
    """An AsyncDibs on the same open store."""
    looped = dibs.AsyncDibs(app.url)
    looped._store = app._store
    return looped


@contextmanager
def inserts(app: dibs.Dibs) -> Iterator[list[str]]:
    """The statements with which tasks are stored meanwhile."""
    connection = app._store._opened().writer._connection  # type: ignore[attr-defined]
    seen: list[str] = []
    connection.set_trace_callback(lambda sql: "INTO dibs_tasks" in sql and seen.append(sql))
    try:
        yield seen
    finally:
        connection.set_trace_callback(None)


def test_enqueues_that_wait_concurrently_are_one_statement(app: dibs.Dibs, other: sqlite3.Connection) -> None:
    with inserts(app) as seen:
        tasks = call_while_locked(other, [lambda n=n: app.enqueue("t", {"n": n}) for n in range(CALLERS)])
    assert [task.params["n"] for task in tasks] == list(range(CALLERS))
    assert [app.get(task.id) for task in tasks] == tasks
    assert len(seen) <= 3, f"{CALLERS} enqueues took {len(seen)} statements"


def test_enqueues_with_different_signatures_are_not_coalesced(app: dibs.Dibs, other: sqlite3.Connection) -> None:
    names = [f"sender-{n}" for n in range(4)]
    calls = [lambda by=by: app.signed(by).enqueue("t", {"n": 0}) for by in names * 3]
    tasks = call_while_locked(other, calls)
    assert [app.history(task.id)[0].by for task in tasks] == names * 3


def test_coalesced_enqueues_with_one_key_get_one_task(app: dibs.Dibs, other: sqlite3.Connection) -> None:
    same = [lambda: app.enqueue("t", {"n": 0}, key="k") for _ in range(6)]
    others = [lambda n=n: app.enqueue("t", {"n": n}, key="k") for n in (1, 2)]
    free = [lambda n=n: app.enqueue("t", {"n": n}, key=f"k{n}") for n in (3, 4)]
    answers = call_while_locked(other, [*same, *others, *free])
    stored = params_stored(app, "t")
    assert stored[-2:] == [3, 4]
    assert len(stored) == 3
    agreed = [answer for answer in answers[:8] if isinstance(answer, dibs.Task)]
    assert {(answer.id, answer.params["n"]) for answer in agreed} == {(agreed[0].id, stored[0])}
    assert sum(not answer.deduplicated for answer in agreed) == 1
    refused = [answer for answer in answers[:8] if not isinstance(answer, dibs.Task)]
    assert [(type(answer), answer.task_id) for answer in refused] == [(KeyConflict, agreed[0].id)] * len(refused)
    assert len(refused) == (2 if stored[0] == 0 else 7)


def test_an_error_of_one_caller_does_not_affect_other_callers(
    app: dibs.Dibs, path: Path, other: sqlite3.Connection
) -> None:
    app.enqueue("keyed", {"n": 0}, key="taken")
    app.register_type("strict", {"required": ["n"]})
    conflict = [NewTask("t", {"n": 100}, key="free"), NewTask("keyed", {"n": 1}, key="taken")]
    empty_wal(other)
    answers = call_while_locked(
        other,
        [
            *(lambda n=n: app.enqueue("t", {"n": n}) for n in range(5)),
            lambda: app.enqueue_many(conflict),
            lambda: app.enqueue("strict", {}),
            lambda: app.complete(ClaimRef(1, 1, "nobody")),
            *(lambda n=n: app.enqueue("t", {"n": n}) for n in range(5, 10)),
        ],
    )
    assert [type(answer) for answer in answers[5:8]] == [KeyConflict, dibs.SchemaViolation, ClaimLost]
    assert [answer.params["n"] for answer in answers[:5] + answers[8:]] == list(range(10))
    assert params_stored(app, "t") == list(range(10))  # and not the task before the conflict
    assert [len(app.history(task.id)) for task in app.list_tasks(type="t")] == [1] * 10
    assert commits_in_wal(path) <= 3


# Errors of the disk


@contextmanager
def full_disk(app: dibs.Dibs, pages_left: int) -> Iterator[None]:
    """Let SQLite report a full disk after this number of further pages."""
    connection = app._store._opened().writer._connection  # type: ignore[attr-defined]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + pages_left}")
    try:
        yield
    finally:
        connection.execute("PRAGMA max_page_count = 4294967294")


LARGE = "x" * 200_000


def test_a_full_disk_stops_every_caller_with_a_clear_error_and_writes_nothing(
    app: dibs.Dibs, other: sqlite3.Connection
) -> None:
    with full_disk(app, pages_left=0):
        answers = call_while_locked(other, [lambda: app.enqueue("t", {"n": LARGE}) for _ in range(8)])
        assert [type(answer) for answer in answers] == [StoreError] * 8
        assert {answer.message for answer in answers} == {"The disk is full; nothing was written."}
        with pytest.raises(StoreError, match="The disk is full"):
            app.enqueue("t", {"n": LARGE})
    assert_sound(app, tasks=1)
    app.enqueue("t", {"n": LARGE})
    assert_sound(app, tasks=2)


def test_a_full_disk_stops_only_writes_that_need_more_space(app: dibs.Dibs, other: sqlite3.Connection) -> None:
    with full_disk(app, pages_left=20):
        calls = [lambda n=n: app.enqueue("t", {"n": n, "filling": LARGE * (n % 2)}) for n in range(8)]
        answers = call_while_locked(other, calls)
    assert [type(answer) for answer in answers] == [dibs.Task, StoreError] * 4
    assert params_stored(app, "t") == [0, 2, 4, 6]
    assert_sound(app, tasks=5)


def assert_sound(app: dibs.Dibs, tasks: int) -> None:
    """The file is whole, every task has its history, and no history is without its task."""
    assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []
    stored = app.list_tasks(limit=1000)
    assert len(stored) == tasks
    assert {entry.task_id for entry in app.all_history()} == {task.id for task in stored}


# Waiting for the lock


def test_a_caller_gives_up_after_the_busy_timeout_with_a_message(
    app: dibs.Dibs, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_TIMEOUT", 0.1)
    with locked(other):
        with pytest.raises(StoreBusy, match=r"locked for .* seconds[\s\S]*hint: .*write transaction open.* on\("):
            app.enqueue("t", {"n": 0})
        answers = []
        with ThreadPoolExecutor(4) as pool:
            answers = list(map(answer_of, [pool.submit(app.enqueue, "t", {"n": n}) for n in range(4)]))
        assert [type(answer) for answer in answers] == [StoreBusy] * 4
    app.enqueue("t", {"n": 1})
    assert params_stored(app, "t") == [1]


def test_readers_do_not_wait_for_the_lock(app: dibs.Dibs, other: sqlite3.Connection) -> None:
    with locked(other):
        assert len(app.list_tasks()) == 1
        assert len(app.peek()) == 1


def test_no_process_starves_while_ten_write(path: Path) -> None:
    url = f"sqlite:///{path}"
    with dibs.Dibs(url) as app, processes(url, 10) as members:
        began = time.monotonic()
        longest = ask_all(members, [{"do": "enqueue_one_by_one", "count": 100}] * 10)
        took = time.monotonic() - began
        print(f"longest waits: {', '.join(f'{1000 * wait:.0f} ms' for wait in sorted(longest))}")
        by = Counter(entry.params["by"] for page in pages(app) for entry in page)
        assert by == {member.name: 100 for member in members}
    assert max(longest) < max(2, took / 4)  # a busy machine makes all of them slow


def pages(app: dibs.Dibs) -> Iterator[list[dibs.Task]]:
    cursor = None
    while page := app.list_tasks(limit=1000, cursor=cursor):
        yield page
        cursor = page[-1].id


# Event loops


@pytest.mark.parametrize("opened", [True, False], ids=["open_store", "first_use"])
def test_the_event_loop_continues_while_a_write_waits_for_the_lock(
    path: Path, other: sqlite3.Connection, opened: bool
) -> None:
    async def enqueue_while_locked() -> None:
        async with dibs.AsyncDibs(f"sqlite:///{path}") as looped:
            if opened:
                await looped.get(1)
            with locked(other):
                pending = asyncio.ensure_future(looped.enqueue("t", {"n": 1}))
                await turns_of_the_loop(50)
                assert (await looped.get(1)) is not None  # and readers continue as well
                assert not pending.done()
            assert (await pending).params == {"n": 1}

    asyncio.run(enqueue_while_locked())


async def turns_of_the_loop(count: int) -> None:
    """So many turns, in which the event loop does what it is asked to. Were the loop to wait for the lock, which is
    released after these turns, the write would fail before they end."""
    for _ in range(count):
        await asyncio.sleep(0.005)


def test_the_event_loop_continues_while_a_new_file_waits_to_be_migrated(tmp_path: Path) -> None:
    path = tmp_path / "new.db"

    async def enqueue_while_locked(other: sqlite3.Connection) -> None:
        async with dibs.AsyncDibs(f"sqlite:///{path}") as looped:
            with locked(other):
                pending = asyncio.ensure_future(looped.enqueue("t"))
                await turns_of_the_loop(50)
                assert not pending.done()
            await pending

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        asyncio.run(enqueue_while_locked(other))


def test_a_write_whose_caller_stopped_waiting_does_not_hold_up_the_next(path: Path, other: sqlite3.Connection) -> None:
    async def give_up_and_go_on() -> None:
        async with dibs.AsyncDibs(f"sqlite:///{path}") as looped:
            with locked(other), pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await looped.enqueue("abandoned")
            assert (await looped.enqueue("t", {"n": 1})).params == {"n": 1}

    asyncio.run(give_up_and_go_on())


# Forks


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_parent_and_child_processes_continue_with_the_same_client_after_a_fork(path: Path) -> None:
    url = f"sqlite:///{path}"
    run_forking("go_on_at_once", url)
    with dibs.Dibs(url) as app:
        states = Counter((task.type, str(task.state)) for page in pages(app) for task in page)
        assert states[("child", "completed")] == forking.CHILDREN * forking.EACH
        assert states[("parent", "completed")] == states[("after", "completed")] == forking.EACH
        assert states[("meanwhile", "pending")] > 0
        assert [check for check in app.doctor() if check.verdict is Verdict.FAIL] == []


@needs_fork
def test_a_write_acknowledged_to_a_forked_child_is_stored_after_its_parent_has_closed(path: Path) -> None:
    url = f"sqlite:///{path}"
    run_forking("parent_closes", url)
    with dibs.Dibs(url) as app:
        assert Counter(task.type for task in app.list_tasks()) == {"before": 1, "child": 1 + forking.EACH}


@needs_fork
def test_two_threads_may_fork_concurrently(path: Path) -> None:
    run_forking("two_threads_fork", f"sqlite:///{path}")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_forked_child_inherits_a_file_that_another_thread_was_opening(path: Path) -> None:
    run_forking("others_open", f"sqlite:///{path}")


def test_event_loops_that_make_the_first_write_concurrently_share_a_thread(path: Path) -> None:
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            write_first_from_two_loops(f"sqlite:///{path}")
    finally:
        sys.setswitchinterval(switching)


def write_first_from_two_loops(url: str) -> None:
    app = dibs.AsyncDibs(url)
    together = threading.Barrier(2)

    async def write() -> None:
        together.wait()
        await app.enqueue("first")

    with ThreadPoolExecutor(2) as pool:
        loops = [pool.submit(asyncio.run, write()) for _ in range(2)]
        for loop in loops:
            loop.result(30)
        assert sum(thread.name == "dibs-writer" for thread in threading.enumerate()) == 1
        pool.submit(asyncio.run, app.close()).result(30)


def run_forking(program: str, url: str) -> None:
    command = [sys.executable, "-m", "tests.helpers.forking", program, url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_many_clients_may_open_a_new_file_concurrently(tmp_path: Path) -> None:
    for turn in range(15):
        apps = [dibs.Dibs(f"sqlite:///{tmp_path}/{turn}.db") for _ in range(8)]
        together = threading.Barrier(len(apps))

        def enqueue(app: dibs.Dibs, together: threading.Barrier = together) -> dibs.Task:
            together.wait()
            return app.enqueue("resize")

        with ThreadPoolExecutor(len(apps)) as pool:
            tasks = list(pool.map(enqueue, apps))
        assert sorted(task.id for task in tasks) == list(range(1, len(apps) + 1))
        for app in apps:
            app.close()


def test_the_writer_that_has_waited_longest_tries_most_often() -> None:
    patience = writer._Patience()
    for _ in range(50):
        patience.learn(0.5)
    assert mean_pause(patience, 0.0) > 2 * mean_pause(patience, 0.5) > 2.2 * mean_pause(patience, 2.0)


def test_writers_try_less_often_the_longer_all_of_them_wait() -> None:
    """Fifty writers that tried every half millisecond took the processors from the writer with the lock."""
    patience, waited, tries = writer._Patience(), 0.0, 0
    while waited < 10:
        waited, tries = waited + patience.pause(waited), tries + 1
    assert tries < 3000  # it was 34,000
    seldom = writer._Patience()
    for _ in range(50):
        seldom.learn(2.0)
    assert mean_pause(seldom, 1.0) > 5 * mean_pause(writer._Patience(), 0.05)


def mean_pause(patience: writer._Patience, waited: float) -> float:
    return sum(patience.pause(waited) for _ in range(2000)) / 2000


def test_two_clients_that_close_while_others_read_do_not_deadlock(path: Path) -> None:
    for _ in range(20):
        create(path)
        readers, read_on = Readers(path), threading.Event()
        reading = [
            in_background(readers.read, Operation("read", partial(wait_for, read_on)), 0) for _ in range(READERS)
        ]
        until(readers._places.empty)
        closing = [in_background(readers.close) for _ in range(2)]
        read_on.set()
        for each in (*reading, *closing):
            each.join(30)
            assert not each.is_alive()


def in_background(work: Callable[..., object], *args: Any) -> threading.Thread:
    """A thread that keeps no program from ending."""
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def wait_for(event: threading.Event) -> Statements[None]:
    yield from ()
    event.wait()
