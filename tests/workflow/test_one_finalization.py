"""Promise 8: a workflow whose last steps end concurrently is finalized exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import dibs
from dibs import Event, ExecutionStatus, NewStep, NewTask, NewWorkflow, WorkflowState
from dibs.model.finalization import ClaimReason
from dibs.model.workflow import ENDED
from tests import matrix
from tests.helpers.clients import run
from tests.helpers.consistency import assert_balanced, percentile
from tests.helpers.processes import Member, ask_all, processes
from tests.helpers.processor import FINALIZERS

PROCESSORS = 8
PROGRAM = "tests.helpers.processor"
WORKFLOWS = 500 if matrix.is_stress() else 100
A_WAVE = 10
"""Workflows whose last steps are let go at the same moment. All processors finish them in the same order."""


@pytest.mark.timeout(600)
def test_workflows_whose_last_steps_end_concurrently_are_finalized_once(url: str) -> None:
    with dibs.Dibs(url) as app, processes(url, PROCESSORS, PROGRAM) as members:
        ids = start(app, WORKFLOWS)
        assert ask_all(members, [{"do": "hold", "queue": queue_of(n)} for n in range(PROCESSORS)]) == [WORKFLOWS] * 8
        tried = race(members, "finish", ids)
        tell_of(tried)
        assert sorted(each["workflow"] for each in tried) == ids  # one answer of each contains that it is due
        won = [each for each in tried if each["reason"] == ClaimReason.CLAIMED]
        assert len(won) > 0.95 * WORKFLOWS
        app.upkeep()  # workflows that were reported and not claimed have lost nothing
        assert_finalized_once(app, ids)


@pytest.mark.timeout(600)
def test_of_eight_concurrent_processors_one_finalizes_the_workflow(url: str) -> None:
    with dibs.Dibs(url) as app, processes(url, PROCESSORS, PROGRAM) as members:
        ids = start(app, WORKFLOWS // 5)
        for claim in claims_of(app, len(ids) * PROCESSORS):
            app.complete(claim, {"by": "app"})
        tried = race(members, "finalize_all", ids)
        tell_of(tried)
        finalized = Counter(each["workflow"] for each in tried if each["led_to"] is not None)
        assert finalized == dict.fromkeys(ids, 1)
        assert {each["reason"] for each in tried} <= {
            ClaimReason.CLAIMED,
            ClaimReason.ALREADY_CLAIMED,
            ClaimReason.ALREADY_COMPLETE,
            ClaimReason.RACE_CONDITION,
        }
        assert Counter(each["workflow"] for each in tried) == dict.fromkeys(ids, PROCESSORS)
        for workflow_id in ids:
            assert len(app.finalization_attempts(workflow_id)) == PROCESSORS
        assert_finalized_once(app, ids)


def start(app: dibs.Dibs, count: int) -> list[int]:
    """Workflows with a last step for each processor, and every other one with a finalizer."""
    last = [NewStep(name=f"last-{n}", task=NewTask("last", queue=queue_of(n))) for n in range(PROCESSORS)]
    finalizers = [None, NewTask("report", queue=FINALIZERS)]
    return [
        app.start_workflow(NewWorkflow(name="race", steps=last, finalizer=finalizers[n % 2])).id for n in range(count)
    ]


def queue_of(processor: int) -> str:
    return f"processor-{processor}"


def claims_of(app: dibs.Dibs, count: int) -> list[Any]:
    claims: list[Any] = []
    while more := app.claim_many("app", 1000):
        claims += more
    assert len(claims) == count
    return claims


def race(members: list[Member], what: str, ids: Sequence[int]) -> list[dict[str, Any]]:
    """Wave after wave, all processors at once; what they tried."""
    waves = [ids[n : n + A_WAVE] for n in range(0, len(ids), A_WAVE)]
    answers = [ask_all(members, [{"do": what, "workflows": wave}] * PROCESSORS) for wave in waves]
    return [each for answer in answers for of_one in answer for each in of_one]


def tell_of(tried: list[dict[str, Any]]) -> None:
    """For the output of the test; bench/workflows.py measures how long a claim takes."""
    seconds = [each["seconds"] for each in tried]
    spread = ", ".join(f"p{round(part * 100)} {percentile(seconds, part) * 1000:.1f} ms" for part in (0.5, 0.95, 0.99))
    print(f"{len(tried)} claims: {dict(Counter(each['reason'] for each in tried))}; {spread}")


def assert_finalized_once(app: dibs.Dibs, ids: list[int]) -> None:
    """No workflow is unfinished, all processors got the same replies, and each finalizer ran once."""
    assert run(app, app._store.finalization.due_finalizations()) == []
    assert not app.list_workflows(state="running")
    assert not app.list_workflows(state="finalizing")
    entries = Counter((entry.task_id, entry.event) for entry in assert_balanced(app))
    for workflow_id in ids:
        workflow = app.get_workflow(workflow_id)
        assert workflow is not None
        assert workflow.state in ENDED
        assert workflow.state is WorkflowState.COMPLETED
        assert app.execution_context(workflow_id).execution_status is ExecutionStatus.ALL_COMPLETE
        attempts = app.finalization_attempts(workflow_id)
        assert [attempt.token for attempt in attempts if attempt.claimed] == [1], attempts
        if workflow.finalizer_id is not None:
            for event in (Event.ENQUEUED, Event.PROMOTED, Event.CLAIMED, Event.COMPLETED):
                assert entries[workflow.finalizer_id, event] == 1, (workflow, event)
