"""`dibs tasks`: every command has output for people and scripts, and reports a refusal by its exit code."""

from __future__ import annotations

import re

import dibs
from tests.cli.running import Run
from tests.helpers.codecs import Veil
from tests.helpers.tasks import STATES, task_in


def test_a_list_shows_the_newest_first_and_filters(run: Run, client: dibs.Dibs) -> None:
    made = {state: task_in(client, state) for state in STATES}
    other = client.enqueue("mail", {"to": "a@b"}, queue="slow", priority=3)
    listed = run("tasks", "list", "--json").json
    assert [task["id"] for task in listed["tasks"]] == sorted((*(t.id for t in made.values()), other.id), reverse=True)
    assert listed["next_cursor"] is None
    for state, task in made.items():
        found = run("tasks", "list", "--state", state, "--type", "resize", "--json").json["tasks"]
        assert [(each["id"], each["status"]) for each in found] == [(task.id, state)]
    assert [each["id"] for each in run("tasks", "list", "--queue", "slow", "--json").json["tasks"]] == [other.id]


def test_a_list_in_a_pipe_is_aligned_plain_text_that_is_never_cut(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize", {"text": "x" * 150}, queue="a-queue-with-a-rather-long-name-that-is-never-cut")
    done = run("tasks", "list")
    title, row = done.out.splitlines()
    assert title.split() == ["id", "state", "type", "queue", "prio", "attempts", "created", "(UTC)", "params"]
    assert row.split()[:6] == [str(task.id), "pending", "resize", task.queue, "0", "0/3"]
    assert row.endswith(f'{{"text": "{"x" * 150}"}}')
    assert row.index("resize") == title.index("type")
    assert "\x1b" not in done.out


def test_a_list_ends_at_its_limit_with_a_hint_how_to_continue(run: Run, client: dibs.Dibs) -> None:
    ids = [task.id for task in client.enqueue_many([dibs.NewTask("resize") for _ in range(51)])]
    first = run("tasks", "list", "--json").json
    assert [task["id"] for task in first["tasks"]] == ids[:0:-1]
    rest = run("tasks", "list", "--cursor", str(first["next_cursor"]), "--json").json
    assert ([task["id"] for task in rest["tasks"]], rest["next_cursor"]) == ([ids[0]], None)
    assert run("tasks", "list", "--limit", "2").err == f"2 tasks shown. For more use --limit, or --cursor {ids[-2]}.\n"


def test_an_empty_list_is_a_note_as_text_and_an_empty_array_as_json(run: Run, client: dibs.Dibs) -> None:
    done = run("tasks", "list")
    assert (done.code, done.out, done.err) == (0, "", "No tasks.\n")
    assert run("tasks", "list", "--json").json == {"tasks": [], "next_cursor": None}


def test_a_task_is_shown_with_everything_about_it(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", {"image": 7}, key="k", timeout=30)
    claim = client.claim("worker-1")
    assert claim is not None
    client.progress(claim, 45, "nearly half")
    running = run("tasks", "show", str(claim.task_id)).out
    assert re.search(r"^progress: +█████████░░░░░░░░░░░ 45 % nearly half$", running, re.MULTILINE)
    assert re.search(r"^lease until: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} UTC \(in \d+ s\)$", running, re.MULTILINE)
    client.fail(claim, ValueError("no image"), permanent=True)
    failed = run("tasks", "show", str(claim.task_id)).out
    for line in (
        "state:       failed",
        "key:         k",
        "timeout:     30 s",
        '    "image": 7',
        "error:       ValueError: no image",
    ):
        assert line in failed.splitlines()
    shape = run("tasks", "show", str(claim.task_id), "--json").json["task"]
    assert (shape["status"], shape["attempts"], shape["worker_id"]) == ("failed", 1, "worker-1")
    assert shape["error"]["message"] == "no image"


def test_a_result_is_shown(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    claim = client.claim("worker-1")
    assert claim is not None
    client.complete(claim, {"width": 800})
    assert '    "width": 800' in run("tasks", "show", str(claim.task_id)).out
    assert run("tasks", "show", str(claim.task_id), "--json").json["task"]["result"] == {"width": 800}


def test_the_history_of_a_task_is_listed_in_order(run: Run, client: dibs.Dibs) -> None:
    task = task_in(client, "completed")
    told = run("tasks", "history", str(task.id))
    assert [line.split()[2] for line in told.out.splitlines()[1:]] == ["enqueued", "claimed", "completed"]
    entries = run("tasks", "history", str(task.id), "--json").json["history"]
    assert [(entry["from_state"], entry["to_state"], entry["token"]) for entry in entries] == [
        (None, "pending", 0),
        ("pending", "claimed", 1),
        ("claimed", "completed", 1),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["at"]) for entry in entries)


def test_explain_prints_why_a_task_is_not_running(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize")
    client.pause("default")
    done = run("tasks", "explain", str(task.id))
    assert (done.code, len(done.out.splitlines())) == (0, 2)
    assert "is paused since" in done.out
    answer = run("tasks", "explain", str(task.id), "--json").json
    assert (answer["task_id"], answer["status"]) == (task.id, "pending")
    assert [reason["code"] for reason in answer["reasons"]] == ["queue_paused", "no_worker"]


def test_cancelling_several_tasks_prints_a_reply_for_each(run: Run, client: dibs.Dibs) -> None:
    waiting, running, done = (task_in(client, state) for state in ("pending", "claimed", "completed"))
    said = run("tasks", "cancel", *(str(task.id) for task in (waiting, done, running)), "999999")
    assert said.code == 1
    assert said.out.splitlines() == [
        f"Task {waiting.id} is cancelled.",
        f"Task {running.id} is claimed; worker worker-1 was asked to stop.",
    ]
    assert said.err.splitlines() == [
        f"error: Task {done.id} cannot be cancelled: it is completed.",
        "error: There is no task 999999.",
    ]
    asked = client.get(running.id)
    assert asked is not None
    assert asked.cancel_requested


def test_retrying_several_tasks_prints_a_json_reply_for_each(run: Run, client: dibs.Dibs) -> None:
    failed, pending = (task_in(client, state) for state in ("failed", "pending"))
    said = run("tasks", "retry", str(failed.id), str(pending.id), "--json")
    assert (said.code, said.json["success"]) == (1, False)
    first, second = said.json["results"]
    assert (first["id"], first["success"], first["task"]["status"]) == (failed.id, True, "pending")
    assert (second["id"], second["success"], second["code"]) == (pending.id, False, "wrong_state")
    assert run("tasks", "cancel", str(failed.id), "--json").code == 0


def test_every_command_reports_an_unknown_task(run: Run, client: dibs.Dibs) -> None:
    for verb in ("show", "history", "explain", "cancel", "retry"):
        done = run("tasks", verb, "999999")
        assert (done.code, done.err.splitlines()[0]) == (1, "error: There is no task 999999.")


def test_encoded_values_are_shown_in_words_and_with_json_as_they_are_stored(run: Run, client: dibs.Dibs) -> None:
    charge = client.task(name="charge", codec=Veil())(lambda card: card)
    task = charge.enqueue("4111-1111")
    claim = client.claim("worker-1")
    client.complete(claim, charge.encode("4111-1111"))
    shown = run("tasks", "show", str(task.id)).out
    assert re.search(r"^params: +encoded by veil, 68 bytes$", shown, re.MULTILINE)
    assert re.search(r"^result: +encoded by veil, \d+ bytes$", shown, re.MULTILINE)
    assert run("tasks", "list").out.splitlines()[1].endswith("encoded by veil, 68 bytes")
    stored = run("tasks", "show", str(task.id), "--json").json["task"]
    assert (charge.decode(stored["params"]), charge.decode(stored["result"])) == ({"card": "4111-1111"}, "4111-1111")
