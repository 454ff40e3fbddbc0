"""The end of every command on an error: an exit code, an error, a hint, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dibs
from tests.cli.running import COMMAND, Run, environment, run_dibs
from tests.helpers.terminal import Terminal

LOOKING = (
    ["tasks", "list"],
    ["tasks", "list", "--follow"],
    ["tasks", "show", "1"],
    ["tasks", "history", "1"],
    ["tasks", "explain", "1"],
    ["tasks", "cancel", "1"],
    ["tasks", "retry", "1"],
    ["dead", "list"],
    ["dead", "redrive"],
    ["queues", "list"],
    ["queues", "pause", "default"],
    ["queues", "resume", "default"],
    ["workers"],
    ["top"],
    ["doctor"],
    ["verify"],
)


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_read_does_not_create_a_database(command: list[str], tmp_path: Path) -> None:
    done = run_dibs(*command, "--json", cwd=tmp_path)
    assert done.code == 3
    assert done.err.splitlines() == [
        "error: The file dibs.db does not exist.",
        "hint: Create it with `dibs enqueue` or `dibs migrate`, or name another store with --url or DIBS_URL.",
    ]
    assert done.json == {"success": False, "error": "The file dibs.db does not exist.", "code": "store_unavailable"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["enqueue", "resize"], ["migrate"]], ids=" ".join)
def test_enqueue_and_migrate_create_the_database(command: list[str], tmp_path: Path) -> None:
    assert run_dibs(*command, cwd=tmp_path).code == 0
    assert (tmp_path / "dibs.db").exists()
    assert run_dibs("tasks", "list", cwd=tmp_path).code == 0


def test_the_url_may_stand_before_and_after_the_command_and_the_later_wins(tmp_path: Path) -> None:
    a, b = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    assert run_dibs("--url", a, "enqueue", "one").code == 0
    assert run_dibs("enqueue", "two", "--url", b, url=a).code == 0

    def types(*args: str, url: str | None = None) -> list[str]:
        return [task["task_type"] for task in run_dibs(*args, url=url).json["tasks"]]

    assert types("--json", "--url", a, "tasks", "list") == ["one"]
    assert types("tasks", "list", "--url", a, "--json") == ["one"]
    assert types("--url", a, "tasks", "list", "--url", b, "--json") == ["two"]
    assert types("--json", "tasks", "list", url=b) == ["two"]


@pytest.mark.parametrize(
    "args",
    [
        ["tasks", "list", "--limt", "3"],
        ["tasks", "list", "--limit", "0"],
        ["tasks", "list", "--state", "lost"],
        ["tasks", "show", "seven"],
        ["tasks", "show", "-1"],
        ["tasks", "shwo"],
        ["frobnicate"],
        ["tasks", "list", "--url", "mysql://x"],
        ["tasks", "list", "--url", "http://[x"],
        ["dead", "redrive", "--limit", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_a_message_as_text_and_as_json(args: list[str], tmp_path: Path) -> None:
    run_dibs("migrate", cwd=tmp_path)
    done = run_dibs(*args, "--json", cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert (done.json["success"], bool(done.json["error"]), bool(done.json["code"])) == (False, True, True)


def test_a_store_that_cannot_be_reached_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import dibs.store.postgres.store as s; s.POOL_TIMEOUT = 1")  # not 30 s
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    done = run_dibs("tasks", "list", "--json", "--url", url, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.code, done.json["code"]) == (3, "store_unavailable")
    assert done.err.startswith("PostgreSQL cannot be reached")  # at once, before the command waits
    assert "Traceback" not in done.err


def test_a_file_that_is_not_a_database_ends_with_3(tmp_path: Path) -> None:
    (tmp_path / "dibs.db").write_text("no database at all, but long enough to have been one, who knows" * 20)
    done = run_dibs("tasks", "list", "--json", cwd=tmp_path)
    assert (done.code, done.json["code"]) == (3, "store_error")


@pytest.mark.parametrize("group", [[], ["tasks"], ["dead"]])
def test_without_a_command_the_help_is_shown(group: list[str]) -> None:
    done = run_dibs(*group)
    lines = done.err.splitlines()
    assert (done.code, lines[0]) == (2, " ".join(["Usage: dibs", *group, "[OPTIONS] COMMAND [ARGS]..."]))
    assert "Commands:" in lines


def test_without_a_command_the_output_with_json_is_one_document() -> None:
    done = run_dibs("--json")
    assert (done.code, done.json["code"]) == (2, "wrong_usage")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_output_that_cannot_be_written_is_reported_without_a_traceback(
    url: str, client: dibs.Dibs, options: list[str]
) -> None:
    client.enqueue("resize")
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "tasks", "list", *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(url), check=False)
    assert done.returncode == 1
    assert b"could not be written" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="closes a file of the child before it begins")
def test_a_command_with_closed_output_does_its_work(url: str, client: dibs.Dibs) -> None:
    script = f"exec {' '.join(COMMAND)} enqueue resize >&- 2>&-"
    assert subprocess.run(["sh", "-c", script], env=environment(url), check=False).returncode == 0
    assert [task.type for task in client.list_tasks()] == ["resize"]


def test_a_closed_pipe_is_quiet(run: Run, client: dibs.Dibs, url: str) -> None:
    client.enqueue_many([dibs.NewTask("resize", {"text": "x" * 190}) for _ in range(1000)])
    command = [*COMMAND, "tasks", "list", "--limit", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(url)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split()[0] == b"id"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141


def test_ctrl_c_ends_with_130_and_no_traceback(url: str, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    with Terminal("tasks", "list", "--follow", "--url", url) as terminal:
        terminal.shows("resize")
        terminal.interrupt()
        assert terminal.ends() == 130
    assert "Traceback" not in terminal.raw


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_while_following_ends_with_130(url: str, client: dibs.Dibs) -> None:
    command = [*COMMAND, "tasks", "list", "--follow", "--json"]
    client.enqueue("resize")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(url)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        assert (process.wait(30), process.stderr.read()) == (130, b"")


def test_characters_that_the_terminal_cannot_encode_are_escaped(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", {"text": "grün"})
    done = run("tasks", "list", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.code, r'{"text": "gr\xfcn"}' in done.out) == (0, True)


def test_hints_name_commands_and_no_methods_of_python(run: Run) -> None:
    for command, names in (
        (["schedules", "show", "nightly"], "dibs schedules list"),
        (["limits", "show", "stripe"], "dibs limits list"),
        (["keys", "revoke", "abcdefgh"], "dibs keys list"),
    ):
        refused = run(*command)
        assert refused.code == 1, refused
        assert f"hint: {names} shows all" in refused.err
