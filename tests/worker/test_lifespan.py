"""The lifespan of an app: opened before the first claim, closed after the last outcome, once in each process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import Context, InvalidValue, LifespanFailed, State
from dibs.testing import isolated
from tests.helpers.each import for_each
from tests.helpers.processes import ROOT
from tests.helpers.waiting import until


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    """An application without handlers."""
    with dibs.Dibs(url) as app:
        yield app


class Broken(Exception):
    """Raised by a lifespan of a test."""


def generator(notes: list[str]) -> Any:
    def opens() -> Iterator[str]:
        notes.append("opened")
        yield "resources"
        notes.append("closed")

    return opens


def async_generator(notes: list[str]) -> Any:
    async def opens() -> AsyncIterator[Any]:
        notes.append("opened")
        async with asyncio.timeout(None):  # leaving it in another asyncio task is an error
            yield asyncio.get_running_loop()
        notes.append("closed")

    return opens


def manager(notes: list[str]) -> Any:
    return contextlib.contextmanager(generator(notes))


def async_manager(notes: list[str]) -> Any:
    return contextlib.asynccontextmanager(async_generator(notes))


@pytest.mark.parametrize("kind", [generator, async_generator, manager, async_manager])
@pytest.mark.parametrize("lanes", ["thread", "loop", "both"])
def test_the_lifespan_is_open_from_before_the_first_attempt_until_after_the_last(
    app: dibs.Dibs, kind: Any, lanes: str
) -> None:
    notes: list[str] = []
    app.lifespan(kind(notes))
    seen: list[Any] = []

    def plain(ctx: Context) -> None:
        notes.append("ran")
        seen.append(ctx.resources)

    async def coroutine(ctx: Context) -> None:
        plain(ctx)
        if not isinstance(ctx.resources, str):
            assert ctx.resources is asyncio.get_running_loop()  # what it opens belongs to the loop of the handlers

    handlers = []
    if lanes != "loop":
        handlers.append(app.task(name="plain")(plain))
    if lanes != "thread":
        handlers.append(app.task(name="coroutine")(coroutine))
    for handler in handlers * 2:
        handler.enqueue()
    assert app.worker(burst=True).run() == 0
    assert {task.state for task in app.list_tasks()} == {State.COMPLETED}
    assert notes == ["opened", *["ran"] * len(handlers) * 2, "closed"]
    assert len(set(map(id, seen))) == 1


def test_an_async_lifespan_runs_on_the_event_loop_of_the_program(url: str) -> None:
    async def play() -> list[Any]:
        loops: list[Any] = [asyncio.get_running_loop()]
        async with dibs.AsyncDibs(url) as app:

            @app.lifespan
            async def opens() -> AsyncIterator[Any]:
                loops.append(asyncio.get_running_loop())
                yield "resources"
                loops.append(asyncio.get_running_loop())

            @app.task
            async def job(ctx: Context) -> str:
                return f"{ctx.resources} of {ctx.task.type}"

            async with app.worker():
                task = await (await job.enqueue()).wait(30)
        assert task.result == "resources of job"
        return loops

    loops = asyncio.run(play())
    assert loops == [loops[0]] * 3


@pytest.mark.parametrize("lane", ["thread", "loop"])
@pytest.mark.parametrize("error", [Broken, SystemExit])
def test_a_lifespan_that_fails_stops_the_start_of_the_worker_before_any_claim(
    app: dibs.Dibs, lane: str, error: type[BaseException]
) -> None:
    def fails() -> Iterator[None]:
        raise error("no database")
        yield

    async def fails_async() -> AsyncIterator[None]:
        raise error("no database")
        yield

    app.lifespan(fails if lane == "thread" else fails_async)

    async def coroutine() -> None: ...

    handler = app.task(name="job")(coroutine if lane == "loop" else lambda: None)
    task = handler.enqueue()
    before = threading.active_count()
    with pytest.raises(LifespanFailed, match=rf"fails\w* failed to start: {error.__name__}: no database") as raised:
        app.worker().run()
    assert isinstance(raised.value.__cause__, error)
    assert app.get(task.id).state is State.PENDING
    assert [worker.state.value for worker in app.workers()] == ["gone"]
    assert until(lambda: threading.active_count() <= before)


def test_a_lifespan_that_yields_nothing_does_not_start_the_worker(app: dibs.Dibs) -> None:
    @app.lifespan
    def silent() -> Iterator[None]:
        return
        yield

    app.task(name="job")(lambda: None)
    with pytest.raises(LifespanFailed, match="didn't yield"):
        app.worker().run()


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "async"])
def test_an_error_at_the_end_is_logged_and_is_the_exit_code(
    app: dibs.Dibs, awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def opens() -> Iterator[None]:
        yield
        raise Broken("cannot close")

    async def opens_async() -> AsyncIterator[None]:
        yield
        raise Broken("cannot close")

    app.lifespan(opens_async if awaited else opens)
    job = app.task(name="job")(lambda: None)
    task = job.enqueue()
    assert app.worker(burst=True).run() == 1
    assert app.get(task.id).state is State.COMPLETED
    [entry] = [entry for entry in caplog.records if getattr(entry, "event", None) == "lifespan.end_failed"]
    assert "cannot close" in entry.getMessage()


def test_the_lifespan_ends_after_running_tasks_have_ended(app: dibs.Dibs) -> None:
    notes: list[str] = []
    app.lifespan(generator(notes))
    running, may_end = threading.Event(), threading.Event()

    @app.task
    def job() -> None:
        running.set()
        may_end.wait(30)
        notes.append("ran")

    worker = app.worker()
    worker.start()
    job.enqueue()
    assert running.wait(30)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    may_end.set()
    stopping.join(30)
    assert notes == ["opened", "ran", "closed"]


PROGRAM = """
import os, sys, time
from pathlib import Path
import dibs

