"""The benchmark of claims: databases have the shape that they are named after, and cells above the goal are marked."""

from __future__ import annotations

from collections import Counter

import pytest

import dibs
from bench.claim_report import markdown, ratio, summaries
from bench.claim_shapes import BASE, FILTERS, Shape, Sizes, Spread, shapes
from bench.tables import Line, Report
from dibs import Order

SMALL = Sizes(queues=20, named_queues=10, types=8, named_types=3, attempts=3, ahead=30)
SHAPES = {shape.name: shape for shape in shapes(SMALL)}
TASKS = 400


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_spread_has_its_queues_types_and_attempts_left_independently_of_each_other(url: str) -> None:
    spread = Spread(SMALL.queues, SMALL.types, SMALL.attempts)
    spread.fill(url, TASKS)
    with dibs.Dibs(url) as app:
        tasks = app.list_tasks(limit=1000)
        shape = Shape("all at once", spread, named_queues=SMALL.named_queues, named_types=SMALL.types)
        found = {name: len(app.peek(500, **shape.options(name))) for name in FILTERS}

    assert len({task.queue for task in tasks}) == SMALL.queues
    assert len({task.type for task in tasks}) == SMALL.types
    assert Counter(task.max_attempts for task in tasks).keys() == {1, 2, 3}
    assert len({(task.queue, task.type, task.max_attempts) for task in tasks}) > 200
    assert found["none"] == found["types"] == TASKS
    assert found["queues"] == found["both"] == TASKS / 2
    assert TASKS / 2 < found["attempts"] < TASKS


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", [name for name in SHAPES if name.endswith("ahead")])
def test_tasks_ahead_are_first_in_every_order_and_pass_no_filter_that_is_measured(url: str, name: str) -> None:
    shape = SHAPES[name]
    shape.spread.fill(url, 50)
    with dibs.Dibs(url) as app:
        ahead = {task.id for task in app.list_tasks(limit=1000) if "number" not in task.params}
        first = {order: {task.id for task in app.peek(30, order=order)} for order in Order}
        shape.prepare(app)
        matching = {filter_name: app.peek(200, **shape.options(filter_name)) for filter_name in shape.filters}

    assert len(ahead) == 2 * SMALL.ahead
    assert {order for order in first if not first[order] <= ahead} <= {"random", "weighted"}
    assert {filter_name: len(tasks) for filter_name, tasks in matching.items()} == dict.fromkeys(shape.filters, 50)
    assert not ahead & {task.id for tasks in matching.values() for task in tasks}


def test_every_filter_of_the_base_is_one_that_shapes_are_compared_with() -> None:
    assert {name for shape in SHAPES.values() for name in shape.filters} == set(BASE.filters) == set(FILTERS)


def test_a_cell_above_the_goal_is_marked_and_one_at_the_goal_is_not() -> None:
    report = _report(
        _line("fifo", one=(1.0, 2.0), hundred=(10.0, 15.1)), _line("lifo", one=(1.0, 2.1), hundred=(4.0, 6.0))
    )
    text = markdown(report)

    assert "| 2.00 (2.00) | 2.10 (**2.10**) |" in text
    assert "| 15.1 (**1.51**) | 6.00 (1.50) |" in text
    assert "of 1: 1 of 2 cells within 2 times the base in time" in text
    assert "of 100: 1 of 2 cells within 1.5 times the base in time" in text


def test_the_summary_names_the_worst_order() -> None:
    report = _report(
        _line("fifo", one=(1.0, 1.2), hundred=(9.0, 9.0)), _line("lifo", one=(2.0, 9.0), hundred=(9.0, 9.0))
    )

    assert "| 9.00 | **4.50** (lifo) |" in "\n".join(summaries(report))


def test_a_cell_that_failed_has_no_ratio() -> None:
    assert ratio(_line("fifo", one=(1.0, 2.0), hundred=(1.0, 1.0), failures=["it broke"]), 1, "ms") is None


def _line(
    order: str, one: tuple[float, float], hundred: tuple[float, float], failures: list[str] | None = None
) -> Line:
    figures = {
        f"{side}_{count}_{unit}": [cost]
        for count, costs in ((1, one), (100, hundred))
        for side, cost in zip(("base", "shape"), costs, strict=True)
        for unit in ("ms", "cpu")
    }
    return Line("claims", "many", "SQLite", "none", 1000, order, figures, failures or [])


def _report(*lines: Line) -> Report:
    return Report("monday", 1.0, 1, "1 task", True, "a machine", {}, "a command", 0.0, list(lines))
