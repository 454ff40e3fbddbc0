"""`dibs migrate`, `dibs doctor` and `dibs verify`."""

from __future__ import annotations

from pathlib import Path

import pytest

import dibs
from dibs.observe.verify import dump
from tests.cli.running import Run, run_dibs
from tests.helpers.databases import run_sql
from tests.helpers.tasks import task_in
from tests.helpers.terminal import Terminal


def test_migrate_names_the_applied_migrations_and_then_reports_that_none_is_left(empty_url: str) -> None:
    first = run_dibs("migrate", url=empty_url)
    assert first.code == 0
    *steps, last = first.out.splitlines()
    assert steps == ["applying 0001_initial"]
    assert last == "Applied 1 migration: the database is up to date."
    assert run_dibs("migrate", url=empty_url).out == "Nothing to do: the database is up to date.\n"
    assert run_dibs("migrate", "--json", url=empty_url).json == {"success": True, "applied": []}


def test_a_read_does_not_migrate_a_store_without_tables(empty_url: str, tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    for command in (["tasks", "list"], ["queues", "pause", "default"], ["doctor"], ["verify"]):
        done = run_dibs(*command, "--json", url=empty_url)
        assert (done.code, done.json["code"]) == (3, "schema_missing")
        assert "hint: Run `dibs migrate` with the same --url first.\n" in done.err
    assert run_dibs("migrate", "--json", url=empty_url).json["applied"] == ["0001_initial"]


def test_a_healthy_store_passes_the_doctor(run: Run, client: dibs.Dibs) -> None:
    task_in(client, "completed")
    done = run("doctor")
    assert done.code == 0
    assert done.out.splitlines()[0].split() == ["verdict", "check", "found"]
    answer = run("doctor", "--json").json
    assert answer["success"] is True
    assert {check["verdict"] for check in answer["checks"]} <= {"ok", "warn"}


def test_the_doctor_fails_for_a_store_that_disagrees_with_its_history(run: Run, client: dibs.Dibs, url: str) -> None:
    task_in(client, "completed")
    run_sql(url, "UPDATE dibs_tasks SET token = 5")
    done = run("doctor")
    assert done.code == 1
    assert [line.split()[:3] for line in done.out.splitlines() if line.startswith("fail")] == [
        ["fail", "books", "tokens"]
    ]
    assert "hint: books tokens:" in done.out
    assert run("doctor", "--json").json["success"] is False


@pytest.fixture
def recording(client: dibs.Dibs, tmp_path: Path) -> Path:
    """A recorded history of two tasks."""
    for state in ("completed", "failed"):
        task_in(client, state)
    path = tmp_path / "history.jsonl"
    dump(client.all_history(), path)
    return path


def test_verify_accepts_a_history_without_violation(run: Run, recording: Path) -> None:
    done = run("verify", str(recording))
    assert (done.code, done.out) == (0, "6 operations on 2 tasks (2 claims, 1 completions): no violation.\n")
    assert run("verify", str(recording), "--json").json["success"] is True


def test_verify_finds_a_double_claim_in_a_history(run: Run, recording: Path) -> None:
    lines = recording.read_text().splitlines()
    recording.write_text("\n".join([*lines[:2], lines[1].replace('"id":2', '"id":3'), *lines[3:]]) + "\n")
    done = run("verify", str(recording))
    assert done.code == 1
    assert "double_claim" in done.out
    answer = run("verify", str(recording), "--json").json
    assert (answer["success"], answer["violations"][0]["code"]) == (False, "double_claim")


def test_verify_reports_a_malformed_history_as_wrong_usage(run: Run, recording: Path) -> None:
    recording.write_text('{"half": ')
    assert "Line 1 of" in run("verify", str(recording)).err
    assert run("verify", str(recording)).code == 2
    assert run("verify", "nowhere.jsonl").err.startswith("error: Cannot read nowhere.jsonl: No such file")


def test_verify_reads_the_history_of_the_store(run: Run, client: dibs.Dibs, url: str) -> None:
    task_in(client, "completed")
    assert run("verify", "--json").json["operations"] == 3
    run_sql(url, "UPDATE dibs_history SET token = 7 WHERE event = 'completed'")
    done = run("verify")
    assert done.code == 1
    assert "stale_token_honoured" in done.out


@pytest.fixture
def with_limits(client: dibs.Dibs) -> dibs.Dibs:
    """A store in which two tasks hold the permits of a limit, and one that of its group."""
    client.set_limit("stripe", max=2)
    client.set_limit("tenant", max=1, per="group")
    client.enqueue("charge", limits=["stripe"])
    client.enqueue("charge", limits=["stripe", "tenant"], group="acme")
    assert len(client.claim_many("ann", 10)) == 2
    return client


def test_verify_checks_the_limits_of_the_store(run: Run, with_limits: dibs.Dibs) -> None:
    assert run("verify").code == 0
    assert run("verify", "--json").json["success"] is True


@pytest.mark.parametrize(
    ("planted", "code"),
    [
        ("UPDATE dibs_limits SET max = 1 WHERE name = 'stripe'", "limit_exceeded"),
        ("UPDATE dibs_counters SET used = used + 1 WHERE limit_name = 'stripe'", "permit_lost"),
        ("UPDATE dibs_counters SET used = used + 1 WHERE limit_name = 'tenant'", "permit_lost"),
        ("UPDATE dibs_counters SET used = used - 1 WHERE limit_name = 'stripe'", "permit_not_counted"),
    ],
)
def test_verify_finds_limits_that_were_exceeded_and_permits_that_were_lost(
    run: Run, with_limits: dibs.Dibs, url: str, planted: str, code: str
) -> None:
    run_sql(url, planted)
    done = run("verify")
    assert done.code == 1
    assert code in done.out


def test_verify_shows_its_progress_on_a_long_history(client: dibs.Dibs, tmp_path: Path) -> None:
    client.enqueue_many([dibs.NewTask("resize") for _ in range(4000)])
    path = tmp_path / "long.jsonl"
    dump(client.all_history(), path)
    with Terminal("verify", str(path)) as terminal:
        terminal.shows("4,000 operations on 4,000 tasks")
        assert terminal.ends() == 0
    assert "Reading" in terminal.raw
    assert "/4000" in terminal.raw
