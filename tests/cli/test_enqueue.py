"""`dibs enqueue`: what it stores, refuses and prints."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs
from tests.cli.running import Run, run_dibs

FIELDS = {
    "id",
    "task_type",
    "status",
    "params",
    "priority",
    "attempts",
    "max_attempts",
    "worker_id",
    "claimed_at",
    "created_at",
    "queue",
    "token",
    "lease_until",
}


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (["--key-for", "60"], "--key-for is about the key of a task.", "Give --key as well."),
        (
            ["--key-scope", "until_started", "--on-conflict", "replace"],
            "--key-scope and --on-conflict are about the key of a task.",
            "Give --key as well.",
        ),
        (
            ["--key", "k", "--key-scope", "until_started", "--key-for", "60"],
            "--key-scope and --key-for exclude each other.",
            "Give one of them.",
        ),
        (
            ["--key", "k", "--max-delay", "60", "--delay", "5"],
            "--max-delay limits how long replacements can postpone a task.",
            "Give --delay and --on-conflict replace as well.",
        ),
    ],
)
def test_options_about_a_key_are_refused_by_their_own_names(
    run: Run, client: dibs.Dibs, options: list[str], message: str, hint: str
) -> None:
    refused = run("enqueue", "resize", *options)
    assert (refused.code, refused.err) == (2, f"error: {message}\nhint: {hint}\n")
    assert client.list_tasks() == []


def test_a_task_is_stored_with_all_its_options(run: Run, client: dibs.Dibs) -> None:
    client.heartbeat("worker-1")
    options = ["--queue", "slow", "--priority", "-7", "--delay", "3600", "--max-attempts", "9", "--timeout", "1.5"]
    done = run("enqueue", "resize", '{"image": 7}', *options, "--key", "k")
    [task] = client.list_tasks()
    assert (done.code, done.err) == (0, "")
    assert done.out == f"Task {task.id} of type resize is scheduled.\n"
    assert (task.type, task.params, task.queue, task.priority) == ("resize", {"image": 7}, "slow", -7)
    assert (task.max_attempts, task.timeout, task.key, task.state) == (9, 1.5, "k", "scheduled")
    assert (task.run_at - task.created_at).total_seconds() == pytest.approx(3600, abs=1)


def test_the_json_has_the_fields_of_the_api_and_times_with_microseconds(run: Run, client: dibs.Dibs) -> None:
    answer = run("enqueue", "resize", '{"image": 7}', "--run-at", "2050-01-31T08:00:00+01:00", "--json").json
    [task] = client.list_tasks()
    assert (answer["success"], answer["deduplicated"]) == (True, False)
    assert set(answer["task"]) >= FIELDS
    assert answer["task"]["run_at"] == "2050-01-31T07:00:00.000000Z"
    assert answer["task"]["created_at"] == task.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert (answer["task"]["status"], answer["task"]["task_type"]) == ("scheduled", "resize")


def test_params_come_from_standard_input(run: Run, client: dibs.Dibs) -> None:
    assert run("enqueue", "resize", "-", stdin='{"text": "grün"}').code == 0
    assert client.list_tasks()[0].params == {"text": "grün"}


def test_the_same_key_gives_the_same_task_with_a_note(run: Run, client: dibs.Dibs) -> None:
    first = run("enqueue", "charge", '{"order": 1}', "--key", "order-1", "--json").json
    again = run("enqueue", "charge", '{"order": 1}', "--key", "order-1")
    assert again.out == f"Task {first['task']['id']} of type charge is pending. It already existed with this key.\n"
    assert run("enqueue", "charge", '{"order": 1}', "--key", "order-1", "--json").json["deduplicated"] is True
    assert len(client.list_tasks()) == 1


def test_other_content_under_the_same_key_is_refused(run: Run) -> None:
    run("enqueue", "charge", '{"order": 1}', "--key", "order-1")
    done = run("enqueue", "charge", '{"order": 2}', "--key", "order-1", "--json")
    assert done.code == 1
    assert (done.json["success"], done.json["code"]) == (False, "key_conflict")
    assert done.err.startswith("error: The key 'order-1' already belongs to task ")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ('{"a": }', "The params are not JSON: Expecting value at line 1, column 7."),
        ("{'a': 1}", "Expecting property name enclosed in double quotes at line 1, column 2."),
        ('{"a":\n 1,}', "at line 2, column"),
        ("[1]", "The params are JSON, but not an object."),
        ('{"a": NaN}', "The params contain NaN, which is not valid in JSON."),
        ('{"a": 9223372036854775808}', "params.a is an integer beyond 64 bits."),
        ('{"a": "\\u0000"}', "params.a contains a NUL character."),
        (f'{{"a": {"9" * 5000}}}', "The params are not JSON that dibs accepts"),
        (f'{{"a": {"[" * 70}{"]" * 70}}}', "is nested deeper than 64 levels."),
    ],
)
def test_params_that_are_not_valid_json_are_wrong_usage(tmp_path: Path, params: str, message: str) -> None:
    done = run_dibs("enqueue", "resize", params, cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    "options",
    [
        ["--run-at", "tomorrow"],
        ["--run-at", "2030-01-01T00:00:00"],
        ["--run-at", "2030-01-01T00:00:00Z", "--delay", "3"],
        ["--max-attempts", "0"],
        ["--priority", "high"],
        ["--timeout", "0"],
        ["--queue", ""],
    ],
)
def test_invalid_options_of_enqueue_are_wrong_usage(tmp_path: Path, options: list[str]) -> None:
    done = run_dibs("enqueue", "resize", *options, cwd=tmp_path)
    assert done.code == 2
    assert done.err.startswith("error: ")


def test_params_that_do_not_fit_the_schema_of_their_type_are_wrong_usage(run: Run, client: dibs.Dibs) -> None:
    client.register_type("resize", {"type": "object", "required": ["image"]})
    done = run("enqueue", "resize", "{}", "--json")
    assert (done.code, done.json["code"]) == (2, "schema_violation")


def test_a_task_that_no_live_worker_serves_is_stored_with_a_note(run: Run, client: dibs.Dibs) -> None:
    done = run("enqueue", "rezise")
    assert (done.code, done.out) == (0, "Task 1 of type rezise is pending.\n")
    assert done.err == "note: No live worker serves queue 'default' and type 'rezise'.\n"
    assert run("enqueue", "rezise", "--delay", "60").err == done.err
    assert run("enqueue", "rezise", "--json").err == ""
    client.heartbeat("worker-1", types=["resize"])
    assert run("enqueue", "resize").err == ""
    assert run("enqueue", "resize", "--queue", "mail").err == ""
    client.heartbeat("worker-1", types=["resize"], queues=["default"])
    assert "queue 'mail'" in run("enqueue", "resize", "--queue", "mail").err
