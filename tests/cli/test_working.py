"""A worker made of shell commands: peek, claim, complete, fail, release; fenced by the token."""

from __future__ import annotations

import json

import pytest

import dibs
from tests.cli.running import Done, Run
from tests.helpers.waiting import until

ME = ("--worker", "worker-1")


def claimed(run: Run, *options: str) -> tuple[str, str]:
    task = run("tasks", "claim", *ME, *options, "--json").json["task"]
    return str(task["id"]), str(task["token"])


def finish(run: Run, verb: str, held: tuple[str, str], *options: str) -> Done:
    return run("tasks", verb, held[0], *options, "--token", held[1], *ME)


def state(client: dibs.Dibs, task_id: str) -> str:
    task = client.get(int(task_id))
    assert task is not None
    return task.state.value


def test_peek_shows_what_would_be_claimed_next_and_claims_nothing(run: Run, client: dibs.Dibs) -> None:
    low, high = client.enqueue("resize"), client.enqueue("mail", queue="slow", priority=5)
    assert [task["id"] for task in run("tasks", "peek", "--json").json["tasks"]] == [high.id]
    two = run("tasks", "peek", "--count", "2", "--order", "fifo", "--json").json["tasks"]
    assert [task["id"] for task in two] == [low.id, high.id]
    assert [line.split()[0] for line in run("tasks", "peek", "--types", "resize").out.splitlines()[1:]] == [str(low.id)]
    assert run("tasks", "peek", "--queues", "none").err == "No pending tasks.\n"
    assert client.stats().depth == {"pending": 2}


def test_claim_prints_id_token_and_params(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize", {"image": 7})
    done = run("tasks", "claim", *ME, "--lease", "30")
    assert done.code == 0
    assert [line.split(":")[0] for line in done.out.splitlines()[:4]] == ["id", "type", "token", "lease until"]
    assert '"image": 7' in done.out
    held = client.get(task.id)
    assert held is not None
    assert (held.state, held.worker_id, held.token) == ("claimed", "worker-1", 1)
    assert held.lease_until is not None
    assert held.claimed_at is not None
    assert (held.lease_until - held.claimed_at).total_seconds() == 30


def test_claim_with_json_has_the_fields_of_the_api(run: Run, client: dibs.Dibs) -> None:
    one, two = client.enqueue("resize", {"image": 7}), client.enqueue("resize")
    answer = run("tasks", "claim", *ME, "--count", "5", "--json").json
    assert (answer["success"], answer["message"]) == (True, "2 tasks claimed successfully")
    assert [task["id"] for task in answer["tasks"]] == [one.id, two.id]
    assert (answer["task"]["status"], answer["task"]["task_type"], answer["task"]["token"]) == ("claimed", "resize", 1)


def test_claim_takes_a_task_by_its_id_or_says_why_not(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    two = client.enqueue("resize")
    assert claimed(run, str(two.id)) == (str(two.id), "1")
    refused = run("tasks", "claim", str(two.id), "--worker", "worker-2", "--json")
    assert (refused.code, refused.json["code"]) == (1, "already_claimed")


def test_an_empty_claim_ends_with_1(run: Run, client: dibs.Dibs) -> None:
    done = run("tasks", "claim", *ME, "--wait", "0.01")
    assert (done.code, done.out, done.err) == (1, "", "No pending tasks available.\n")
    done = run("tasks", "claim", *ME, "--json")
    assert (done.code, done.json) == (1, {"success": False, "message": "No pending tasks available"})


def test_a_claim_takes_either_an_id_or_filters(run: Run, client: dibs.Dibs) -> None:
    task = client.enqueue("resize")
    done = run("tasks", "claim", str(task.id), *ME, "--count", "2")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: A task is claimed by its id or by filters, not both.")
    assert state(client, str(task.id)) == "pending"


def test_complete_stores_a_json_result(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    held = claimed(run)
    done = finish(run, "complete", held, '{"width": 800}', "--json")
    assert done.code == 0
    assert (done.json["success"], done.json["status"], done.json["repeated"]) == (True, "completed", False)
    task = client.get(int(held[0]))
    assert task is not None
    assert task.result == {"width": 800}
    assert finish(run, "complete", held, '{"width": 800}').out == f"Task {held[0]} is completed (as reported before).\n"


@pytest.mark.parametrize("result", ["null", "7", '"done"', "[1, 2]"])
def test_a_result_is_any_json_value_also_from_standard_input(run: Run, client: dibs.Dibs, result: str) -> None:
    client.enqueue("resize")
    held = claimed(run)
    done = run("tasks", "complete", held[0], "-", "--token", held[1], *ME, stdin=result)
    assert (done.code, done.out) == (0, f"Task {held[0]} is completed.\n")
    task = client.get(int(held[0]))
    assert task is not None
    assert task.result == json.loads(result)


def test_a_result_that_is_not_json_is_wrong_usage(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    held = claimed(run)
    for bad in ("{", "NaN", "done"):
        done = finish(run, "complete", held, bad)
        assert (done.code, done.err[:18]) == (2, "error: The result ")
    assert state(client, held[0]) == "claimed"


def test_fail_stores_the_error_and_prints_the_next_attempt(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    held = claimed(run)
    done = finish(run, "fail", held, "--error", "no image", "--error-type", "ImageMissing", "--retry-in", "60")
    assert done.code == 0
    assert done.out.startswith(f"Task {held[0]} is scheduled: the next attempt is at ")
    task = client.get(int(held[0]))
    assert task is not None
    assert task.error is not None
    assert (task.error.type, task.error.message) == ("ImageMissing", "no image")


def test_a_permanent_failure_goes_to_the_dead_letter(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    held = claimed(run)
    answer = finish(run, "fail", held, "--error", "no image", "--permanent", "--json").json
    assert (answer["status"], answer["will_retry"]) == ("failed", False)


def test_release_makes_the_task_pending_without_charging_an_attempt(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    held = claimed(run)
    assert finish(run, "release", held).out == f"Task {held[0]} is pending.\n"
    task = client.get(int(held[0]))
    assert task is not None
    assert task.attempts == 0
    held = claimed(run)
    assert finish(run, "release", held, "--delay", "60", "--json").json["status"] == "scheduled"


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_a_stale_token_changes_nothing_and_ends_with_1(run: Run, client: dibs.Dibs, verb: str) -> None:
    client.enqueue("resize")
    held = claimed(run, "--lease", "0.01")
    until(lambda: client.recover() == 1)
    claimed(run)
    options = ("--error", "no") if verb == "fail" else ()
    before = client.all_history()
    done = finish(run, verb, held, *options, "--json")
    assert (done.code, done.json["code"]) == (1, "claim_lost")
    assert client.all_history() == before


@pytest.mark.parametrize("missing", ["--token", "--worker"])
def test_a_write_needs_token_and_worker(run: Run, client: dibs.Dibs, missing: str) -> None:
    options = {"--token": "1", "--worker": "worker-1"}
    del options[missing]
    done = run("tasks", "complete", "1", *(part for option in options.items() for part in option))
    assert (done.code, done.err.splitlines()[0]) == (2, f"error: Missing option '{missing}'.")
