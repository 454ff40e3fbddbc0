# ruff: noqa: RUF001 (the sign for times is meant)
"""The drawing of a workflow: it contains every dependency and no other, on every terminal."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dibs.cli.graph_text import DOWN, HORIZONTAL, UP, GraphLine, TooWide, graph_lines
from dibs.cli.output import STYLES
from dibs.cli.workflow_text import ASCII, UNICODE, draw, format_duration, legend, plain
from dibs.model.task import FINAL, Failure, State
from dibs.model.workflow import FINALIZER_NAME, OnFailure, Step, StepKind
from dibs.workflow.summary import fold
from tests.helpers.each import for_each

NOW = datetime(2030, 1, 31, 8, tzinfo=UTC)
ERROR = Failure("ValueError", "no such page\nand more", "Traceback …")


class Graph:
    """Steps in the making; a step is named to be waited for by its task's id."""

    def __init__(self, first: int = 1) -> None:
        self.steps: list[Step] = []
        self._first = first

    def add(self, name: str, state: str = "completed", after: Sequence[int] = (), **more: Any) -> int:
        begun = State(state) in FINAL or state == "claimed"
        told: dict[str, Any] = {
            "task_id": self._first + len(self.steps),
            "name": name,
            "kind": StepKind.TASK,
            "type": name.rpartition("/")[2].partition("-")[0],
            "queue": "default",
            "state": State(state),
            "attempts": 1 if State(state) in FINAL else 0,
            "max_attempts": 3,
            "after": list(after),
            "waits": 0,
            "on_failure": OnFailure.FAIL,
            "passed": None,
            "worker_id": "worker-1" if state == "claimed" else None,
            "claimed_at": NOW - timedelta(seconds=5) if begun else None,
            "finished_at": NOW - timedelta(seconds=3.8) if State(state) in FINAL else None,
            "error": ERROR if state == "failed" else None,
        }
        self.steps.append(Step(**told | more))
        return self.steps[-1].task_id

    def drawn(self, inner: dict[int, Sequence[Step]] | None = None, **options: Any) -> str:
        lines = draw(self.steps, inner or {}, NOW, **{"width": 100} | options)
        return "\n".join(plain(line) for line in lines)


def picture(text: str) -> str:
    """A drawing as it stands in a test: without the margin, which ends at the bar."""
    return "\n".join(line.partition("¦")[2].rstrip() for line in text.strip("\n").splitlines() if "¦" in line)


def test_a_chain_is_drawn_with_one_line_for_each_step() -> None:
    graph = Graph()
    fetch = graph.add("fetch")
    render = graph.add("render", "claimed", [fetch])
    graph.add("store", "blocked", [render])
    assert graph.drawn() == picture("""
        ¦   step    task  attempts   took
        ¦✓  fetch      1       1/3  1.2 s
        ¦●  render     2       0/3  5.0 s  on worker-1
        ¦○  store      3       0/3
    """)


def test_a_diamond_is_drawn_with_a_branch_and_a_join() -> None:
    graph = Graph()
    top = graph.add("top")
    sides = [graph.add("left", "completed", [top]), graph.add("right", "scheduled", [top], attempts=1, error=ERROR)]
    graph.add("bottom", "blocked", sides)
    assert graph.drawn() == picture("""
        ¦     step    task  attempts   took
        ¦✓    top        1       1/3  1.2 s
        ¦├─╮
        ¦✓ │  left       2       1/3  1.2 s
        ¦│ ◔  right      3       1/3         ValueError: no such page
        ¦├─╯
        ¦○    bottom     4       0/3
    """)


