"""The benchmark: every peer can be installed and measured, errors are found, no part is overwritten."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from bench.queues import mix
from bench.queues.mix import TEXT, FirstAttempt, Mix, MixTask, expected_runs, queue_of
from bench.queues.peers import PEERS, Peer
from bench.queues.run_counts import RunCounts
from bench.queues.venvs import version_of
from bench.results import Results
from bench.tables import Line, Report
from bench.worker_report import WORKER

QUEUES = Path(__file__).parent.parent.parent / "bench" / "queues"


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: f"{peer.name}-{peer.engine}")
def test_every_peer_has_pinned_versions_and_an_adapter_for_every_measurement(peer: Peer) -> None:
    functions = _functions(QUEUES / f"{peer.module}.py")

    assert version_of(peer.venv, peer.package, (3, 11))
    assert {"work", "mix_work"} <= functions
    assert {"producer", "async_producer"} & functions
    assert {"mix_producer", "async_mix_producer"} & functions
    assert set(peer.mix.lacks) <= {"types", "queues", "scheduling"}
    assert peer.at_once != "coroutines" or "async_producer" in functions
    assert peer.source
    assert peer.lacks


def test_no_adapter_needs_dibs() -> None:
    modules = {path: _imported(path) for path in QUEUES.glob("*_queue.py") if not path.name.endswith("dibs_queue.py")}

    assert [path.name for path, names in modules.items() if "dibs" in names] == []


def test_the_latest_run_of_a_part_replaces_the_older_one_and_other_parts_stay() -> None:
    first = _report("monday", _line("drain", "SQLite", 1.0), _line("idle", "SQLite", 2.0))
    second = _report("tuesday", _line("drain", "SQLite", 3.0))

    kept = Results([]).with_run(first).with_run(second)

    assert [(run.date, [line.kind for line in run.lines]) for run in kept.runs] == [
        ("monday", ["idle"]),
        ("tuesday", ["drain"]),
    ]
    assert kept.joined(WORKER).find("drain", "SQLite", "dibs") == 3.0
    assert kept.joined(WORKER).find("idle", "SQLite", "dibs") == 2.0


def test_a_run_that_failed_gives_no_figure() -> None:
    assert _line("drain", "SQLite", 5.0, failed=True).median("per_second") is None


def test_the_benchmark_finds_a_task_that_ran_twice_or_never(tmp_path: Path) -> None:
    counts = RunCounts(tmp_path / "counts", tasks=3, seats=2)
    counts.seat(0).ran(0)
    counts.seat(1).ran(0)
    counts.seat(1).ran(2)

    with pytest.raises(RuntimeError, match="Of 3 tasks 1 never ran, and 1 ran more than once"):
        counts.check()


def test_the_benchmark_finds_a_failed_task_that_was_not_tried_again(tmp_path: Path) -> None:
    counts = RunCounts(tmp_path / "counts", tasks=2, seats=2)
    counts.seat(0).ran(0)
    counts.seat(1).ran(1)
    assert counts.seat(0).runs(1) == 1

    with pytest.raises(RuntimeError, match="Of 2 tasks 1 were not tried again"):
        counts.check([1, 2])


def test_the_mix_has_fifty_types_in_ten_queues_of_which_some_fail_once_and_some_are_scheduled() -> None:
    tasks = [MixTask(number) for number in range(60_000)]

    assert len({task.type for task in tasks}) == 50
    assert {task.queue for task in tasks} == {queue_of(task.type) for task in tasks} == set(mix.QUEUES)
    assert sum(task.fails for task in tasks) / len(tasks) == pytest.approx(0.05, rel=0.05)
    assert sum(task.delay > 0 for task in tasks) / len(tasks) == pytest.approx(0.1, rel=0.05)
    assert len({(task.type, task.delay, task.fails) for task in tasks}) == 200
    assert 2000 < len(json.dumps(tasks[0].params)) < 2100


def test_a_first_attempt_of_the_mix_fails_and_the_second_succeeds_in_another_process(tmp_path: Path) -> None:
    failing = next(number for number in range(1000) if MixTask(number).fails)
    counts = RunCounts(tmp_path / "counts", tasks=1000, seats=2)

    with pytest.raises(FirstAttempt):
        Mix(counts.seat(0)).run(failing, TEXT)
    Mix(counts.seat(1)).run(failing, TEXT)

    assert counts.runs == expected_runs(1000)[failing] == 2


def _line(kind: str, engine: str, rate: float, *, failed: bool = False) -> Line:
    return Line(kind, kind, engine, "dibs", 1, "def", {"per_second": [rate]}, ["it failed"] if failed else [])


def _report(date: str, *lines: Line) -> Report:
    return Report(date, 1.0, 1, "1 task", True, "a machine", {}, "a command", 0.0, list(lines))


def _functions(path: Path) -> set[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def _imported(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {str(each.module).partition(".")[0] for each in tree if isinstance(each, ast.ImportFrom)}
