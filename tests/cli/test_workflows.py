"""`dibs workflows`: starts, draws, cancels and retries workflows, for people and for scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import dibs
from tests.cli.running import Run
from tests.helpers.terminal import Terminal

ORDER = {
    "name": "order",
    "steps": [
        {"task_type": "fetch", "params": {"order": 7}},
        {"task_type": "render", "params": {"page": 1}, "after": ["fetch"]},
        {"task_type": "render", "params": {"page": 2}, "after": ["fetch"], "max_attempts": 1},
        {"task_type": "merge", "after": ["render", "render-2"]},
    ],
    "finalizer": {"task_type": "report", "queue": "slow"},
}


def started(client: dibs.Dibs, name: str = "order") -> dibs.Workflow:
    """A diamond with a finalizer."""
    with client.workflow(name) as flow:
        fetched = flow.step("fetch")
        flow.step("merge", after=[flow.step("render", after=fetched), flow.step("render", after=fetched)])
        flow.finalize("report")
    assert flow.stored is not None
    return flow.stored


def finish(client: dibs.Dibs, type: str, error: str | None = None) -> int:
    """One step of this type ends."""
    claim = client.claim("worker-1", types=[type])
    assert claim is not None
    if error is None:
        client.complete(claim)
    else:
        client.fail(claim, error, permanent=True)
    return claim.task_id


def finish_all(client: dibs.Dibs) -> None:
    """Everything that can be claimed is completed, and what is due is finalized."""
    while claims := client.claim_many("worker-1", 100):
        client.finish([(claim, dibs.Completed()) for claim in claims])
        client.upkeep()


def graph_of(out: str) -> list[str]:
    """The lines of the drawing, without ids and times."""
    lines = out.partition("\n\n")[2].splitlines()
    return [re.sub(r" +\d+ +(\d/\d).*", r" \1", line).rstrip() for line in lines[1:]]


def test_a_workflow_is_started_from_a_file_and_from_standard_input(run: Run, client: dibs.Dibs, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    done = run("workflows", "start", "order.json")
    assert done.code == 0
    assert re.fullmatch(r"Workflow \d+ \(order\) is running, with 4 steps\.\n", done.out)
    answer = run("workflows", "start", "-", "--json", stdin=json.dumps(ORDER | {"deadline_seconds": 60})).json
    assert (answer["success"], answer["deduplicated"]) == (True, False)
    workflow = client.get_workflow(answer["workflow"]["id"])
    assert workflow is not None
    assert (workflow.steps, workflow.state, sorted(workflow.queues)) == (4, "running", ["default", "slow"])
    assert workflow.deadline is not None
    names = {step.task_id: step.name for step in client.steps(workflow.id)}
    assert {step.name: [names[each] for each in step.after] for step in client.steps(workflow.id)} == {
        "fetch": [],
        "render": ["fetch"],
        "render-2": ["fetch"],
        "merge": ["render", "render-2"],
        "(finalizer)": [],
    }
    [second] = [step for step in client.steps(workflow.id) if step.name == "render-2"]
    task = client.get(second.task_id)
    assert task is not None
    assert (task.params, task.max_attempts) == ({"page": 2}, 1)


def test_the_same_key_starts_nothing_twice(run: Run, client: dibs.Dibs) -> None:
    keyed = ORDER | {"idempotency_key": "order-7"}
    first = run("workflows", "start", "-", "--json", stdin=json.dumps(keyed)).json["workflow"]
    again = run("workflows", "start", "-", stdin=json.dumps(keyed))
    assert again.out.endswith("It already existed with this key.\n")
    assert [each.id for each in client.list_workflows()] == [first["id"]]
    other = run("workflows", "start", "-", "--json", stdin=json.dumps(keyed | {"on_failure": "continue"}))
    assert (other.code, other.json["code"]) == (1, "key_conflict")


def test_a_sub_workflow_is_started_with_its_outer_workflow(run: Run, client: dibs.Dibs) -> None:
    inner = {"workflow": {"name": "pages", "steps": [{"task_type": "render"}, {"task_type": "render"}]}}
    whole = {"name": "book", "steps": [{"task_type": "fetch"}, inner | {"after": ["fetch"]}]}
    workflow = run("workflows", "start", "-", "--json", stdin=json.dumps(whole)).json["workflow"]
    finish(client, "fetch")
    shown = run("workflows", "show", str(workflow["id"])).out
    assert re.search(r"^● +pages +\d+ .* workflow \d+$", shown, re.MULTILINE)
    assert re.search(r"^ {4}◎  render +\d+ +0/3$", shown, re.MULTILINE)
    assert re.search(r"^ {4}◎  render-2 +\d+ +0/3$", shown, re.MULTILINE)
    [row] = run("workflows", "list").out.splitlines()[1:]
    assert row.split()[2] == "book"


BOTH = {"deadline_seconds": 1, "deadline_at": "2030-01-31T08:00:00Z"}
INNER = {"name": "inner", "steps": []}


def body(*steps: dict[str, Any], **more: Any) -> str:
    return json.dumps({"name": "a", "steps": steps, **more})


def nested(levels: int) -> str:
    """A workflow with this number of nested sub-workflows."""
    return '{"name": "a", "steps": [{"workflow": ' * (levels - 1) + json.dumps(INNER) + "}]}" * (levels - 1)


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("{", "invalid_value", "not JSON"),
        ("[]", "invalid_value", "not an object"),
        (body(stpes=1), "invalid_value", "stpes"),
        (body({"task_type": 7}), "invalid_value", "steps[0].task_type"),
        (body({"task_type": "a\nb"}), "invalid_value", "one line without control characters - at `workflow.steps[0]"),
        (body({"task_type": "b", "priority": 2.5}), "invalid_value", "steps[0].priority"),
        (body({"name": "b"}), "invalid_value", "either a task_type or a workflow - at `workflow.steps[0]`"),
        (body({"task_type": "b", "after": ["c"]}), "invalid_graph", "not a step of this workflow"),
        (
            body({"task_type": "b", "after": ["c"]}, {"task_type": "c", "after": ["b"]}),
            "invalid_graph",
            "wait for each other",
        ),
        (body({"priority": 3, "workflow": INNER}), "invalid_value", "options of a task"),
        (body(finalizer={}), "invalid_value", "finalizer"),
        (body(**BOTH), "invalid_value", "not both"),
        (nested(65), "invalid_graph", "deeper than 64 levels"),
        (nested(100_000), "invalid_value", "workflow"),
    ],
)
def test_a_graph_that_could_not_run_is_refused_before_anything_is_stored(
    run: Run, client: dibs.Dibs, content: str, code: str, said: str
) -> None:
    done = run("workflows", "start", "-", "--json", stdin=content)
    assert (done.code, done.json["code"]) == (2, code)
    assert said in done.json["error"]
    assert client.list_workflows() == []


def test_a_number_without_a_fraction_is_an_integer_except_in_params(run: Run, client: dibs.Dibs) -> None:
    content = body({"task_type": "b", "priority": 2.0, "params": {"weight": 2.0}})
    workflow = run("workflows", "start", "-", "--json", stdin=content).json["workflow"]
    [step] = client.steps(workflow["id"])
    task = client.get(step.task_id)
    assert task is not None
    assert (task.priority, repr(task.params)) == (2, "{'weight': 2.0}")


def test_a_missing_file_is_wrong_usage(run: Run, client: dibs.Dibs) -> None:
    done = run("workflows", "start", "missing.json")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "error: Cannot read missing.json: No such file or directory.",
    )


def test_a_list_shows_the_newest_first_and_filters(run: Run, client: dibs.Dibs) -> None:
    first, second, other = started(client), started(client), started(client, "mail")
    client.cancel_workflow(first.id)
    client.upkeep()
    listed = run("workflows", "list", "--json").json
    assert [each["id"] for each in listed["workflows"]] == [other.id, second.id, first.id]
    assert listed["next_cursor"] is None
    for options, ids in (
        (["--state", "cancelled"], [first.id]),
        (["--name", "order"], [second.id, first.id]),
        (["--cursor", str(other.id)], [second.id, first.id]),
    ):
        found = run("workflows", "list", *options, "--json").json["workflows"]
        assert [each["id"] for each in found] == ids
    limited = run("workflows", "list", "--limit", "1")
    title, row = limited.out.splitlines()
    assert title.split()[:5] == ["id", "state", "workflow", "ended", "failed"]
    assert row.split()[:5] == [str(other.id), "running", "mail", "0/4", "0"]
    assert limited.err == f"1 workflow shown. For more use --limit, or --cursor {other.id}.\n"
    assert run("workflows", "list", "--state", "odd").code == 2


def test_an_empty_list_is_a_note_as_text_and_an_empty_array_as_json(run: Run, client: dibs.Dibs) -> None:
    done = run("workflows", "list")
    assert (done.code, done.out, done.err) == (0, "", "No workflows.\n")
    assert run("workflows", "list", "--json").json == {"workflows": [], "next_cursor": None}


def test_a_workflow_is_drawn_with_the_states_of_its_steps(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish(client, "fetch")
    finish(client, "render")
    claim = client.claim("worker-2", types=["render"])
    assert claim is not None
    shown = run("workflows", "show", str(workflow.id)).out
    assert graph_of(shown) == [
        "✓    fetch 1/3",
        "├─╮",
        "✓ │  render 1/3",
        "│ ●  render-2 0/3",
        "├─╯",
        "○    merge 0/3",
        "",
        "○    report (finalizer) 0/3",
    ]
    lines = shown.splitlines()
    assert {
        f"workflow:    {workflow.id} order",
        "state:       running",
        "progress:    ██████████░░░░░░░░░░ 50 % (2 of 4 steps ended)",
        "steps:       ✓ 2 completed  ● 1 claimed  ○ 2 blocked",
        "finalizing:  not claimed yet",
        "next:        recheck later (processing)",
    } <= set(lines)
    assert any(line.endswith("on worker-2") for line in lines)


def test_a_failure_is_shown_with_its_error_and_what_it_stopped(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish(client, "fetch")
    finish(client, "render", "no such page")
    client.upkeep()
    shown = run("workflows", "show", str(workflow.id)).out
    assert "state:       failed" in shown.splitlines()
    assert re.search(r"^✗ │  render .* no such page$", shown, re.MULTILINE)
    assert re.search(r"^⊘    merge ", shown, re.MULTILINE)
    assert "finalized:   under token 1" in shown.splitlines()


def test_a_claimed_finalization_is_shown_with_its_holder_and_lease(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish(client, "fetch")
    assert client.claim_finalization(workflow.id, "processor-1").claimed
    shown = run("workflows", "show", str(workflow.id)).out
    assert re.search(r"^finalizing: +by processor-1 under token 1, until .* UTC \(in \d+ s\)$", shown, re.MULTILINE)


def test_a_fan_out_is_folded_unless_all_steps_are_requested(run: Run, client: dibs.Dibs) -> None:
    with client.workflow("many") as flow:
        flow.step("merge", after=[flow.step("render") for _ in range(30)])
    for _ in range(3):
        finish(client, "render")
    assert graph_of(run("workflows", "show", str(flow.id)).out) == [
        "◎  render ×30  ✓ 3  ◎ 27",  # noqa: RUF001
        "○  merge 0/3",
    ]
    assert len(graph_of(run("workflows", "show", str(flow.id), "--unfold").out)) >= 31


def test_steps_added_by_a_step_are_drawn_after_it(run: Run, client: dibs.Dibs) -> None:
    with client.workflow("grown") as flow:
        flow.step("merge", after=flow.step("split"))
    claim = client.claim("worker-1", types=["split"])
    assert claim is not None
    parts = [dibs.NewStep(name=name, task=dibs.NewTask(name)) for name in ("left", "right")]
    client.finish([(claim, dibs.Completed(steps=parts))])
    assert graph_of(run("workflows", "show", str(flow.id)).out) == [
        "✓    split 1/3",
        "├─╮",
        "◎ │  split/left 0/3",
        "│ ◎  split/right 0/3",
        "├─╯",
        "○    merge 0/3",
    ]


def test_an_ascii_pipe_gets_ascii_symbols(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    done = run("workflows", "show", str(workflow.id), PYTHONIOENCODING="ascii")
    assert (done.code, done.out.isascii(), "\\" in done.out) == (0, True, False)
    assert graph_of(done.out)[:2] == ["o    fetch 0/3", "+-+"]


def test_a_workflow_is_shown_as_json_with_steps_and_context(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    shown: dict[str, Any] = run("workflows", "show", str(workflow.id), "--json").json
    assert (shown["workflow"]["id"], shown["workflow"]["status"]) == (workflow.id, "running")
    assert [step["name"] for step in shown["steps"]] == ["fetch", "render", "render-2", "merge", "(finalizer)"]
    assert shown["context"]["recommended_action"] == "recheck_later"


def test_watch_in_a_terminal_follows_the_workflow_to_its_end_and_fits_the_screen(url: str, client: dibs.Dibs) -> None:
    workflow = started(client)
    with Terminal("workflows", "show", str(workflow.id), "--watch", "--url", url) as terminal:
        terminal.shows(r"◎ +fetch")
        finish(client, "fetch")
        terminal.shows(r"✓ +fetch")
        assert terminal.colour_of("✓") == "green"
        finish_all(client)
        terminal.shows(r"state: +completed")
        assert terminal.ends() == 0


def test_a_drawing_in_a_terminal_is_coloured_and_fits_the_width(url: str, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish(client, "fetch")
    finish(client, "render", "x" * 300)
    with Terminal("workflows", "show", str(workflow.id), "--url", url, columns=60) as terminal:
        terminal.shows(r"report \(finalizer\)")
        assert terminal.ends() == 0
        [failed] = [line for line in terminal.lines if line.startswith("✗ │  render")]
        assert failed.endswith("…")
        assert terminal.colour_of("✗ │") == "red"


def test_tasks_show_names_the_workflow_of_a_step(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    [fetch, *_] = client.steps(workflow.id)
    assert f"workflow:    {workflow.id}" in run("tasks", "show", str(fetch.task_id)).out.splitlines()


def test_watch_in_a_pipe_waits_for_the_end_and_prints_once(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish_all(client)
    done = run("workflows", "show", str(workflow.id), "--watch", "--json")
    assert done.json["workflow"]["status"] == "completed"


def test_a_cancelled_workflow_continues_where_it_stopped_when_it_is_retried(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    finish(client, "fetch")
    assert run("workflows", "cancel", str(workflow.id)).out.startswith(f"Workflow {workflow.id} (order) is ")
    client.upkeep()
    found = client.get_workflow(workflow.id)
    assert found is not None
    assert found.state == "cancelled"
    retried = run("workflows", "retry", str(workflow.id))
    assert (retried.code, retried.out) == (0, f"Workflow {workflow.id} (order) is running.\n")
    finish_all(client)
    assert [step.attempts for step in client.steps(workflow.id)] == [1] * 5
    assert run("workflows", "show", str(workflow.id), "--json").json["workflow"]["status"] == "completed"


def test_a_command_that_does_not_fit_the_state_is_refused(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    early = run("workflows", "retry", str(workflow.id), "--json")
    assert (early.code, early.json["code"]) == (1, "workflow_state")
    finish_all(client)
    late = run("workflows", "cancel", str(workflow.id), "--json")
    assert (late.code, late.json["code"]) == (1, "workflow_state")


def test_the_finalization_claims_are_listed_with_their_replies(run: Run, client: dibs.Dibs) -> None:
    workflow = started(client)
    nobody = run("workflows", "attempts", str(workflow.id))
    assert (nobody.code, nobody.err) == (0, f"Workflow {workflow.id} has no finalization attempts yet.\n")
    finish(client, "fetch")
    client.claim_finalization(workflow.id, "processor-1")
    client.claim_finalization(workflow.id, "processor-2")
    first, second = run("workflows", "attempts", str(workflow.id)).out.splitlines()[1:]
    assert first.split()[2:5] == ["processor-1", "claimed", "1"]
    assert second.split()[2:4] == ["processor-2", "already_claimed"]
    told = run("workflows", "attempts", str(workflow.id), "--json").json["attempts"]
    assert [(each["processor_id"], each["claimed"], each["already_claimed_by"]) for each in told] == [
        ("processor-1", True, None),
        ("processor-2", False, "processor-1"),
    ]


@pytest.mark.parametrize("verb", ["show", "cancel", "retry", "attempts"])
def test_every_command_reports_an_unknown_workflow(run: Run, client: dibs.Dibs, verb: str) -> None:
    done = run("workflows", verb, "999999")
    assert (done.code, done.err.splitlines()[0]) == (1, "error: There is no workflow 999999.")
    assert run("workflows", verb, "999999", "--json").json["code"] == "workflow_not_found"
