"""`dibs tasks list`, `cancel` and `retry` by filters: the same tasks are listed, counted and changed."""

from __future__ import annotations

import pytest

import dibs
from tests.cli.running import Run
from tests.helpers.tasks import dead, task_in
from tests.helpers.terminal import Terminal


def listed(run: Run, *filters: str) -> list[int]:
    return [task["id"] for task in run("tasks", "list", *filters, "--json").json["tasks"]]


def state(client: dibs.Dibs, task_id: int) -> str:
    task = client.get(task_id)
    assert task is not None
    return task.state.value


def test_tasks_are_listed_by_key_worker_time_and_text(run: Run, client: dibs.Dibs) -> None:
    one = client.enqueue("resize", {"name": "Straße"}, key="order-7")
    two = client.enqueue("resize", {"name": "road"})
    client.claim_by_id(two.id, "worker-1")
    created = two.created_at.isoformat()
    assert listed(run, "--key", "order-7") == [one.id]
    assert listed(run, "--worker", "worker-1") == [two.id]
    assert listed(run, "--text", "Straße") == [one.id]
    assert listed(run, "--since", created) == [two.id]
    assert listed(run, "--until", created) == [one.id]
    assert listed(run, "--since", "1h") == [two.id, one.id]
    assert listed(run, "--until", "1h ago") == listed(run, "--until", "2020-01-31") == []


def test_tasks_are_listed_and_changed_by_tags(run: Run, client: dibs.Dibs) -> None:
    one = run("enqueue", "resize", "--tag", "eu", "--tag", "vip", "--json").json["task"]
    two = client.enqueue("resize", tags=["eu"])
    assert one["tags"] == ["eu", "vip"]
    assert listed(run, "--tag", "eu") == [two.id, one["id"]]
    assert listed(run, "--tag", "eu", "--tag", "vip") == [one["id"]]
    assert "tags:        eu, vip\n" in run("tasks", "show", str(one["id"])).out
    assert run("tasks", "cancel", "--all", "--tag", "vip").out == "1 task cancelled.\n"
    assert (state(client, one["id"]), state(client, two.id)) == ("cancelled", "pending")


def test_lists_of_tasks_show_the_tags_if_a_task_has_any(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", priority=-2)
    assert "tags" not in run("tasks", "list").out
    client.enqueue("resize", tags=["eu", "vip"], max_attempts=1)
    client.enqueue("resize", tags=[f"customer-{number}" for number in range(20)], priority=-1)
    tags = ["eu,vip", "customer-0,customer-1,customer-2,custom…", ""]
    for command in ("list", "peek"):
        shown = run("tasks", command, *(["--count", "3"] if command == "peek" else [])).out.splitlines()
        rows = [cells(line, shown[0], "tags", "params") for line in shown[1:]]
        assert sorted(rows) == sorted(tags), command
    held = client.claim("w", types=["resize"])
    assert held is not None
    client.fail(held, "no such picture")
    shown = run("dead", "list").out.splitlines()
    assert cells(shown[1], shown[0], "tags", "error") == "eu,vip"


def cells(line: str, header: str, first: str, following: str) -> str:
    """The cell of a line below the first title, in a table with aligned columns."""
    return line[header.index(first) : header.index(following)].strip()


def test_an_invalid_time_is_wrong_usage(run: Run, client: dibs.Dibs) -> None:
    done = run("tasks", "list", "--since", "tomorrow")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: 'tomorrow' is not a valid time.")


def test_all_matching_tasks_are_cancelled(run: Run, client: dibs.Dibs) -> None:
    wanted = [client.enqueue("resize", {"n": n}, queue="media").id for n in range(3)]
    other = client.enqueue("resize", queue="mail").id
    done = run("tasks", "cancel", "--all", "--queue", "media")
    assert (done.code, done.out) == (0, "3 tasks cancelled.\n")
    assert ({state(client, each) for each in wanted}, state(client, other)) == ({"cancelled"}, "pending")


def test_all_matching_tasks_are_retried(run: Run, client: dibs.Dibs) -> None:
    dead(client, 2, "timeout of image 7")
    dead(client, 1, "no image")
    answer = run("tasks", "retry", "--all", "--text", "timeout", "--json").json
    assert answer == {"success": True, "dry_run": False, "count": 2}
    assert client.stats().depth == {"pending": 2, "failed": 1}


def test_a_dry_run_counts_what_would_be_changed(run: Run, client: dibs.Dibs) -> None:
    for each in ("pending", "claimed", "completed", "failed"):
        task_in(client, each)
    before = client.all_history()
    assert run("tasks", "cancel", "--all", "--dry-run").out == "2 tasks would be cancelled.\n"
    answer = run("tasks", "retry", "--all", "--dry-run", "--json").json
    assert answer == {"success": True, "dry_run": True, "matching": 1}
    assert client.all_history() == before


def test_the_option_all_alone_means_every_task(run: Run, client: dibs.Dibs) -> None:
    for each in ("pending", "scheduled", "completed"):
        task_in(client, each)
    assert run("tasks", "cancel", "--all", "--json").json["count"] == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("cancel", "No task is given."),
        ("cancel 1 --all", "Task ids and --all exclude each other."),
        ("retry --queue media", "Filters, --dry-run and --yes need --all."),
        ("cancel 1 --yes", "Filters, --dry-run and --yes need --all."),
    ],
)
def test_ids_and_filters_are_not_mixed(run: Run, client: dibs.Dibs, args: str, said: str) -> None:
    task = client.enqueue("resize", queue="media")
    done = run("tasks", *args.split())
    assert (done.code, done.err.splitlines()[0]) == (2, f"error: {said}")
    assert state(client, task.id) == "pending"


def test_on_a_terminal_a_bulk_action_asks_first(url: str, client: dibs.Dibs) -> None:
    task = client.enqueue("resize")
    for answer, said, code in (("n", "Nothing was changed.", 1), ("y", "1 task cancelled.", 0)):
        assert state(client, task.id) == "pending"
        with Terminal("tasks", "cancel", "--all", "--type", "resize", "--url", url) as terminal:
            terminal.shows(r"Cancel 1 task\? \[y/N\]")
            terminal.press(f"{answer}\r")
            terminal.shows(said)
            assert terminal.ends() == code
    assert state(client, task.id) == "cancelled"


def test_on_a_terminal_a_long_bulk_action_shows_its_progress_and_yes_asks_nothing(url: str, client: dibs.Dibs) -> None:
    client.enqueue_many([dibs.NewTask("resize") for _ in range(3000)])
    with Terminal("tasks", "cancel", "--all", "--yes", "--url", url) as terminal:
        terminal.shows("3,000 tasks cancelled.", timeout=60)
        assert terminal.ends() == 0
    assert "Cancelling" in terminal.raw
    assert "/3000" in terminal.raw
    assert "y/N" not in terminal.raw
