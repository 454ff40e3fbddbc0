"""Each command as a process has the same output as inside the test process, where the other tests run it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import dibs
from tests.cli.running import PROCESSES, run_dibs_here, run_dibs_process
from tests.cli.test_fast_start import commands

COMMANDS = (
    "dead discard --all --yes",
    "dead list",
    "dead redrive",
    "doctor",
    "enqueue resize {}",
    "groups list default",
    "groups set default acme --weight 3",
    "history export",
    "keys create laptop --scopes read",
    "keys list",
    "keys revoke nosuchkey",
    "limits list",
    "limits remove stripe",
    "limits set stripe --max 5",
    "limits show stripe",
    "migrate",
    "queues list",
    "queues pause default",
    "queues resume default",
    "queues set default --fair",
    "queues show default",
    "retention changes",
    "retention list",
    "retention remove completed",
    "retention set completed 1h",
    "schedules add hourly @hourly resize",
    "schedules disable nightly",
    "schedules enable nightly",
    "schedules list",
    "schedules preview @hourly",
    "schedules remove nightly",
    "schedules run nightly",
    "schedules show nightly",
    "tasks cancel 1",
    "tasks claim --worker worker-1",
    "tasks complete 1 --token 1 --worker worker-1",
    "tasks explain 1",
    "tasks fail 1 --token 1 --worker worker-1 --error broken",
    "tasks history 1",
    "tasks list",
    "tasks logs 1",
    "tasks peek",
    "tasks release 1 --token 1 --worker worker-1",
    "tasks retry 1",
    "tasks set 1 --priority 5",
    "tasks show 1",
    "types list",
    "types pause resize",
    "types register type.json",
    "types resume resize",
    "types set resize --group-by image",
    "types show resize",
    "upkeep",
    "verify",
    "workers",
    "workflows attempts 1",
    "workflows cancel 1",
    "workflows list",
    "workflows retry 1",
    "workflows show 1",
    "workflows start graph.json",
)

GRAPH = {"name": "order", "steps": [{"name": "fetch", "task_type": "fetch"}]}
CHANGES = re.compile(
    r'"\d{4}-\d\d-\d\dT[^"]*"|dibs_\w+|:run-\w+|"id": "\w+"|"seconds": [\d.]+|\d+(\.\d+)? (ms|s|B|kB|MB)\b|\d+ bytes'
)
"""What differs between two runs: times, keys, durations, sizes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store in it: a task that failed, a workflow, a schedule."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "graph.json").write_text(json.dumps(GRAPH))
    (tmp_path / "first" / "type.json").write_text(json.dumps({"name": "mail"}))
    with dibs.Dibs(f"sqlite:///{tmp_path}/first/dibs.db") as app:
        app.enqueue("resize", {"picture": 7}, max_attempts=1)
        claim = app.claim("worker-1")
        assert claim is not None
        app.fail(claim, ValueError("no picture"))
        step = dibs.NewStep(name="fetch", task=dibs.NewTask("fetch"))
        app.start_workflow(dibs.NewWorkflow(name="order", steps=[step]))
        app.set_schedule("nightly", "0 3 * * *", "resize")
        app.register_type("resize", defaults={"width": 200})
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_as_a_process_gives_the_same_output_as_in_this_process(command: str, folder: Path) -> None:
    here = run_dibs_here(*command.split(), "--json", cwd=folder / "first")
    there = run_dibs_process(*command.split(), "--json", cwd=folder / "second")
    assert (there.code, CHANGES.sub("…", there.out)) == (here.code, CHANGES.sub("…", here.out))
    assert CHANGES.sub("…", there.err) == CHANGES.sub("…", here.err)


def test_every_command_is_tested_as_a_process_here_or_in_another_file() -> None:
    leaves = {" ".join(each) for each in commands() if each}
    groups = {each.split()[0] for each in leaves if " " in each}
    run = {name for name in leaves - groups if any(f"{each} ".startswith(f"{name} ") for each in COMMANDS)}
    assert leaves - groups - PROCESSES == run
