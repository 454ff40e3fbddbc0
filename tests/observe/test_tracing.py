"""One trace: the enqueue and every attempt, in threads, event loops, child processes and behind a server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dibs
from tests.cli.running import environment
from tests.helpers.processes import ROOT
from tests.helpers.servers import server_process
from tests.helpers.starting import start

Span = dict[str, Any]
on_sqlite = pytest.mark.parametrize("engine", ["sqlite"])


class Traced:
    """Programs that trace (see tests/helpers/traced.py), and what they traced."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._file = folder / "spans.jsonl"

    def run(self, *words: str, by: str = "sdk", url: str | None = None) -> str:
        """Run one to its end; its log."""
        env = environment(url or self.url, TRACED_TO=str(self._file), TRACED_BY=by)
        with tempfile.TemporaryFile("w+") as log:
            with start("tests.helpers.traced", *words, stdout=log, stderr=log, cwd=ROOT, env=env) as program:
                code = program.wait(60)
            log.seek(0)
            said = log.read()
            assert code == 0, said
            return said

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [msgspec.json.decode(line) for line in self._file.read_bytes().splitlines()]

    def named(self, name: str) -> list[Span]:
        """Those of this name, in the order in which they ended."""
        return [span for span in self.spans if span["name"] == name]

    def one(self, name: str) -> Span:
        """The only one of this name."""
        [span] = self.named(name)
        return span

    def check_one_trace(self) -> None:
        """All spans are of one trace, and all but the first have their parent in it."""
        assert len({span["trace"] for span in self.spans}) == 1
        known = {span["id"] for span in self.spans}
        assert [span["name"] for span in self.spans if span["parent"] not in known] == ["request"]


@pytest.fixture
def traced(url: str, tmp_path: Path) -> Traced:
    return Traced(url, tmp_path)


def test_an_enqueue_over_http_and_its_attempt_in_a_worker_are_one_trace(traced: Traced, tmp_path: Path) -> None:
    with server_process(traced.url, tmp_path, "--no-keys") as server:
        traced.run("enqueue", "greet", url=server.url)
        traced.run("work", url=server.url)
    request, enqueue = traced.one("request"), traced.one("dibs.enqueue")
    attempt, inner = traced.one("dibs.attempt"), traced.one("inner")
    assert {span["trace"] for span in traced.spans} == {request["trace"]}
    assert [span["parent"] for span in (request, enqueue, attempt, inner)] == [
        None,
        request["id"],
        enqueue["id"],
        attempt["id"],
    ]
    assert enqueue["pid"] != attempt["pid"]
    assert (enqueue["kind"], attempt["kind"]) == ("PRODUCER", "CONSUMER")
    with dibs.Dibs(traced.url) as app:
        [task] = app.list_tasks()
    assert str(task.trace).startswith(f"00-{enqueue['trace']}-{enqueue['id']}-")
    assert enqueue["attributes"] == {
        "messaging.system": "dibs",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": str(task.id),
        "dibs.task.type": "greet",
        "dibs.deduplicated": False,
    }
    assert attempt["attributes"] == {
        "messaging.system": "dibs",
        "messaging.operation.name": "attempt",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": str(task.id),
        "messaging.client.id": task.worker_id,
        "dibs.task.type": "greet",
        "dibs.task.attempt": 1,
        "dibs.task.token": 1,
        "dibs.outcome": "completed",
    }


def test_retries_are_spans_of_the_same_trace(traced: Traced) -> None:
    traced.run("enqueue", "stumble")
    log = traced.run("work")
    traced.check_one_trace()
    attempts = traced.named("dibs.attempt")
    assert {attempt["parent"] for attempt in attempts} == {traced.one("dibs.enqueue")["id"]}
    assert [attempt["attributes"]["dibs.task.attempt"] for attempt in attempts] == [1, 2, 3]
    assert [attempt["status"] for attempt in attempts] == ["ERROR", "ERROR", "UNSET"]
    assert [attempt["events"] for attempt in attempts] == [["exception"], ["exception"], []]
    assert attempts[0]["attributes"]["error.type"] == "ValueError"
    told = [entry for line in log.splitlines() if (entry := msgspec.json.decode(line)).get("event") == "task.failed"]
    assert [entry["trace_id"] for entry in told] == [attempts[0]["trace"]] * 2


@on_sqlite
@pytest.mark.parametrize("which", ["greet", "greet_async", "greet_apart"])
@pytest.mark.parametrize("by", ["sdk", "batches"])
def test_a_handler_runs_inside_the_span_of_its_attempt_in_every_lane(traced: Traced, which: str, by: str) -> None:
    traced.run("enqueue", which)
    traced.run("work", by=by)
    traced.check_one_trace()
    inner, attempt = traced.one("inner"), traced.one("dibs.attempt")
    assert inner["parent"] == attempt["id"]
    assert (inner["pid"] != attempt["pid"]) == (which == "greet_apart")


@on_sqlite
def test_the_attempt_of_a_killed_child_process_has_a_span(traced: Traced) -> None:
    traced.run("enqueue", "hang_apart")
    traced.run("work")
    traced.check_one_trace()
    attempt = traced.one("dibs.attempt")
    assert attempt["attributes"]["error.type"] == "TimedOut"
    assert attempt["attributes"]["dibs.outcome"] == "failed"