def test_a_branch_is_followed_to_its_end_before_the_next_one() -> None:
    graph = Graph()
    top = graph.add("top")
    left = graph.add("a2", after=[graph.add("a1", after=[top])])
    right = graph.add("b2", after=[graph.add("b1", after=[top])])
    graph.add("bottom", after=[left, right])
    assert graph.drawn() == picture("""
        ¦     step    task  attempts   took
        ¦✓    top        1       1/3  1.2 s
        ¦├─╮
        ¦✓ │  a1         2       1/3  1.2 s
        ¦✓ │  a2         3       1/3  1.2 s
        ¦│ ✓  b1         4       1/3  1.2 s
        ¦│ ✓  b2         5       1/3  1.2 s
        ¦├─╯
        ¦✓    bottom     6       1/3  1.2 s
    """)


def fan_out() -> Graph:
    """Three in parallel, one of them failed, what follows, and the last word."""
    graph = Graph()
    fetch = graph.add("fetch")
    states = ("completed", "claimed", "failed")
    pages = [graph.add(f"render-{number}", state, [fetch]) for number, state in enumerate(states, 1)]
    graph.add("merge", "blocked", pages)
    graph.add("notify", "blocked", pages)
    graph.add(FINALIZER_NAME, "blocked", type="report", kind=StepKind.FINALIZER)
    return graph


def test_a_fan_out_of_three_that_two_steps_wait_for_is_drawn_line_by_line() -> None:
    assert fan_out().drawn() == picture("""
        ¦         step                task  attempts   took
        ¦✓        fetch                  1       1/3  1.2 s
        ¦├─┬─╮
        ¦✓ │ │    render-1               2       1/3  1.2 s
        ¦├─│─│─╮
        ¦│ ● │ │  render-2               3       0/3  5.0 s  on worker-1
        ¦│ ├─│─┤
        ¦│ │ ✗ │  render-3               4       1/3  1.2 s  ValueError: no such page
        ¦│ │ ├─┤
        ¦├─┴─╯ │
        ¦○     │  merge                  5       0/3
        ¦      ○  notify                 6       0/3
        ¦
        ¦○        report (finalizer)     7       0/3
    """)


def test_a_terminal_without_unicode_gets_the_drawing_in_ascii() -> None:
    drawn = fan_out().drawn(signs=ASCII)
    assert drawn.isascii()
    assert drawn == picture("""
        ¦         step                task  attempts   took
        ¦v        fetch                  1       1/3  1.2 s
        ¦+-+-+
        ¦v | |    render-1               2       1/3  1.2 s
        ¦+-|-|-+
        ¦| * | |  render-2               3       0/3  5.0 s  on worker-1
        ¦| +-|-+
        ¦| | x |  render-3               4       1/3  1.2 s  ValueError: no such page
        ¦| | +-+
        ¦+-+-+ |
        ¦.     |  merge                  5       0/3
        ¦      .  notify                 6       0/3
        ¦
        ¦.        report (finalizer)     7       0/3
    """)


def test_a_fan_out_of_a_thousand_is_one_line_with_counts_and_its_first_failures() -> None:
    graph = Graph()
    extract = graph.add("extract")
    states = ["completed"] * 980 + ["claimed"] * 15 + ["failed"] * 5
    parts = [graph.add(f"extract/clean-{number}", state, [extract]) for number, state in enumerate(states, 1)]
    graph.add("load", "blocked", [extract, *parts])
    assert graph.drawn() == picture("""
        ¦       step                  task  attempts   took
        ¦✓      extract                  1       1/3  1.2 s
        ¦✗      extract/clean ×1,000  ✓ 980  ● 15  ✗ 5
        ¦│   ✗  extract/clean-996      997       1/3  1.2 s  ValueError: no such page
        ¦│   ✗  extract/clean-997      998       1/3  1.2 s  ValueError: no such page
        ¦│   ✗  extract/clean-998      999       1/3  1.2 s  ValueError: no such page
        ¦│      … 2 more failed
        ¦○      load                  1002       0/3
    """)
    assert len(graph.drawn(fold_equal=False).splitlines()) == 1003


