"""`dibs upkeep` and `dibs history export`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import dibs
from dibs.observe.verify import dump, load
from tests.cli.running import Run
from tests.helpers.tasks import task_in
from tests.helpers.waiting import until


def test_upkeep_promotes_and_recovers_and_prints_the_counts(run: Run, client: dibs.Dibs) -> None:
    due = client.enqueue("resize", delay=0.01)
    lost = client.enqueue("mail")
    client.claim_by_id(lost.id, "worker-1", lease=0.01)
    until(lambda: run("upkeep").code == 0 and client.stats().depth.get("pending") == 2)
    events = {entry.event.value for task in (due, lost) for entry in client.history(task.id)}
    assert {"promoted", "recovered"} <= events
    assert run("upkeep").out == "Nothing to do.\n"
    answer = run("upkeep", "--json").json
    assert (answer["success"], answer["promoted"], answer["recovered"]) == (True, 0, 0)


def test_upkeep_names_the_kinds_of_changes(run: Run, client: dibs.Dibs) -> None:
    client.heartbeat("worker-1")
    client.set_schedule("often", "* * * * * *", "tick")
    until(lambda: "ticked: 1" in run("upkeep").out)


def test_verify_reads_an_exported_history(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    for state in ("completed", "failed", "claimed"):
        task_in(client, state)
    done = run("history", "export", "history.jsonl")
    entries = client.all_history()
    assert (done.code, done.out) == (0, f"{len(entries)} entries written to history.jsonl.\n")
    assert list(load(tmp_path / "history.jsonl")) == entries
    assert run("verify", "history.jsonl").code == 0


def test_a_history_is_exported_to_standard_output_without_a_file(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    task_in(client, "completed")
    done = run("history", "export")
    (tmp_path / "copy").write_text(done.out)
    assert list(load(tmp_path / "copy")) == client.all_history()
    rest = run("history", "export", "--after", "2").out.splitlines()
    assert rest == done.out.splitlines()[2:]
    assert run("history", "export", "--json").out == done.out


def test_an_export_with_json_reports_the_number_of_entries(run: Run, client: dibs.Dibs) -> None:
    client.enqueue("resize")
    answer = run("history", "export", "h.jsonl", "--json").json
    assert answer == {"success": True, "file": "h.jsonl", "entries": 1}


def test_a_file_that_cannot_be_written_is_refused(run: Run, client: dibs.Dibs) -> None:
    done = run("history", "export", "nowhere/history.jsonl")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: Cannot write nowhere/history.jsonl: ")
    assert done.err.startswith("error: Cannot write nowhere/history.jsonl")


@pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")
def test_a_file_with_a_history_is_for_its_owner_only(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    """The history has the errors of all tasks."""
    task_in(client, "failed")
    before = os.umask(0)
    try:
        assert run("history", "export", "exported.jsonl").code == 0
        dump(client.all_history(), tmp_path / "dumped.jsonl")
    finally:
        os.umask(before)
    files = [tmp_path / name for name in ("exported.jsonl", "dumped.jsonl")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