@on_sqlite
def test_a_task_enqueued_by_a_handler_belongs_to_the_span_of_its_attempt(traced: Traced) -> None:
    traced.run("enqueue", "pass_on")
    traced.run("work")
    traced.check_one_trace()
    first, second = traced.named("dibs.attempt")
    assert traced.named("dibs.enqueue")[1]["parent"] in (first["id"], second["id"])
    assert len(traced.named("inner")) == 1


@on_sqlite
def test_steps_of_a_workflow_started_by_an_attempt_belong_to_its_span(traced: Traced) -> None:
    traced.run("enqueue", "start_flow")
    traced.run("work")
    traced.check_one_trace()
    types = sorted(attempt["attributes"]["dibs.task.type"] for attempt in traced.named("dibs.attempt"))
    assert types == ["fan_out", "greet", "greet", "start_flow"]
    [starting] = [span for span in traced.named("dibs.enqueue") if "dibs.workflow.name" in span["attributes"]]
    [fan_out] = [span for span in traced.named("dibs.attempt") if span["attributes"]["dibs.task.type"] == "fan_out"]
    greets = [span for span in traced.named("dibs.attempt") if span["attributes"]["dibs.task.type"] == "greet"]
    assert {span["parent"] for span in greets} == {starting["id"], fan_out["id"]}


@on_sqlite
def test_steps_added_by_a_child_process_belong_to_the_span_of_its_attempt(traced: Traced) -> None:
    with dibs.Dibs(traced.url) as app, app.workflow("apart") as flow:
        flow.step("fan_out_apart")
    traced.run("work")
    fan_out, greet = traced.named("dibs.attempt")
    assert (greet["trace"], greet["parent"]) == (fan_out["trace"], fan_out["id"])


@on_sqlite
def test_each_task_of_a_batch_has_a_span_to_which_its_steps_belong(traced: Traced) -> None:
    with dibs.Dibs(traced.url) as app, app.workflow("flow") as flow:
        for _ in range(2):
            flow.step("greet_all")
    traced.run("work")
    attempts = traced.named("dibs.attempt")
    steps = {span["id"] for span in attempts if span["attributes"]["dibs.task.type"] == "greet_all"}
    greets = {span["parent"] for span in attempts if span["attributes"]["dibs.task.type"] == "greet"}
    assert (len(steps), greets) == (2, steps)


@on_sqlite
def test_an_async_client_traces_as_well(traced: Traced) -> None:
    traced.run("enqueue_async", "greet")
    traced.run("work")
    traced.check_one_trace()
    enqueued = {span["id"] for span in traced.named("dibs.enqueue")}
    assert len(enqueued) == 2
    assert {span["parent"] for span in traced.named("dibs.attempt")} == enqueued


@on_sqlite
def test_an_attempt_of_an_untraced_task_begins_a_trace(traced: Traced) -> None:
    traced.run("enqueue", "greet", by="nothing")
    traced.run("work")
    assert traced.one("dibs.attempt")["parent"] is None
    assert traced.one("inner")["parent"] == traced.one("dibs.attempt")["id"]


@on_sqlite
@pytest.mark.parametrize("by", ["nothing", "api"])
def test_without_opentelemetry_or_a_provider_everything_else_works(traced: Traced, by: str) -> None:
    for which in ("greet", "greet_async", "greet_apart", "start_flow", "stumble"):
        traced.run("enqueue", which, by=by)
    traced.run("work", by=by)
    with dibs.Dibs(traced.url) as app:
        tasks = app.list_tasks()
    assert {(task.state, task.trace) for task in tasks} == {(dibs.State.COMPLETED, None)}
    assert len(tasks) == 8


@on_sqlite
def test_a_worker_without_a_provider_passes_the_trace_on(traced: Traced) -> None:
    traced.run("enqueue", "pass_on")
    traced.run("work", by="api")
    with dibs.Dibs(traced.url) as app:
        traces = {task.type: task.trace for task in app.list_tasks()}
    assert traces["greet"] == traces["pass_on"]
    assert traced.one("dibs.enqueue")["trace"] in str(traces["greet"])


@on_sqlite
def test_a_log_entry_inside_an_attempt_has_the_trace_id(traced: Traced) -> None:
    traced.run("enqueue", "speak")
    log = traced.run("work")
    [said] = [entry for line in log.splitlines() if (entry := msgspec.json.decode(line))["logger"] == "dibs.task"]
    attempt = traced.one("dibs.attempt")
    assert (said["trace_id"], said["span_id"]) == (attempt["trace"], attempt["id"])


def test_an_enqueue_that_is_refused_ends_its_span_with_the_error(tmp_path: Path) -> None:
    program = (
        "import dibs, tests.helpers.traced as traced\n"
        "try: traced.app.enqueue_many([dibs.NewTask('a', {'n': 1}, key='k'), dibs.NewTask('a', {'n': 2}, key='k')])\n"
        "except dibs.KeyConflict: pass\n"
    )
    traced = Traced(f"sqlite:///{tmp_path}/dibs.db", tmp_path)
    env = environment(traced.url, TRACED_TO=str(tmp_path / "spans.jsonl"))
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, check=True, timeout=60)
    span = traced.one("dibs.enqueue")
    assert (span["status"], span["events"]) == ("ERROR", ["exception"])
    assert span["attributes"]["messaging.batch.message_count"] == 2