def test_an_edge_that_added_steps_make_redundant_is_left_out() -> None:
    graph = Graph()
    extract = graph.add("extract")
    graph.add("other")
    added = [graph.add("extract/clean", after=[extract]), graph.add("extract/weigh", after=[extract])]
    added.append(graph.add("extract/clean/rinse", after=[added[0]]))
    graph.add("load", "blocked", [extract, *added])
    assert [(group.name, group.after) for group in fold(graph.steps)] == [
        ("extract", []),
        ("other", []),
        ("extract/clean", [0]),
        ("extract/weigh", [0]),
        ("extract/clean/rinse", [2]),
        ("load", [3, 4]),
    ]


def test_a_slash_in_a_step_name_makes_no_edge() -> None:
    graph = Graph()
    graph.add("extract")
    graph.add("extract/clean")
    assert [group.after for group in fold(graph.steps)] == [[], []]


def test_parallel_chains_fold_link_by_link() -> None:
    graph = Graph()
    for _ in range(50):
        graph.add("store", after=[graph.add("render", after=[graph.add("fetch")])])
    graph.add("report", after=[step.task_id for step in graph.steps if step.type == "store"])
    assert [(group.name, len(group.steps), group.after) for group in fold(graph.steps)] == [
        ("fetch", 50, []),
        ("render", 50, [0]),
        ("store", 50, [1]),
        ("report", 1, [2]),
    ]


def test_steps_with_different_parents_are_not_folded() -> None:
    graph = Graph()
    first, second = graph.add("fetch"), graph.add("other")
    for parent in (first, second):
        for _ in range(6):
            graph.add("render", after=[parent])
    assert [len(group.steps) for group in fold(graph.steps)] == [1, 1, 6, 6]


def test_a_sub_workflow_is_drawn_inside_its_step() -> None:
    graph, inside = Graph(), Graph(first=10)
    begin = graph.add("begin")
    pages = graph.add("pages", "claimed", [begin], kind=StepKind.WORKFLOW, workflow_id=9, worker_id="workflow-9")
    beside = graph.add("beside", "cancelled", [begin])
    graph.add("end", "blocked", [pages, beside])
    top = inside.add("top")
    inside.add("left", "claimed", [top])
    inside.add("right", "pending", [top])
    inside.add(FINALIZER_NAME, "blocked", type="sum", kind=StepKind.FINALIZER)
    assert graph.drawn({9: inside.steps}) == picture("""
        ¦           step             task  attempts   took
        ¦✓          begin               1       1/3  1.2 s
        ¦├─╮
        ¦● │        pages               2            5.0 s  workflow 9
        ¦│ │   ✓    top                10       1/3  1.2 s
        ¦│ │   ├─╮
        ¦│ │   ● │  left               11       0/3  5.0 s  on worker-1
        ¦│ │     ◎  right              12       0/3
        ¦│ │
        ¦│ │   ○    sum (finalizer)    13       0/3
        ¦│ ⊘        beside              3       1/3  1.2 s
        ¦├─╯
        ¦○          end                 4       0/3
    """)


def test_independent_steps_are_not_drawn_as_a_chain() -> None:
    graph = Graph()
    for name in ("one", "two"):
        graph.add(name)
    assert graph.drawn() == picture("""
        ¦   step  task  attempts   took
        ¦✓  one      1       1/3  1.2 s
        ¦
        ¦✓  two      2       1/3  1.2 s
    """)


def test_an_ignored_failure_has_its_own_symbol() -> None:
    graph = Graph()
    graph.add("notify", "failed", on_failure=OnFailure.IGNORE)
    assert graph.drawn().splitlines()[1].startswith("!  notify")
    assert plain(legend(graph.steps)) == "! 1 ignored"


def test_the_legend_counts_every_state_with_its_symbol() -> None:
    graph = Graph()
    for state in State:
        graph.add(state, state)
    assert plain(legend(graph.steps)) == (
        "✓ 1 completed  ● 1 claimed  ◎ 1 pending  ◔ 1 scheduled  ○ 1 blocked  ⊘ 1 cancelled  ✗ 1 failed"
    )
    for signs in (UNICODE, ASCII):
        assert len(set(signs.states.values())) == len(signs.states)
        assert set(signs.states) <= set(STYLES)