app = dibs.Dibs()
folder = Path(os.environ["NOTES"])

@app.lifespan
{kind}def opens():
    if os.environ.get("FAILS") == "always" or (folder / "fails").exists():
        raise RuntimeError("no model")
    (folder / f"opened-{{os.getpid()}}").touch()
    yield {{"pid": os.getpid()}}
    if os.environ.get("FAILS") == "at the end":
        raise RuntimeError("cannot close")
    (folder / f"closed-{{os.getpid()}}").touch()

@app.task(lane="process")
{kind}def apart(ctx: dibs.Context) -> list[int]:
    return [ctx.resources["pid"], os.getpid()]

@app.task(lane="process", max_attempts=2, backoff=[0])
def dies(ctx: dibs.Context) -> None:
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(params=["", "async "], ids=["sync", "async"])
def program(request: pytest.FixtureRequest, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A program whose handlers run in child processes, as a module."""
    name = f"lifespan_program_{'async' if request.param else 'sync'}_{os.getpid()}_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(kind=request.param), encoding="ascii")
    monkeypatch.setenv("DIBS_URL", url)
    monkeypatch.setenv("NOTES", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    yield module
    module.app.close()


def pids(folder: Path, what: str) -> set[str]:
    return {path.name.partition("-")[2] for path in folder.glob(f"{what}-*")}


def test_each_child_process_has_its_own_lifespan_until_its_end(program: Any, tmp_path: Path) -> None:
    with program.app.worker(children=2, recycle_after=2):
        tasks = [program.apart.enqueue() for _ in range(5)]
        results = [task.wait(60).result for task in tasks]
    assert all(opened == ran for opened, ran in results)
    assert str(os.getpid()) not in pids(tmp_path, "opened")  # no handler runs in the worker itself
    assert pids(tmp_path, "opened") == pids(tmp_path, "closed")
    assert {str(ran) for _, ran in results} <= pids(tmp_path, "opened")
    assert len(pids(tmp_path, "opened")) >= 3


def test_a_lifespan_that_fails_in_a_child_process_stops_the_start_of_the_worker(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fails").touch()
    task = program.apart.enqueue()
    with pytest.raises(LifespanFailed, match=r"opens cannot be started in a child process.*RuntimeError: no model"):
        program.app.worker(children=1).run()
    assert program.app.get(task.id).state is State.PENDING


UNGUARDED = """
import dibs

app = dibs.Dibs({url!r})

@app.lifespan
def opens():
    {opens}
    yield 7

@app.task(lane="process")
def job() -> int:
    return 1

{guard}app.worker(burst=True).run()
"""


@pytest.mark.parametrize(
    ("opens", "guard", "names_guard"),
    [("pass", "", True), ("import os; os._exit(3)", "if __name__ == '__main__': ", False)],
    ids=["a script without a guard", "a lifespan that ends the process"],
)
def test_a_child_process_that_ends_before_its_lifespan_names_the_guard_of_the_main_module(
    url: str, tmp_path: Path, opens: str, guard: str, names_guard: bool
) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(url=url, opens=opens, guard=guard), encoding="ascii")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    ending = done.stderr[done.stderr.rindex("LifespanFailed: ") :]
    assert "The lifespan opens cannot be started in a child process: the process ended" in ending
    assert ('A script starts its worker under `if __name__ == "__main__":`' in ending) is names_guard
    assert ("Correct what the lifespan opens" in ending) is not names_guard


def test_a_task_waits_while_the_lifespan_of_a_new_child_process_fails(program: Any, tmp_path: Path) -> None:
    with program.app.worker(children=1):
        assert program.apart.enqueue().wait(60).state is State.COMPLETED
        (tmp_path / "fails").touch()
        died = program.dies.enqueue()
        # The second attempt needs a new child, in which the lifespan fails: the task is released.
        events = lambda: [entry.event.value for entry in program.app.history(died.id)]  # noqa: E731
        assert until(lambda: "released" in events(), 60)
        waiting = program.app.get(died.id)
        assert (waiting.state, waiting.attempts) == (State.SCHEDULED, 1)
        (tmp_path / "fails").unlink()
        assert died.wait(60).attempts == 2


def test_the_command_reports_a_failed_lifespan_and_ends_with_code_1(program: Any, tmp_path: Path, url: str) -> None:
    command = [sys.executable, "-m", "dibs", "worker", f"{program.__name__}:app", "--burst"]
    done = subprocess.run(
        command, env={**os.environ, "FAILS": "always"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "The lifespan opens cannot be started in a child process" in done.stderr
    assert "no model" in done.stderr


def test_an_error_at_the_end_in_a_child_process_is_printed(
    program: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAILS", "at the end")
    program.apart.enqueue()
    assert program.app.worker(burst=True, children=1).run() == 0
    printed = capfd.readouterr().err
    assert "the end of the lifespan opens failed: cannot close" in printed
    assert "RuntimeError: cannot close" in printed


def test_a_test_starts_the_lifespan_or_sets_the_resources(app: dibs.Dibs) -> None:
    notes: list[str] = []
    app.lifespan(generator(notes))

    @app.task
    def job(ctx: Context) -> Any:
        return ctx.resources

    with isolated(app) as box:
        with pytest.raises(InvalidValue, match="There are no resources"):
            box.run_now(job)
        with box.lifespan() as resources:
            assert box.run_now(job) == resources == "resources"
        assert notes == ["opened", "closed"]
        with pytest.raises(InvalidValue, match="There are no resources"):
            box.run_now(job)
        box.resources = "fake"
        assert box.run_now(job) == "fake"


def test_an_async_test_starts_an_async_lifespan_on_its_own_loop(app: dibs.Dibs) -> None:
    notes: list[str] = []
    app.lifespan(async_generator(notes))

    @app.task
    async def job(ctx: Context) -> bool:
        return ctx.resources is asyncio.get_running_loop()

    async def play() -> None:
        with isolated(app) as box:
            with pytest.raises(InvalidValue, match="async with"), box.lifespan():
                pass
            async with box.lifespan():
                assert await box.run_now_async(job) is True
        assert notes == ["opened", "closed"]

    asyncio.run(play())


async def coroutine() -> None: ...


@for_each(
    "wrong, complaint",
    [(7, "7 is not a function"), (lambda app: None, "without arguments"), (coroutine, "yields nothing")],
)
def test_a_wrong_lifespan_is_refused_at_its_declaration(wrong: Any, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        dibs.Dibs("sqlite:///nowhere.db").lifespan(wrong)


def test_a_second_lifespan_is_refused() -> None:
    app = dibs.Dibs("sqlite:///nowhere.db")
    app.lifespan(generator([]))
    with pytest.raises(InvalidValue, match="already has a lifespan"):
        app.lifespan(generator([]))
