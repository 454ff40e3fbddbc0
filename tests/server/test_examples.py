"""The workers in other languages, run for real: every claimed task is finished once, also with faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import NewTask, State, Task
from dibs.server.config import ServerConfig
from dibs.server.run import serving
from dibs.store.open import open_store
from tests.helpers.consistency import all_tasks, assert_balanced
from tests.helpers.processes import ROOT
from tests.helpers.proxy import Proxy
from tests.helpers.tasks import events
from tests.helpers.typescript import need_tools
from tests.helpers.waiting import until
from tests.server.conftest import Served

SHELL = [str(ROOT / "examples/shell-worker/worker.sh"), "job", str(ROOT / "tests/server/job.sh")]
TOOLS = {"node": ["node", "npm"], "shell": ["curl", "jq", "timeout"]}
IN_ORDER = ["enqueued", "claimed", "completed"]


class Hired:
    """A worker in another language, in a process of its own."""

    def __init__(self, command: list[str], url: str, key: str, **options: Any) -> None:
        self.name = str(options.setdefault("WORKER_ID", "worker"))
        settings = {name: str(value) for name, value in options.items()}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "DIBS_URL": url, "DIBS_API_KEY": key, "WAIT": "5", **settings},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def log(self) -> str:
        return os.pread(self._log.fileno(), 2**20, 0).decode()  # a seek would move the place where it writes

    def send(self, number: int) -> None:
        """A signal to all its processes."""
        os.killpg(self.process.pid, number)

    def terminate(self) -> None:
        self.process.terminate()

    def exit_code(self, timeout: float = 30) -> int:
        return self.process.wait(timeout)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        self.process.wait()
        print(f"{self.name}: exit code {self.process.returncode}", *self.log.splitlines(), sep="\n    ")
        self._log.close()


Hire = Callable[..., Hired]


@pytest.fixture(params=TOOLS)
def program(request: pytest.FixtureRequest) -> str:
    """The worker under test."""
    return usable(str(request.param))


def usable(program: str) -> str:
    """The program, if the tools that it needs are installed."""
    need_tools(f"The {program} worker", *TOOLS[program])
    return program


@pytest.fixture
def proxy(serve: Callable[..., Served]) -> Iterator[Proxy]:
    """A proxy before a server with keys that does upkeep."""
    with Proxy(serve(keys=True, upkeep=True).url) as proxy:
        yield proxy


@pytest.fixture
def node(typescript_client: Callable[[], Path]) -> Callable[[str], list[str]]:
    """The command of the Node worker, with these handlers."""

    def command(handlers: str) -> list[str]:
        tree = typescript_client()
        return ["node", str(tree / "examples/node-worker/main.js"), str(tree / handlers)]

    return command


@pytest.fixture
def hire(proxy: Proxy, app: dibs.Dibs, tmp_path: Path, node: Callable[[str], list[str]]) -> Iterator[Hire]:
    """Starts workers, which may do nothing but work."""
    hired: list[Hired] = []

    def start(program: str, *, command: list[str] | None = None, **options: Any) -> Hired:
        key = options.pop("key", None) or app.create_key(program, ["work"], rate_limit="none").key
        usual = SHELL if program == "shell" else node("tests/server/jobs.mjs")
        worker = Hired(command or usual, proxy.url, key, **options)
        hired.append(worker)
        until(lambda: "begins" in worker.log, 30)  # it hears signals from then on
        return worker

    yield start
    (tmp_path / "go").touch()  # for jobs that outlive their worker
    for each in hired:
        each.close()


def enqueue(app: dibs.Dibs, do: str, count: int = 1, **options: Any) -> list[Task]:
    """Jobs that do this."""
    names = {name: options.pop(name) for name in ("folder", "word") if name in options}
    return app.enqueue_many([NewTask("job", {"do": do, **names}, **options) for _ in range(count)])


def began(folder: Path, task: Task, token: int = 1) -> bool:
    return (folder / f"{task.id}.{token}.began").exists()


def wait_until_began(folder: Path, task: Task, token: int = 1) -> None:
    until(lambda: began(folder, task, token), 30)


def test_each_task_is_completed_once_with_its_result(program: str, app: dibs.Dibs, hire: Hire) -> None:
    words = ["plain", 'a "quoted" one', "tr\u00fcb \U0001f600 \\ \n", "'; $(exit) `x`"]
    tasks = [enqueue(app, "say", word=word)[0] for word in words]
    workers = [hire(program, WORKER_ID=f"worker-{n}") for n in range(2)]
    assert [app.wait(task.id, 30).result for task in tasks] == [{"said": word} for word in words]
    for worker in workers:
        worker.terminate()
    assert [worker.exit_code() for worker in workers] == [0, 0]
    assert [events(app, task.id) for task in tasks] == [IN_ORDER] * len(words)
    assert_balanced(app)


def test_a_failing_task_is_tried_again_and_ends_in_the_dead_letter(program: str, app: dibs.Dibs, hire: Hire) -> None:
    backoff = dibs.Backoff(base=0.05, cap=0.05)
    [task] = enqueue(app, "break", max_attempts=3, backoff=backoff)
    hire(program)
    done = app.wait(task.id, 30)
    assert (done.state, done.attempts, done.token) == (State.FAILED, 3, 3)
    assert done.error is not None
    assert done.error.message == "broken"
    assert_balanced(app, [State.FAILED])


def test_a_permanent_failure_is_not_tried_again(program: str, app: dibs.Dibs, hire: Hire) -> None:
    [task] = enqueue(app, "give_up", max_attempts=3)
    hire(program)
    done = app.wait(task.id, 30)
    assert (done.state, done.attempts) == (State.FAILED, 1)
    assert done.error is not None
    assert done.error.message == "no use"


def test_a_result_that_cannot_be_stored_is_a_permanent_failure(program: str, app: dibs.Dibs, hire: Hire) -> None:
    [task] = enqueue(app, "nest")
    hire(program)
    done = app.wait(task.id, 30)
    assert (done.state, done.attempts) == (State.FAILED, 1)
    assert done.error is not None
    assert "cannot be stored" in done.error.message


def test_a_request_whose_reply_was_lost_is_repeated_without_a_second_effect(
    program: str, app: dibs.Dibs, proxy: Proxy, hire: Hire
) -> None:
    tasks = enqueue(app, "say", 2, word="x")
    proxy.lose_answers(2)  # the claim's own, and that of its first repetition (or of the heartbeat)
    hire(program)
    wait_for_all(app, tasks)
    for _ in range(2):
        proxy.lose_answers(2)  # that of the claim which is waiting, or of an outcome, and of what is asked after it
        more = enqueue(app, "say", 2, word="x")
        wait_for_all(app, more)
        tasks += more
    until(lambda: proxy.lost >= 6, 30)
    assert [events(app, task.id) for task in tasks] == [IN_ORDER] * len(tasks)
    assert_balanced(app)


def wait_for_all(app: dibs.Dibs, tasks: list[dibs.Task]) -> None:
    for task in tasks:
        app.wait(task.id, 60)


def test_a_worker_continues_after_a_restart_of_the_server(
    program: str, url: str, app: dibs.Dibs, proxy: Proxy, hire: Hire, tmp_path: Path
) -> None:
    [held] = enqueue(app, "hold", folder=str(tmp_path))
    tasks = enqueue(app, "say", 5, word="x")
    worker = hire(program)
    wait_until_began(tmp_path, held)
    proxy.refuse()
    (tmp_path / "go").touch()  # it ends while the server cannot be reached
    until(lambda: "again in" in worker.log, 30)
    with serving(open_store(url), ServerConfig(port=0, access_log=False)) as elsewhere:
        proxy.lead_to(elsewhere)
        proxy.accept()
        for task in [held, *tasks]:
            app.wait(task.id, 60)
        worker.terminate()
        assert worker.exit_code() == 0
    assert [events(app, task.id) for task in [held, *tasks]] == [IN_ORDER] * 6
    assert_balanced(app)


def test_a_worker_frozen_past_its_lease_changes_nothing_and_continues(
    program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path
) -> None:
    [task] = enqueue(app, "hold", folder=str(tmp_path))
    frozen = hire(program, WORKER_ID="frozen", LEASE=1, CONCURRENCY=1)  # so it has no claim that waits meanwhile
    wait_until_began(tmp_path, task)
    frozen.send(signal.SIGSTOP)
    other = hire(program, WORKER_ID="other", LEASE=30)
    wait_until_began(tmp_path, task, token=2)
    (tmp_path / "go").touch()
    done = app.wait(task.id, 30)
    other.terminate()
    assert other.exit_code() == 0
    assert (done.worker_id, done.token, done.attempts) == ("other", 2, 2)
    history = app.history(task.id)

    frozen.send(signal.SIGCONT)
    until(lambda: f"task {task.id} (token 1) is lost" in frozen.log, 30)
    assert app.wait(enqueue(app, "say", word="x")[0].id, 30).worker_id == "frozen"
    assert app.get(task.id) == done
    assert app.history(task.id) == history
    assert events(app, task.id) == ["enqueued", "claimed", "recovered", "claimed", "completed"]
    assert_balanced(app)


def test_the_lease_is_renewed_for_as_long_as_the_task_takes(
    program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path
) -> None:
    [task] = enqueue(app, "hold", folder=str(tmp_path))
    hire(program, LEASE=3)
    wait_until_began(tmp_path, task)
    first = lease_of(app, task)
    until(lambda: (lease_of(app, task) - first).total_seconds() > 3, 30)
    (tmp_path / "go").touch()
    assert app.wait(task.id, 30).token == 1


def test_a_running_task_with_a_cancel_request_is_cancelled(
    program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path
) -> None:
    [task] = enqueue(app, "listen", folder=str(tmp_path))
    hire(program, LEASE=3)
    wait_until_began(tmp_path, task)
    app.cancel(task.id)
    assert app.wait(task.id, 30).state is State.CANCELLED
    assert events(app, task.id) == ["enqueued", "claimed", "cancel_requested", "cancelled"]


def test_a_task_that_takes_longer_than_its_timeout_fails(
    program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path
) -> None:
    [task] = enqueue(app, "listen", folder=str(tmp_path), timeout=0.3, max_attempts=1)
    hire(program)
    done = app.wait(task.id, 30)
    assert done.error is not None
    assert (done.state, done.error.type) == (State.FAILED, "Timeout")


def test_a_rate_limited_worker_waits_for_the_time_in_retry_after(program: str, app: dibs.Dibs, hire: Hire) -> None:
    tasks = enqueue(app, "say", 3, word="x")
    key = app.create_key("slow", ["work"], rate_limit="1/second").key
    worker = hire(program, key=key, CONCURRENCY=1)
    for task in tasks:
        app.wait(task.id, 30)
    assert "again in 1." in worker.log
    assert [events(app, task.id) for task in tasks] == [IN_ORDER] * 3


def test_a_worker_with_an_invalid_key_reports_it_and_exits(program: str, app: dibs.Dibs, hire: Hire) -> None:
    worker = hire(program, key="dibs_aaaaaaaaaaaa_" + "x" * 43)
    assert worker.exit_code() == 1
    assert "unauthorized" in worker.log


def test_sigterm_lets_the_running_task_finish(program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path) -> None:
    held, behind = enqueue(app, "hold", 2, folder=str(tmp_path))
    worker = hire(program, CONCURRENCY=1)
    wait_until_began(tmp_path, held)
    worker.terminate()
    if program == "node":
        until(lambda: "stops" in worker.log)
    (tmp_path / "go").touch()
    assert worker.exit_code() == 0
    assert [task.state for task in all_tasks(app)] == [State.COMPLETED, State.PENDING]
    assert events(app, behind.id) == ["enqueued"]


def test_an_idle_worker_stops_at_once(program: str, app: dibs.Dibs, hire: Hire) -> None:
    worker = hire(program, WAIT=60)
    app.wait(enqueue(app, "say", word="x")[0].id, 30)
    worker.terminate()
    assert worker.exit_code(10) == 0


def test_sigterm_releases_tasks_that_have_not_started(app: dibs.Dibs, hire: Hire, tmp_path: Path) -> None:
    held, *behind = enqueue(app, "hold", 4, folder=str(tmp_path))
    worker = hire(usable("node"), CONCURRENCY=1, AHEAD=3)
    wait_until_began(tmp_path, held)
    assert {task.state for task in all_tasks(app)} == {State.CLAIMED}
    worker.terminate()
    until(lambda: app.stats().depth.get("pending") == 3)
    assert worker.process.poll() is None
    (tmp_path / "go").touch()
    assert worker.exit_code() == 0
    assert events(app, held.id) == IN_ORDER
    for task in behind:
        assert events(app, task.id) == ["enqueued", "claimed", "released"]
        assert not began(tmp_path, task)
    assert [task.attempts for task in all_tasks(app)] == [1, 0, 0, 0]


@pytest.mark.parametrize("program", ["node", "shell"])
def test_a_running_task_is_released_at_the_end_of_the_grace_period(
    program: str, app: dibs.Dibs, hire: Hire, tmp_path: Path
) -> None:
    [task] = enqueue(app, "listen", folder=str(tmp_path))
    worker = hire(usable(program), GRACE=0.1)
    wait_until_began(tmp_path, task)
    worker.terminate()
    if program == "shell":  # its grace period ends with a second signal
        until(lambda: worker.process.poll() is not None or worker.terminate())
    assert worker.exit_code() == 0
    given_back = app.get(task.id)
    assert given_back is not None
    assert (given_back.state, given_back.attempts) == (State.PENDING, 0)
    assert events(app, task.id) == ["enqueued", "claimed", "released"]


def test_tasks_that_a_killed_worker_had_not_started_are_not_charged(app: dibs.Dibs, hire: Hire, tmp_path: Path) -> None:
    held, *behind = enqueue(app, "hold", 3, folder=str(tmp_path))
    killed = hire(usable("node"), CONCURRENCY=1, AHEAD=2, LEASE=1)
    wait_until_began(tmp_path, held)
    killed.send(signal.SIGKILL)
    (tmp_path / "go").touch()
    hire("node", WORKER_ID="other")
    done = [app.wait(task.id, 30) for task in (held, *behind)]
    assert [(task.attempts, task.dropped, task.worker_id) for task in done] == [(1, 1, "other")] * 3
    assert_balanced(app)


def test_progress_is_stored(app: dibs.Dibs, hire: Hire) -> None:
    [task] = enqueue(app, "step")
    hire(usable("node"))
    done = app.wait(task.id, 30)
    assert (done.progress, done.progress_message) == (40, "two of five")
    assert done.error is not None
    assert done.error.message == "that is far enough"


def test_the_handlers_of_the_node_example_behave_as_its_readme_describes(
    app: dibs.Dibs, hire: Hire, node: Callable[[str], list[str]]
) -> None:
    greet, nobody, count = app.enqueue("greet", {"name": "Ada"}), app.enqueue("greet"), app.enqueue("count", {"to": 3})
    worker = hire(usable("node"), command=node("examples/node-worker/handlers.js"))
    assert app.wait(greet.id, 30).result == {"greeting": "Hello, Ada!"}
    assert app.wait(nobody.id, 30).state is State.FAILED
    done = app.wait(count.id, 30)
    assert (done.result, done.progress, done.progress_message) == ({"counted": 3}, 100, "3 of 3")
    assert [info.id for info in app.workers()] == [worker.name]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", ["examples/shell-worker/worker.sh", "tests/server/job.sh"])
def test_shellcheck_finds_no_problem_in_the_shell_scripts(script: str) -> None:
    checked = subprocess.run(["shellcheck", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert checked.stdout == ""


def lease_of(app: dibs.Dibs, task: Task) -> Any:
    found = app.get(task.id)
    assert found is not None
    return found.lease_until
