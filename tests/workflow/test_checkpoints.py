"""Checkpoints: a value stored by an attempt is available to later attempts; only the holder can store one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dibs
from dibs import Claim, ClaimRef
from tests.helpers import tables
from tests.helpers.clients import Clock
from tests.helpers.retention import keep

WORKER = "worker-1"


def claimed(app: Any, **options: Any) -> Claim:
    held: Claim = app.claim_by_id(app.enqueue("download", **options).id, WORKER)
    return held


def test_a_checkpoint_is_stored_under_its_name(app: Any) -> None:
    held = claimed(app)
    assert app.checkpoints(held.task_id) == {}
    value = {"pages": [1, 2.5, None, True, "é"], "n": {}}
    assert app.keep_checkpoint(held, "downloaded", value) == value
    assert app.keep_checkpoint(held, "empty", None) is None
    assert app.checkpoints(held.task_id) == {"downloaded": value, "empty": None}


def test_the_first_value_of_a_checkpoint_is_kept(app: Any, url: str) -> None:
    held = claimed(app)
    app.keep_checkpoint(held, "downloaded", "first")
    before = tables.read(url)
    assert app.keep_checkpoint(held, "downloaded", "second") == "first"
    assert tables.read(url) == before


def test_a_checkpoint_belongs_to_one_task(app: Any) -> None:
    one, two = claimed(app), claimed(app)
    app.keep_checkpoint(one, "downloaded", 1)
    assert app.checkpoints(two.task_id) == {}
    assert app.keep_checkpoint(two, "downloaded", 2) == 2
    assert app.checkpoints(404) == {}


def test_a_checkpoint_survives_a_failed_attempt(app: Any) -> None:
    held = claimed(app)
    app.keep_checkpoint(held, "downloaded", 1)
    app.fail(held, "not yet", retry_in=0)
    again = app.claim_by_id(held.task_id, "worker-2")
    assert app.checkpoints(again.task_id) == {"downloaded": 1}
    assert app.keep_checkpoint(again, "downloaded", 2) == 1
    assert app.keep_checkpoint(again, "unpacked", 2) == 2


def test_a_checkpoint_survives_a_lost_lease_a_release_and_a_retry(app: Any, clock: Clock) -> None:
    held = claimed(app, max_attempts=2)
    app.keep_checkpoint(held, "one", 1)
    clock.advance(61)
    held = app.claim("worker-2")
    app.keep_checkpoint(held, "two", 2)
    app.release(held)
    held = app.claim("worker-3")
    app.fail(held, "broken", permanent=True)
    app.retry(held.task_id)
    assert app.checkpoints(held.task_id) == {"one": 1, "two": 2}


def test_a_checkpoint_can_be_stored_with_a_claim_reference(app: Any) -> None:
    held = claimed(app)
    assert app.keep_checkpoint(ClaimRef(held.task_id, held.token, WORKER), "downloaded", 1) == 1


# Fenced: for each of the three conditions a claim that only this condition refuses


def taken_over_by_the_same_worker(app: Any, clock: Clock) -> tuple[Any, type[Exception]]:
    """Only the token is wrong."""
    held = claimed(app)
    clock.advance(61)
    app.recover()
    app.claim_by_id(held.task_id, WORKER)
    return held, dibs.ClaimLost


def of_another_worker(app: Any, clock: Clock) -> tuple[Any, type[Exception]]:
    """Only the worker is wrong."""
    held = claimed(app)
    return ClaimRef(held.task_id, held.token, "worker-2"), dibs.NotYourClaim


def given_back(app: Any, clock: Clock) -> tuple[Any, type[Exception]]:
    """Only the state is wrong."""
    held = claimed(app)
    clock.advance(61)
    app.recover()
    return held, dibs.ClaimLost


def completed(app: Any, clock: Clock) -> tuple[Any, type[Exception]]:
    held = claimed(app)
    app.complete(held)
    return held, dibs.ClaimLost


def of_no_task(app: Any, clock: Clock) -> tuple[Any, type[Exception]]:
    app.queues()  # migrated, so that there is something to stay as it was
    return ClaimRef(404, 1, WORKER), dibs.TaskNotFound


LOST: list[Callable[..., Any]] = [
    taken_over_by_the_same_worker,
    of_another_worker,
    given_back,
    completed,
    of_no_task,
]


@pytest.mark.parametrize("lose", LOST, ids=lambda each: each.__name__)
def test_a_lost_claim_stores_no_checkpoint(app: Any, url: str, clock: Clock, lose: Callable[..., Any]) -> None:
    stale, error = lose(app, clock)
    before = tables.read(url)
    with pytest.raises(error):
        app.keep_checkpoint(stale, "downloaded", "stale")
    assert tables.read(url) == before


def test_a_lost_claim_is_refused_also_for_an_existing_checkpoint(app: Any, clock: Clock) -> None:
    held = claimed(app)
    app.keep_checkpoint(held, "downloaded", 1)
    clock.advance(61)
    app.claim("worker-2")
    with pytest.raises(dibs.ClaimLost):
        app.keep_checkpoint(held, "downloaded", 2)


# JSON


def test_a_value_that_is_not_json_is_refused_as_a_checkpoint(app: Any) -> None:
    held = claimed(app)
    for value in (float("nan"), {1: 2}, object(), 2**64, "\ud800", {"a": "\x00"}):
        with pytest.raises(dibs.InvalidValue):
            app.keep_checkpoint(held, "downloaded", value)
    assert app.checkpoints(held.task_id) == {}


def test_a_checkpoint_needs_a_valid_name(app: Any) -> None:
    held = claimed(app)
    for name in ("", "\x00", 7):
        with pytest.raises(dibs.InvalidValue, match="name of a checkpoint"):
            app.keep_checkpoint(held, name, 1)


def test_a_checkpoint_needs_a_claim(app: Any) -> None:
    with pytest.raises(dibs.InvalidValue, match="is not a claim"):
        app.keep_checkpoint(None, "downloaded", 1)


# Pruning


def test_checkpoints_are_pruned_with_their_task(app: Any, url: str) -> None:
    done, stays = claimed(app), claimed(app)
    for held in (done, stays):
        app.keep_checkpoint(held, "downloaded", 1)
    app.complete(done)
    keep(app, completed=0)
    app.prune()
    assert (app.checkpoints(done.task_id), app.checkpoints(stays.task_id)) == ({}, {"downloaded": 1})
    assert len(tables.read(url)["dibs_checkpoints"]) == 1
