"""Handlers in every lane get and return values of the annotated types, from the database and from a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.testing import isolated
from tests.helpers.valued import app, in_loop, in_process, in_thread
from tests.helpers.values import JOB, ORDER, Job, Right

HANDLERS = (in_thread, in_process, in_loop)


@pytest.mark.own_connections
def test_models_attrs_classes_and_paths_pass_through_every_lane(place: str) -> None:
    app.use_url(place)
    try:
        with app.worker(concurrency=2, children=1):
            tasks: list[Any] = [each.enqueue(JOB, [ORDER, None], Right.READ) for each in HANDLERS]
            for task in tasks:
                assert task.wait(timeout=30).result == {Right.READ: Job(ORDER, Path("some/where/done"))}
            assert {each.name for each in app.list_types()} == {each.name for each in HANDLERS}
            with pytest.raises(dibs.SchemaViolation, match="where"):
                app.enqueue("in_process", {"job": {"order": None, "where": 7}, "orders": []})
    finally:
        app.close()


def test_a_sandbox_converts_values_and_checks_by_the_schemas() -> None:
    with isolated(app) as box:
        assert box.run_now(in_thread, JOB, [ORDER]) == {Right.READ: Job(ORDER, Path("some/where/done"))}
        with pytest.raises(dibs.SchemaViolation):
            app.enqueue("in_thread", {"job": 7, "orders": []})
