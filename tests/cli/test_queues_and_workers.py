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
    assert run("queues", "pause", "default").out == "The queue default is paused.\n"
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
