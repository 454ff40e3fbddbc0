"""`dibs queues` and `dibs workers`."""

from __future__ import annotations

import dibs
from tests.cli.running import Run
from tests.helpers.tasks import task_in


def test_queues_are_listed_with_their_depth(run: Run, client: dibs.Dibs) -> None:
    for state in ("pending", "claimed", "failed"):
        task_in(client, state)
    client.enqueue("mail", queue="slow")
    client.pause("slow")
    title, default, slow = run("queues", "list").out.splitlines()
    assert title.split() == ["queue", *dibs.State]
    assert default.split() == ["default", "0", "0", "1", "1", "0", "1", "0"]
    assert slow.split() == ["slow", "paused", "0", "0", "1", "0", "0", "0", "0"]
    first, second = run("queues", "list", "--json").json["queues"]
    assert (first["name"], first["paused"], first["depth"]) == (
        "default",
        False,
        {"pending": 1, "claimed": 1, "failed": 1},
    )
    assert (second["paused"], second["paused_at"][-1]) == (True, "Z")


def test_a_paused_queue_is_not_claimed_from_until_it_is_resumed(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    assert run("queues", "pause", "default").out == "Queue default is paused.\n"
    assert client.claim("worker-1") is None
    assert run("queues", "resume", "default", "--json").json == {"success": True, "queue": "default", "paused": False}
    assert client.claim("worker-1") is not None


def test_workers_are_listed_with_what_they_hold(run: Run, client: dibs.Dibs) -> None:
    assert run("workers").err == "No workers.\n"
    client.heartbeat("worker-1", queues=["a", "b"], metadata={"host": "x"})
    client.heartbeat("worker-2", leaving=True)
    task = client.enqueue("resize", queue="a")
    client.claim("worker-1")
    _, first, second = run("workers").out.splitlines()
    assert first.split()[:3] == ["worker-1", "active", "a,b"]
    assert first.split()[-1] == str(task.id)
    assert second.split()[:3] == ["worker-2", "gone", "all"]
    shape, _ = run("workers", "--json").json["workers"]
    assert (shape["id"], shape["state"], shape["queues"], shape["holds"]) == (
        "worker-1",
        "active",
        ["a", "b"],
        [task.id],
    )
    assert shape["metadata"] == {"host": "x"}


def test_pausing_an_unknown_queue_prints_a_note_and_pauses_it(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", queue="mail")
    done = run("queues", "pause", "mial")
    assert (done.code, done.out) == (0, "Queue mial is paused.\n")
    assert done.err == "note: No task, worker or schedule uses queue mial. Queues with tasks: mail.\n"
    assert [queue.name for queue in client.queues() if queue.paused] == ["mial"]
    done = run("queues", "pause", "mial", "--json")
    assert (done.err, done.json) == ("", {"success": True, "queue": "mial", "paused": True})


def test_pausing_a_queue_of_a_task_worker_or_schedule_prints_no_note(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize", queue="mail")
    client.heartbeat("worker-1", queues=["media"])
    client.set_schedule("nightly", "@daily", "report", queue="reports")
    for queue in ("mail", "media", "reports"):
        assert run("queues", "pause", queue).err == ""


def test_resuming_a_queue_that_is_not_paused_prints_a_note(run: Run, client: dibs.Dibs) -> None:
    done = run("queues", "resume", "mial")
    assert (done.code, done.err) == (0, "note: Queue mial was not paused.\n")
    client.pause("mail")
    assert run("queues", "resume", "mail").err == ""
