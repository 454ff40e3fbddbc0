"""Consistency of workflows: between any two operations the counters of a workflow agree with its steps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.helpers.databases import run_sql

OPEN = ("running", "finalizing")
LEFT = ("pending", "scheduled", "claimed")
ENDED = ("completed", "failed", "cancelled")

_WORKFLOWS = """
    SELECT id, root_id, step_of, state, steps, active, ended, failures, stopping, due_at, finished_at, finalizer_id,
           finalization_by, queues
    FROM dibs_workflows ORDER BY id"""
_STEPS = """
    SELECT step.task_id, step.workflow_id, step.name, step.kind, step.waits, step.passed, task.state, task.workflow_id,
           task.queue
    FROM dibs_steps AS step LEFT JOIN dibs_tasks AS task ON task.id = step.task_id ORDER BY step.task_id"""
_EDGES = "SELECT parent_id, child_id FROM dibs_edges"
_TASKS = "SELECT id FROM dibs_tasks WHERE workflow_id IS NOT NULL"

_WORKFLOW = (
    "id", "root_id", "step_of", "state", "steps", "active", "ended", "failures", "stopping", "due_at", "finished_at",
    "finalizer_id", "finalization_by", "queues",
)  # fmt: skip
_STEP = ("id", "workflow_id", "name", "kind", "waits", "passed", "state", "of_task", "queue")


class Books:
    """All workflows of a database, read at once, with everything that is wrong with them."""

    def __init__(self, url: str) -> None:
        self.workflows = {row[0]: dict(zip(_WORKFLOW, row, strict=True)) for row in run_sql(url, _WORKFLOWS)}
        self.steps = {row[0]: dict(zip(_STEP, row, strict=True)) for row in run_sql(url, _STEPS)}
        self.of: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        for step in self.steps.values():
            self.of[step["workflow_id"]].append(step)
        self.parents: defaultdict[int, list[int]] = defaultdict(list)
        for parent, child in run_sql(url, _EDGES):
            self.parents[child].append(parent)
        self.tasks = {row[0] for row in run_sql(url, _TASKS)}
        self._forget_pruned()

    def _forget_pruned(self) -> None:
        """Leave out workflows that are being pruned: their counters are no longer right, and they cannot continue."""
        pruned = {each["id"] for each in self.workflows.values() if each["stopping"] == "pruned"}
        gone = {each["id"] for each in self.workflows.values() if (each["root_id"] or each["id"]) in pruned}
        self.tasks -= {task_id for task_id, step in self.steps.items() if step["workflow_id"] in gone}
        self.steps = {task_id: step for task_id, step in self.steps.items() if step["workflow_id"] not in gone}
        self.workflows = {each: row for each, row in self.workflows.items() if each not in gone}

    def wrong(self) -> list[str]:
        """Everything that does not add up."""
        found = [f"task {task_id} of a workflow is no step" for task_id in sorted(self.tasks - self.steps.keys())]
        for workflow in self.workflows.values():
            found += [f"workflow {workflow['id']}: {what}" for what in self._of_workflow(workflow)]
        for step in self.steps.values():
            found += [f"step {step['id']} ({step['name']}): {what}" for what in self._of_step(step)]
        return found

    def _of_workflow(self, workflow: dict[str, Any]) -> Iterator[str]:
        steps = [step for step in self.of[workflow["id"]] if step["kind"] != "finalizer"]
        counted = {
            "steps": len(steps),
            "active": sum(step["passed"] is None and step["waits"] == 0 for step in steps),
            "ended": sum(step["passed"] is not None for step in steps),
            "failures": sum(step["passed"] is not None and not step["passed"] for step in steps),
        }
        for name, count in counted.items():
            if workflow[name] != count:
                yield f"{name} is {workflow[name]}, and {count} by its steps"
        yield from self._of_its_end(workflow, steps)
        yield from self._of_its_finalizer(workflow)
        foreign = {step["queue"] for step in self._below(workflow["id"])} - set(_decoded(workflow["queues"]))
        if foreign:
            yield f"its tasks are also in {sorted(foreign)}"

    def _of_its_end(self, workflow: dict[str, Any], steps: list[dict[str, Any]]) -> Iterator[str]:
        left = [step["id"] for step in steps if step["state"] in LEFT]
        if workflow["state"] in ENDED:
            if left:
                yield f"it is {workflow['state']}, and {left} are not done"
            if any(step["passed"] is None for step in steps):
                yield f"it is {workflow['state']} with steps that have not ended"
            if workflow["due_at"] is not None or workflow["finalization_by"] is not None:
                yield f"it is {workflow['state']}, and to be finalized"
        if (workflow["finished_at"] is not None) != (workflow["state"] in ENDED):
            yield f"it is {workflow['state']}, finished at {workflow['finished_at']}"
        begun = self._begun(workflow)
        due = workflow["state"] == "running" and not left and begun
        if due != (workflow["due_at"] is not None):
            yield f"it is {workflow['state']}, {left} run, due at {workflow['due_at']}"
        if workflow["state"] == "completed" and workflow["failures"]:
            yield "it is completed in spite of failures"
        if not begun and workflow["state"] in OPEN and (left or workflow["active"]):
            yield "it runs before its step"

    def _begun(self, workflow: dict[str, Any]) -> bool:
        return workflow["step_of"] is None or self.steps[workflow["step_of"]]["state"] == "claimed"

    def _has_begun(self, workflow: dict[str, Any]) -> bool:
        """Also of one that has ended since: its first steps wait for nothing any more."""
        steps = [step for step in self.of[workflow["id"]] if step["kind"] != "finalizer"]
        return self._begun(workflow) or any(step["waits"] == 0 for step in steps)

    def _of_its_finalizer(self, workflow: dict[str, Any]) -> Iterator[str]:
        finalizer = self.steps.get(workflow["finalizer_id"])
        if (workflow["finalizer_id"] is None) != (finalizer is None):
            yield "its finalizer is gone"
        if finalizer is None:
            return
        runs = finalizer["state"] in LEFT
        if runs != (workflow["state"] == "finalizing"):
            yield f"it is {workflow['state']}, its finalizer {finalizer['state']}"
        if (finalizer["state"] == "completed") != (workflow["state"] == "completed"):
            yield f"it is {workflow['state']}, its finalizer {finalizer['state']}"

    def _of_step(self, step: dict[str, Any]) -> Iterator[str]:
        if step["state"] is None:
            yield "its task is gone"
            return
        if step["of_task"] != step["workflow_id"]:
            yield f"its task belongs to workflow {step['of_task']}"
        if step["kind"] != "finalizer":
            yield from self._of_its_waits(step)
        if (step["passed"] is not None) != (step["state"] in ENDED):
            yield f"it is {step['state']}, passed {step['passed']}"
        if step["state"] == "completed" and not step["passed"]:
            yield "it is completed and has not passed"
        if (step["state"] == "blocked") != (step["waits"] > 0) and step["passed"] is None:
            yield f"it is {step['state']}, and waits for {step['waits']}"
        if step["kind"] == "workflow":
            yield from self._of_sub_workflow(step)

    def _of_its_waits(self, step: dict[str, Any]) -> Iterator[str]:
        parents = self.parents[step["id"]]
        if missing := [parent for parent in parents if parent not in self.steps]:
            yield f"its parents {missing} are gone"
        waits = sum(not self.steps[parent]["passed"] for parent in parents if parent in self.steps)
        begun = self._has_begun(self.workflows[step["workflow_id"]])
        if step["waits"] != (waits if begun else max(waits, 1)):
            yield f"it waits for {step['waits']}, and {waits} of its parents have not passed"

    def _of_sub_workflow(self, step: dict[str, Any]) -> Iterator[str]:
        [sub] = [each for each in self.workflows.values() if each["step_of"] == step["id"]]
        if (step["state"] in (*OPEN, "blocked", "claimed")) != (sub["state"] in OPEN):
            yield f"it is {step['state']}, its workflow {sub['id']} {sub['state']}"
        if step["state"] in ("pending", "scheduled"):
            yield "a worker could claim it"

    def _below(self, workflow_id: int) -> Iterator[dict[str, Any]]:
        for step in self.of[workflow_id]:
            if step["kind"] == "workflow":
                for sub in self.workflows.values():
                    if sub["step_of"] == step["id"]:
                        yield from self._below(sub["id"])
            else:
                yield step


def _decoded(queues: str) -> list[str]:
    return list(json.loads(queues))


def assert_books(url: str) -> None:
    """Every counter and every state of every workflow follows from its steps."""
    wrong = Books(url).wrong()
    assert not wrong, "\n".join(wrong)
