"""`dibs tasks set`: tasks that have not started get other values, by id or all that match."""

from __future__ import annotations

import dibs
from dibs import NewTask
from tests.cli.running import Run
from tests.helpers.tasks import task_in


def test_a_task_gets_the_new_values_and_the_command_shows_them(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize", {"width": 1}, run_at=None)
    options = ("--priority", "5", "--queue", "mail", "--params", '{"width": 2}', "--tag", "a", "--tag", "b")
    said = run("tasks", "set", str(task.id), *options)
    assert said.out.startswith(f"Task {task.id} is pending: priority 5, queue mail, due ")
    assert said.out.endswith(", tags a, b.\n")
    found = client.get(task.id)
    assert found is not None
    assert (found.priority, found.queue, found.params, found.tags) == (5, "mail", {"width": 2}, ["a", "b"])
    assert run("tasks", "set", str(task.id), "--no-tags", "--json").json["results"][0]["task"]["tags"] == []


def test_a_task_gets_a_group_and_loses_it(run: Run, client: dibs.Dibs) -> None:
    client.set_limit("tenant", max=1, per="group")
    plain, limited = client.enqueue("charge"), client.enqueue("charge", limits=["tenant"], group="acme")
    done = run("tasks", "set", str(plain.id), str(limited.id), "--group", "globex")
    assert done.out.count(", group globex.\n") == 2
    [first, second] = run("tasks", "set", str(plain.id), str(limited.id), "--no-group", "--json").json["results"]
    assert ("group" in first["task"], second["success"]) == (False, False)
    assert second["error"] == "The limit 'tenant' holds for each group, and the task has no group."
    dry = ("--all", "--type", "charge", "--group", "acme", "--yes", "--json")
    assert run("tasks", "set", *dry).json["count"] == 2
    assert run("tasks", "set", str(plain.id), "--group", "acme", "--no-group").code == 2


def test_a_due_time_is_given_as_a_delay_or_as_a_time(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize")
    [said] = run("tasks", "set", str(task.id), "--run-at", "2099-01-31T08:00:00Z", "--json").json["results"]
    assert (said["task"]["status"], said["task"]["run_at"]) == ("scheduled", "2099-01-31T08:00:00.000000Z")
    [said] = run("tasks", "set", str(task.id), "--delay", "0", "--json").json["results"]
    assert said["task"]["status"] == "pending"


def test_a_refused_task_does_not_prevent_the_others(run: Run, client: dibs.Dibs) -> None:
    claimed, waiting = task_in(client, "claimed"), client.enqueue("resize")
    ids = str(claimed.id), "404", str(waiting.id)
    said = run("tasks", "set", *ids, "--priority", "3", "--json")
    assert [(each["success"], each.get("code")) for each in said.json["results"]] == [
        (False, "already_started"),
        (False, "task_not_found"),
        (True, None),
    ]
    assert said.code == 1
    assert f"error: Task {claimed.id} cannot be changed: worker-1 has claimed it." in said.err


def test_all_tasks_that_match_are_changed(run: Run, client: dibs.Dibs) -> None:
    client.enqueue_many([NewTask("resize", queue="mail", tags=["x"]) for _ in range(3)])
    other = client.enqueue("resize")
    which = ("--all", "--from-queue", "mail", "--with-tag", "x")
    dry = run("tasks", "set", *which, "--queue", "slow", "--dry-run", "--json").json
    assert dry == {"success": True, "dry_run": True, "matching": 3}
    done = run("tasks", "set", *which, "--queue", "slow", "--yes", "--json").json
    assert done == {"success": True, "dry_run": False, "count": 3}
    assert client.stats().by_queue == {"slow": {"pending": 3}, "default": {"pending": 1}}
    assert client.get(other.id) == other


def test_wrong_usage_changes_nothing(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize")
    for options in (
        (),
        ("--priority", "high"),
        ("--params", "{"),
        ("--params", "[]"),
        ("--delay", "1", "--run-at", "2099-01-31T08:00:00Z"),
        ("--run-at", "2099-01-31T08:00:00"),
        ("--tag", "a", "--no-tags"),
        ("--priority", "1", "--from-queue", "mail"),
        ("--priority", "1", "--all"),
    ):
        assert run("tasks", "set", str(task.id), *options).code == 2, options
    assert run("tasks", "set", "--all", "--type", "resize", "--params", "{}", "--yes").code == 2
    assert client.get(task.id) == task
