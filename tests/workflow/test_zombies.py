"""Promises 4 and 8: a processor that was frozen past the end of its claim changes nothing when it continues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dibs
from dibs import NewStep, NewTask, NewWorkflow, WorkflowState
from dibs.model.finalization import ClaimReason
from tests.helpers import tables
from tests.helpers.freezing import freeze, thaw
from tests.helpers.processes import Member, processes
from tests.helpers.waiting import until

LEASE = 0.3


@pytest.fixture
def app(url: str) -> Iterator[dibs.Dibs]:
    with dibs.Dibs(url) as app:
        yield app


@pytest.fixture
def zombie(app: dibs.Dibs, url: str) -> Iterator[Member]:
    app.migrate()
    with processes(url, 1, "tests.helpers.processor") as [member]:
        yield member


@pytest.mark.parametrize("finalizer", [None, "report"])
def test_a_thawed_processor_cannot_finalize_a_workflow_that_another_processor_finalized(
    app: dibs.Dibs, url: str, zombie: Member, finalizer: str | None
) -> None:
    workflow_id = a_due_workflow(app, finalizer)
    zombie.send(do="claim", workflow=workflow_id, timeout=LEASE)
    token = zombie.hear()
    freeze(zombie.process.pid)
    zombie.send(do="finalize", workflow=workflow_id, token=token)  # what it will do next, when it can
    finalized = finalize_by_another(app, workflow_id)
    assert finalized is (WorkflowState.FINALIZING if finalizer else WorkflowState.COMPLETED)
    if finalizer:
        assert refused(url, zombie) == "lost"
        zombie.send(do="finalize", workflow=workflow_id, token=token)
        claim = app.claim("other")
        assert claim is not None
        app.complete(claim)
    assert refused(url, zombie) == "lost"
    workflow = app.get_workflow(workflow_id)
    assert workflow is not None
    assert workflow.state is WorkflowState.COMPLETED
    assert [(one.processor, one.token) for one in app.finalization_attempts(workflow_id) if one.claimed] == [
        (zombie.name, token),
        ("other", token + 1),
    ]


def test_a_thawed_processor_cannot_change_the_claim_of_another_processor(
    app: dibs.Dibs, url: str, zombie: Member
) -> None:
    workflow_id = a_due_workflow(app, None)
    zombie.send(do="claim", workflow=workflow_id, timeout=LEASE)
    token = zombie.hear()
    freeze(zombie.process.pid)
    zombie.send(do="finalize", workflow=workflow_id, token=token)
    claimed = claim_by_another(app, workflow_id)
    assert refused(url, zombie) == "lost"
    for verb in ("renew", "release"):
        zombie.send(do=verb, workflow=workflow_id, token=token)
        assert refused(url, zombie) is False
    assert app.finalize(workflow_id, "other", claimed).state is WorkflowState.COMPLETED


def test_a_processor_whose_lease_ran_out_may_finalize_until_another_processor_claims(
    app: dibs.Dibs, zombie: Member
) -> None:
    workflow_id = a_due_workflow(app, None)
    zombie.send(do="claim", workflow=workflow_id, timeout=0.001)
    token = zombie.hear()
    until(lambda: workflow_id in app._run(app._store.finalization.due_finalizations()))
    zombie.send(do="finalize", workflow=workflow_id, token=token)
    assert zombie.hear() == WorkflowState.COMPLETED


def a_due_workflow(app: dibs.Dibs, finalizer: str | None) -> int:
    """Its only step is done; it is not finalized."""
    new = NewWorkflow(
        name="due",
        steps=[NewStep(name="last", task=NewTask("last"))],
        finalizer=None if finalizer is None else NewTask(finalizer),
    )
    workflow = app.start_workflow(new)
    claim = app.claim("worker")
    assert claim is not None
    assert app.complete(claim).finalize == workflow.id
    return workflow.id


def finalize_by_another(app: dibs.Dibs, workflow_id: int) -> WorkflowState:
    token = claim_by_another(app, workflow_id)
    reasons = [attempt.reason for attempt in app.finalization_attempts(workflow_id)]
    assert reasons == [
        ClaimReason.CLAIMED,
        *[ClaimReason.ALREADY_CLAIMED] * (len(reasons) - 2),
        ClaimReason.CLAIMED,
    ]
    return app.finalize(workflow_id, "other", token).state


def claim_by_another(app: dibs.Dibs, workflow_id: int) -> int:
    """As soon as the lease of the first has run out."""
    return until(lambda: app.claim_finalization(workflow_id, "other").token) or 0


def refused(url: str, zombie: Member) -> object:
    """The reply to the zombie, whose call must change nothing."""
    rows = tables.read(url)
    thaw(zombie.process.pid)
    told: object = zombie.hear()
    assert tables.read(url) == rows
    return told
