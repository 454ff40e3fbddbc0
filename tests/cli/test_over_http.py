"""The command line on a store behind a server: the same commands, with a key from the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.server.config import ServerConfig
from dibs.store.remote import conversation
from tests.cli.running import Done, run_dibs

PROGRAM = """
import dibs
app = dibs.Dibs("sqlite:///nowhere.db")

@app.task
def hello():
    return "world"
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[dibs.Dibs]:
    """A client of the database behind the server."""
    with dibs.Dibs(f"sqlite:///{tmp_path}/dibs.db") as app:
        yield app


@pytest.fixture
def server(server_host: Any, database: dibs.Dibs) -> Iterator[str]:
    """A server that wants keys."""
    with server_host.serving(database.url, ServerConfig(port=0, access_log=False, upkeep=False)) as url:
        yield url


def test_a_task_is_enqueued_run_and_shown_over_http(server: str, database: dibs.Dibs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    key = database.create_key("everything", ["admin"], rate_limit="none").key

    def run(*args: str) -> Done:
        return run_dibs(*args, url=server, cwd=tmp_path, DIBS_API_KEY=key)

    assert run("enqueue", "hello", "--json").json["task"]["status"] == "pending"
    assert run("worker", "program:app", "--url", server, "--burst").code == 0
    [task] = run("tasks", "list", "--json").json["tasks"]
    assert (task["status"], task["result"]) == ("completed", "world")
    assert run("top", "--json").json["stats"]["depth"] == {"completed": 1}
    for command in (["doctor"], ["migrate"], ["queues", "list"], ["workers"], ["keys", "list"]):
        done = run(*command)
        assert done.code == 0, done
        assert key not in done.out + done.err


def test_a_script_works_and_acts_on_all_matching_tasks_over_http(
    server: str, database: dibs.Dibs, tmp_path: Path
) -> None:
    key = database.create_key("everything", ["admin"], rate_limit="none").key

    def run(*args: str) -> Done:
        return run_dibs(*args, "--json", url=server, cwd=tmp_path, DIBS_API_KEY=key)

    first = database.enqueue("resize", {"image": 7})
    rest = [database.enqueue("resize", {"image": n}) for n in range(8, 12)]
    claimed = run("tasks", "claim", "--worker", "worker-1").json["task"]
    assert (claimed["id"], claimed["params"]) == (first.id, {"image": 7})
    held = ("--token", str(claimed["token"]), "--worker", "worker-1")
    assert run("tasks", "complete", str(first.id), "[1]", *held).json["status"] == "completed"
    assert [task["id"] for task in run("tasks", "list", "--text", '"image":9').json["tasks"]] == [rest[1].id]
    assert run("tasks", "cancel", "--all", "--state", "pending").json["count"] == 4
    assert run("tasks", "retry", "--all", "--text", '"image":9').json["count"] == 1
    assert run("history", "export", "history.jsonl").json["entries"] == len(database.all_history())
    assert run("verify", "history.jsonl").json["success"] is True
    (tmp_path / "type.json").write_text('{"name": "resize"}')
    assert run("types", "register", "type.json").json["task_type"]["version"] == 1
    assert run("upkeep").json["success"] is True


def test_enqueue_with_a_key_of_the_enqueue_scope_prints_no_note_about_workers(
    server: str, database: dibs.Dibs, tmp_path: Path
) -> None:
    database.migrate()
    key = database.create_key("shop", ["enqueue"], rate_limit="none").key
    done = run_dibs("enqueue", "resize", url=server, cwd=tmp_path, DIBS_API_KEY=key)
    assert (done.code, done.err) == (0, "")


@pytest.fixture
def housekeeper(server_host: Any, database: dibs.Dibs) -> Iterator[str]:
    """A server that also finalizes: clients over HTTP leave finalization to the server."""
    with server_host.serving(database.url, ServerConfig(port=0, access_log=False)) as url:
        yield url


def test_a_workflow_is_started_run_and_drawn_over_http(housekeeper: str, database: dibs.Dibs, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    key = database.create_key("everything", ["admin"], rate_limit="none").key
    graph = {"name": "greet", "steps": [{"task_type": "hello"}, {"task_type": "hello", "after": ["hello"]}]}

    def run(*args: str, stdin: str = "") -> Done:
        return run_dibs(*args, url=housekeeper, cwd=tmp_path, stdin=stdin, DIBS_API_KEY=key)

    workflow = run("workflows", "start", "-", "--json", stdin=json.dumps(graph)).json["workflow"]
    assert run("worker", "program:app", "--url", housekeeper, "--burst").code == 0
    shown = run("workflows", "show", str(workflow["id"]), "--watch").out
    assert "state:       completed" in shown.splitlines()
    assert [line.split()[:2] for line in shown.splitlines()[-2:]] == [["✓", "hello"], ["✓", "hello-2"]]
    assert run("workflows", "list", "--json").json["workflows"][0]["id"] == workflow["id"]
    assert run("workflows", "attempts", str(workflow["id"])).code == 0


def test_an_unknown_task_is_reported_over_http(server: str, database: dibs.Dibs) -> None:
    key = database.create_key("reader", ["read"]).key
    assert run_dibs("tasks", "show", "404", url=server, DIBS_API_KEY=key).code == 1


@pytest.mark.parametrize("key", ["", "dibs_abcdefghijkl_wrong"])
def test_an_invalid_key_ends_with_3(server: str, key: str) -> None:
    done = run_dibs("tasks", "list", url=server, DIBS_API_KEY=key)
    assert (done.code, "DIBS_API_KEY" in done.err) == (3, True)
    assert not key or key not in done.out + done.err


def test_a_server_that_cannot_be_reached_ends_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "PATIENCE", 0.3)
    done = run_dibs("tasks", "list", "--json", url="http://127.0.0.1:9")
    assert (done.code, done.json["code"]) == (3, "store_unavailable")
