"""Each scenario of the stress run for a short time: its fault happens, and all its promises hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import matrix
from tests.conftest import SERVED
from tests.stress.scenario import ENGINES, Scenario, Stage, perform
from tests.stress.scenarios import all_scenarios

SEED = 7


def engines_of(scenario: Scenario) -> list[str]:
    """All of its engines in `make stress`. In `make proof` a server in front of SQLite is enough, where there is one:
    the same server, and PostgreSQL, are each played as well."""
    if matrix.is_stress() or "http" not in scenario.engines:
        return list(scenario.engines)
    return [engine for engine in scenario.engines if engine != "http+postgres"]


PLAYS = [(each, engine) for each in all_scenarios() for engine in engines_of(each)]


@pytest.mark.parametrize(
    ("scenario", "engine"), PLAYS, ids=[f"{scenario.name}-{engine}" for scenario, engine in PLAYS], indirect=["engine"]
)
def test_no_task_is_lost_or_doubled_and_no_stale_write_is_accepted(
    scenario: Scenario, engine: str, stage_of: Any
) -> None:
    if missing := scenario.missing():
        assert not os.environ.get("CI"), f"{scenario.name} needs {missing}"
        pytest.skip(f"needs {', '.join(missing)}")
    tally = perform(stage_of(scenario))
    print(f"{tally.injected} injected, {tally.operations} operations, {len(tally.recovery)} recoveries: {tally.notes}")
    assert tally.problems == []


def test_every_scenario_has_a_description() -> None:
    for scenario in all_scenarios():
        assert set(scenario.engines) <= set(ENGINES), scenario
        assert set(scenario.promises) <= set(range(1, 13)), scenario
        assert scenario.fault, scenario
    assert len({scenario.name for scenario in all_scenarios()}) == len(all_scenarios())


@pytest.fixture
def stage_of(engine: str, url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes the stage of a scenario on the engine under test; what it leaves is ended."""
    made: list[Stage] = []

    def stage(scenario: Scenario) -> Stage:
        serve = request.getfixturevalue("server_host").serving if engine in SERVED else None
        made.append(Stage(scenario, engine, url, tmp_path, seed=SEED, serve=serve))
        return made[-1]

    yield stage
    for each in made:
        each.close()
