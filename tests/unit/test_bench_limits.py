"""The benchmark of limits: the queue in plain SQL keeps its limits, and databases have the shape that they are named
after."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import dibs
from bench import admission
from bench.limit_shapes import LIMIT, Shape

SMALL = Shape("three groups of two behind ten blocked tasks", 2, groups=3, blocked=10)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_admission_in_plain_sql_passes_every_permit_on(empty_url: str) -> None:
    admission.install(empty_url, SMALL, 20)
    held: list[Any] = []
    with closing(admission.open_side(empty_url, "w", 4)) as side:
        while held := [*held, *side.claim()]:
            assert len(held) <= SMALL.max * SMALL.groups
            side.finish(held[:3])
            del held[:3]
    admission.check(empty_url, SMALL, 20)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_shape_has_its_groups_and_its_blocked_tasks(empty_url: str) -> None:
    SMALL.fill(empty_url, 9)
    with dibs.Dibs(empty_url) as app:
        assert len(app.claim_many("w", 100)) == SMALL.max * SMALL.groups
        assert {group.used for group in app.limit_groups(LIMIT)} == {2}
        assert app.get_limit("full").waiting == 10
