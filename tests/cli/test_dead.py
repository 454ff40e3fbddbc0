"""`dibs dead`: lists, redrives and discards failed tasks."""

from __future__ import annotations

import dibs
from tests.cli.running import Run
from tests.helpers.tasks import dead, task_in
from tests.helpers.terminal import Terminal


def depth(client: dibs.Dibs, state: str) -> int:
    return client.stats().depth.get(state, 0)


def test_the_dead_letter_lists_only_failed_tasks_with_their_errors(run: Run, client: dibs.Dibs) -> None:
    [failed] = dead(client, error="no\nimage")
    task_in(client, "completed")
    title, row = run("dead", "list").out.splitlines()
    assert title.split() == ["id", "type", "queue", "attempts", "failed", "(UTC)", "error"]
    assert row.split()[0] == str(failed)
    assert row.endswith(r"Error: no\nimage")
    assert [task["id"] for task in run("dead", "list", "--json").json["tasks"]] == [failed]


def test_a_permanent_failure_is_marked_as_permanent_in_the_dead_letter_and_in_the_task(
    run: Run, client: dibs.Dibs
) -> None:
    task = client.enqueue("resize", max_attempts=3)
    client.fail(client.claim_by_id(task.id, "worker-1"), ValueError("bad input"), permanent=True)
    assert "1/3 permanent" in run("dead", "list").out
    assert "permanent: no further attempt was made" in run("tasks", "show", str(task.id)).out
    assert "It failed permanently in attempt 1 of 3" in run("tasks", "explain", str(task.id)).out
    assert '"permanent":true' in run("tasks", "history", str(task.id)).out.replace(" ", "")
    assert run("tasks", "show", str(task.id), "--json").json["task"]["error"]["permanent"] is True


def test_a_finished_task_shows_no_due_time(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize", max_attempts=1, backoff=dibs.Backoff(60))
    assert "run at" in run("tasks", "show", str(task.id)).out
    client.fail(client.claim_by_id(task.id, "worker-1"), "no")
    shown = run("tasks", "show", str(task.id)).out
    assert "finished:" in shown
    assert "run at" not in shown


def test_the_whole_dead_letter_is_redriven_in_batches(run: Run, client: dibs.Dibs) -> None:
    dead(client, 1203)
    done = run("dead", "redrive")
    assert (done.code, done.out) == (0, "1,203 tasks retried.\n")
    assert (depth(client, "failed"), depth(client, "pending")) == (0, 1203)


def test_filters_choose_the_tasks_to_redrive(run: Run, client: dibs.Dibs) -> None:
    wanted = dead(client, 2, "timeout of image 7", queue="media", type="resize")
    others = [*dead(client, 2, "no image", queue="media"), *dead(client, 1, "timeout of image 7", queue="mail")]
    filters = ["--queue", "media", "--type", "resize", "--error", "image 7"]
    assert run("dead", "redrive", *filters, "--dry-run").out == "2 tasks would be retried.\n"
    assert run("dead", "redrive", *filters, "--json").json == {"success": True, "dry_run": False, "redriven": 2}
    assert {task.id for task in client.list_tasks(state="failed")} == set(others)
    assert {task.id for task in client.list_tasks(state="pending")} == set(wanted)


def test_redrive_never_exceeds_its_limit(run: Run, client: dibs.Dibs) -> None:
    dead(client, 7)
    assert run("dead", "redrive", "--limit", "3", "--json").json["redriven"] == 3
    assert run("dead", "redrive", "--limit", "9", "--dry-run", "--json").json["matching"] == 4
    assert depth(client, "failed") == 4


def test_a_dry_run_changes_nothing(run: Run, client: dibs.Dibs) -> None:
    dead(client, 3)
    assert run("dead", "redrive", "--dry-run", "--json").json == {"success": True, "dry_run": True, "matching": 3}
    assert depth(client, "failed") == 3


def test_on_a_terminal_redrive_asks_first_and_no_changes_nothing(url: str, client: dibs.Dibs) -> None:
    dead(client, 3)
    with Terminal("dead", "redrive", "--url", url) as terminal:
        terminal.shows(r"Retry 3 tasks\? \[y/N\]")
        terminal.press("n\r")
        terminal.shows("Nothing was changed.")
        assert terminal.ends() == 1
    assert depth(client, "failed") == 3


def test_on_a_terminal_yes_redrives(url: str, client: dibs.Dibs) -> None:
    dead(client, 2)
    with Terminal("dead", "redrive", "--url", url) as terminal:
        terminal.shows(r"\[y/N\]")
        terminal.press("y\r")
        terminal.shows("2 tasks retried.")
        assert terminal.ends() == 0
    assert depth(client, "failed") == 0


def test_on_a_terminal_redrive_with_the_option_yes_does_not_ask(url: str, client: dibs.Dibs) -> None:
    dead(client, 2)
    with Terminal("dead", "redrive", "--yes", "--url", url) as terminal:
        terminal.shows("2 tasks retried.")
        assert "y/N" not in terminal.text
        assert terminal.ends() == 0
    assert depth(client, "failed") == 0


def test_a_long_redrive_shows_its_progress(url: str, client: dibs.Dibs) -> None:
    dead(client, 3000)
    with Terminal("dead", "redrive", "--yes", "--url", url) as terminal:
        terminal.shows("3,000 tasks retried.", timeout=60)
        assert terminal.ends() == 0
    assert "Retrying" in terminal.raw
    assert "/3000" in terminal.raw


# Discard


def test_the_named_tasks_are_discarded(run: Run, client: dibs.Dibs) -> None:
    first, second, third = dead(client, 3)
    done = run("dead", "discard", str(first), str(third))
    assert (done.code, done.out) == (0, "2 tasks discarded.\n")
    assert [task.id for task in client.list_dead()] == [second]
    assert run("dead", "list", "--json").json["tasks"][0]["id"] == second


def test_matching_tasks_are_discarded_in_batches(run: Run, client: dibs.Dibs) -> None:
    dead(client, 700, error="404")
    [kept] = dead(client, error="503")
    assert run("dead", "discard", "--error", "404", "--dry-run").out == "700 tasks would be discarded.\n"
    assert run("dead", "discard", "--error", "404", "--json").json == {
        "success": True,
        "dry_run": False,
        "discarded": 700,
    }
    assert [task.id for task in client.list_dead()] == [kept]
    assert run("dead", "discard", "--all").out == "1 task discarded.\n"
    assert depth(client, "failed") == 701


def test_discard_without_ids_and_filters_is_refused(run: Run, client: dibs.Dibs) -> None:
    dead(client)
    done = run("dead", "discard")
    assert done.code == 2
    assert "--all" in done.err
    assert len(client.list_dead()) == 1