def test_a_symbol_has_the_colour_of_its_state() -> None:
    line = draw(fan_out().steps, {}, NOW, width=100)[1]
    assert ("✓", STYLES["completed"]) in line


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    graph = fan_out()
    graph.add("a" * 200, "failed", error=Failure("Error", "x" * 300))
    lines = graph.drawn(width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.endswith("…") for line in lines)


def test_a_graph_with_too_many_edges_names_parents_in_words() -> None:
    graph = Graph()
    top = graph.add("top")
    middle = [graph.add(f"{letter}", after=[top]) for letter in "abcdefghijklmnopqrstuvwxyz"]
    graph.add("bottom", after=middle[:2])
    lines = graph.drawn().splitlines()
    assert "│" not in "".join(lines)
    assert lines[1].split()[:2] == ["✓", "top"]
    assert lines[-1].endswith("after a, b")
    assert lines[2].endswith("after top")


def test_names_of_users_cannot_forge_a_line() -> None:
    graph = Graph()
    graph.add("evil\x1b[2J\nname", "failed", error=Failure("E", "\x1b[31mred"))
    assert len(graph.drawn().splitlines()) == 2
    assert "\x1b" not in graph.drawn()


def test_a_workflow_without_steps_is_drawn_without_lines() -> None:
    assert draw([], {}, NOW, width=80) == []


def test_drawing_a_chain_of_ten_thousand_steps_takes_linear_time() -> None:
    """Marks that named whole histories, instead of numbering them, would need the square of this."""
    graph = Graph()
    last: list[int] = []
    for number in range(10_000):
        last = [graph.add(f"step-{number}", after=last)]
    assert len(graph.drawn().splitlines()) == 10_001


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0123, "12 ms"), (1.25, "1.2 s"), (59, "59.0 s"), (61, "1 min"), (-1, "0 ms")]
)
def test_a_duration_is_shown_in_a_suitable_unit(seconds: float, said: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == said


@for_each("seed", range(200))
def test_the_edges_of_any_drawing_are_exactly_the_dependencies_of_its_graph(seed: int) -> None:
    chance = random.Random(seed)
    parents = [sorted(chance.sample(range(node), min(node, chance.randint(0, 3)))) for node in range(12)]
    assert read_back(graph_lines(parents, max_columns=99)) == [set(above) for above in parents]


def test_a_graph_with_too_many_columns_is_refused() -> None:
    with pytest.raises(TooWide):
        list(graph_lines([[], [0], [0], [0]], max_columns=2))


def read_back(drawn: Iterable[GraphLine]) -> list[set[int]]:
    """The dependencies, read from the lines alone: from which nodes the edge in each column comes, line by line."""
    found: dict[int, set[int]] = {}
    columns: dict[int, set[int]] = {}
    last = -1
    for row in drawn:
        joined = [place for place, cell in enumerate(row.cells) if cell & HORIZONTAL]
        ends = [place for place in joined if row.cells[place] & (UP | DOWN)]
        if row.node is not None:
            found[row.node] = columns.get(row.column, set())
            columns[row.column], last = {row.node}, row.node
        elif any(not row.cells[place] & DOWN for place in ends):  # edges end here: they are joined in the first column
            columns[ends[0]] = set().union(*(columns.pop(place) for place in ends))
        else:
            for place in ends:  # lines part from the node above
                columns[place] = (columns.get(place, set()) if row.cells[place] & UP else set()) | {last}
        columns = {place: sources for place, sources in columns.items() if _goes_on(row, place)}
    return [found[node] for node in sorted(found)]


def _goes_on(row: GraphLine, place: int) -> bool:
    cells = row.cells if row.node is None else row.below
    return place < len(cells) and bool(cells[place] & DOWN)
