"""Metrics of several processes: added up by the process that is scraped, and never smaller after a process dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dibs.observe import metrics, sharing
from dibs.observe.sharing import SharedCounts
from tests.helpers.counts import watch

pytestmark = pytest.mark.usefixtures("new_counts")

CHILD = """
import os, signal
from dibs.observe import metrics, sharing
metrics.claim_attempts.add(times=int(os.environ["TIMES"]))
metrics.completed.add("a queue", "a type")
with sharing.shared():
    assert sharing.COUNTS_FILE not in os.environ
    told = sharing.total()["task_claim_attempts_total"][()][0]
    print(int(told), flush=True)
    if os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def child(file: Path, times: int, **more: str) -> int:
    """A process that counts so often, with this file; what it said of all."""
    env = {**os.environ, sharing.COUNTS_FILE: str(file), "TIMES": str(times), **more}
    done = subprocess.run([sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return int(done.stdout)


def written(folder: Path) -> int:
    return int(sharing.read_folder(folder)["task_claim_attempts_total"][()][0])


def test_the_metrics_of_one_process_contain_those_of_all_processes(tmp_path: Path) -> None:
    assert child(tmp_path / "1.json", 3) == 3
    assert child(tmp_path / "2.json", 4) == 7
    assert written(tmp_path) == 7
    assert sharing.read_folder(tmp_path)["task_completed_total"]["a queue", "a type"] == [2]


def test_the_counters_of_a_restarted_process_continue(tmp_path: Path) -> None:
    assert child(tmp_path / "1.json", 3) == 3
    assert child(tmp_path / "1.json", 4) == 7
    assert written(tmp_path) == 7


@pytest.mark.skipif(sys.platform == "win32", reason="kills itself by a signal")
def test_shared_counters_survive_kill_9(tmp_path: Path) -> None:
    assert child(tmp_path / "1.json", 3, DIES="yes") == 3
    assert child(tmp_path / "2.json", 1) == 4
    assert child(tmp_path / "1.json", 1) == 5


def test_a_process_without_a_supervisor_has_only_its_own_metrics() -> None:
    assert sharing.COUNTS_FILE not in os.environ
    grown = watch("task_claim_attempts")
    with sharing.shared():
        metrics.claim_attempts.add()
        assert grown() == {"task_claim_attempts_total": 1}


def test_counters_with_other_buckets_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "2.json").write_text('{"task_claim_duration_seconds": [[[], [1, 2]]], "unheard_of": [[[], [1]]]}')
    total = SharedCounts(tmp_path / "1.json").total()
    assert total["task_claim_duration_seconds"] == metrics.claim_seconds.read()


def test_a_metrics_file_that_cannot_be_read_or_written_stops_no_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "2.json").write_text("{")
    share = SharedCounts(tmp_path / "gone" / "1.json")
    assert share.total()["task_claim_attempts_total"] == metrics.claim_attempts.read()
    share.write()
    assert sharing.read_folder(tmp_path) == {}
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "the metrics of this process cannot be shared",
        f"the metrics in {tmp_path / '2.json'} cannot be read",
    ]
