"""`dibs types`: registered task types, listed, shown, and registered from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.cli.running import Run

SCHEMA = {"type": "object", "required": ["image"]}


def write(folder: Path, content: Any) -> str:
    (folder / "type.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return "type.json"


def test_a_type_is_registered_from_a_file_version_by_version(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    file = write(tmp_path, {"name": "resize", "schema": SCHEMA, "defaults": {"width": 200}})
    assert run("types", "register", file).out == "Task type resize, version 1, is registered.\n"
    assert run("types", "register", file, "--json").json["task_type"]["version"] == 1
    again = json.dumps({"name": "resize"})
    assert run("types", "register", "-", "--json", stdin=again).json["task_type"]["version"] == 2
    assert client.get_type("resize", 1).schema == SCHEMA
    assert client.enqueue("resize", {}).type_version == 2


def test_types_are_listed_with_their_versions(run: Run, client: dibs.Dibs) -> None:
    assert run("types", "list").err == "No task types.\n"
    client.register_type("resize", SCHEMA)
    client.register_type("resize", None, {"width": 200})
    title, first, second = run("types", "list").out.splitlines()
    assert title.split()[:3] == ["type", "version", "schema"]
    assert [line.split()[:3] for line in (first, second)] == [["resize", "2", "no"], ["resize", "1", "yes"]]
    listed = run("types", "list", "--json").json["task_types"]
    assert [(each["name"], each["version"]) for each in listed] == [("resize", 2), ("resize", 1)]


def test_a_type_is_shown_the_newest_version_or_another(run: Run, client: dibs.Dibs) -> None:
    client.register_type("resize", SCHEMA)
    client.register_type("resize", True, {"width": 200})
    assert '"width": 200' in run("types", "show", "resize").out
    assert run("types", "show", "resize", "--version", "1", "--json").json["task_type"]["schema"] == SCHEMA
    missing = run("types", "show", "crop")
    assert (missing.code, missing.out) == (1, "")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "The task type is not JSON: "),
        ("[]", "The task type is JSON, but not an object."),
        ({}, "The task type has no name."),
        ({"name": 7}, "The task type must be a string, not an int."),
        ({"name": "a", "schema": {"type": 7}}, "This is not a valid JSON Schema: "),
        ({"name": "a", "colour": "red"}, "The task type has an unknown field 'colour'."),
    ],
    ids=str,
)
def test_a_file_that_does_not_contain_a_type_is_wrong_usage(
    run: Run, client: dibs.Dibs, tmp_path: Path, bad: Any, said: str
) -> None:
    done = run("types", "register", write(tmp_path, bad))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {said}")
    assert client.list_types() == []


def test_a_file_that_is_missing_is_wrong_usage(run: Run, client: dibs.Dibs) -> None:
    done = run("types", "register", "nowhere.json")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "error: Cannot read nowhere.json: No such file or directory.",
    )


def test_pausing_an_unknown_type_prints_a_note_and_pauses_it(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    client.register_type("report", None)
    done = run("types", "pause", "resise")
    assert (done.code, done.out) == (0, "Task type resise is paused.\n")
    assert done.err == "note: No task, worker or schedule has the type resise. Known types: report, resize.\n"
    assert [each.name for each in client.paused_types()] == ["resise"]
    assert run("types", "pause", "resise", "--json").err == ""


def test_pausing_a_type_of_a_task_worker_or_schedule_prints_no_note(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    client.register_type("report", None)
    client.heartbeat("worker-1", types=["scan"])
    client.set_schedule("nightly", "@daily", "clean")
    for name in ("resize", "report", "scan", "clean"):
        assert run("types", "pause", name).err == ""


def test_a_type_is_paused_and_resumed(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    assert run("types", "pause", "resize").out == "Task type resize is paused.\n"
    assert client.claim("worker-1") is None
    assert "resize" in run("types", "list").out  # although it is not registered
    run("types", "register", "-", stdin='{"name": "resize"}')
    assert "paused since" in run("types", "show", "resize").out
    assert run("types", "resume", "resize", "--json").json == {"success": True, "task_type": "resize", "paused": False}
    assert "was not paused" in run("types", "resume", "resize").err
    assert client.claim("worker-1") is not None
