"""Draw the steps of a workflow as lines of text: their dependencies, states, attempts and errors.

Colour only repeats what signs and words show, and the signs fit the encoding of the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dibs.cli import text
from dibs.cli.graph_text import ASCII_LINES, LINES, GraphLine, TooWide, draw_cells, graph_lines
from dibs.cli.output import STYLES
from dibs.model.task import State
from dibs.model.workflow import Step, StepKind
from dibs.workflow.summary import IGNORED, Group, count_by, fold, most_urgent, shown_state

StyledLine = list[tuple[str, str]]
"""Pieces of text, each with its style."""

QUIET = "bright_black"
"""The style of edges and of less important text."""

TITLES = ("step", "task", "attempts", "took")
MAX_COLUMNS = 16
"""Columns of a graph, of two characters each; a wider graph is drawn as a list."""

FAILURES_SHOWN = 3
"""Failed steps that are listed below a group of folded steps."""

NAME_WIDTH = 48
MIN_TEXT_WIDTH = 36


@dataclass(frozen=True)
class Signs:
    """The characters that a terminal can show: `states` for the states of steps, `lines` for edges, `times` before the
    number of folded steps, `more` for an ellipsis, `bar` for a progress bar."""

    states: Mapping[str, str]
    lines: Mapping[int, str]
    times: str
    more: str
    bar: tuple[str, str]

    @property
    def all(self) -> str:
        """All characters of the set."""
        return "".join((*self.states.values(), *self.lines.values(), self.times, self.more, *self.bar))


UNICODE = Signs(
    {
        "completed": "✓",
        IGNORED: "!",
        "claimed": "●",
        "pending": "◎",
        "scheduled": "◔",
        "blocked": "○",
        "cancelled": "⊘",
        "failed": "✗",
    },
    LINES,
    "×",  # noqa: RUF001 (the sign for times)
    "…",
    ("█", "░"),
)
ASCII = Signs(
    {
        "completed": "v",
        IGNORED: "!",
        "claimed": "*",
        "pending": "o",
        "scheduled": "~",
        "blocked": ".",
        "cancelled": "-",
        "failed": "x",
    },
    ASCII_LINES,
    "x",
    "...",
    ("#", "-"),
)


@dataclass(frozen=True)
class _Entry:
    """A line before alignment. `graph`: the edges, with the sign of a step. `cells`: the columns of `TITLES`; only the
    first one for a group of folded steps. `detail`: the text after the columns."""

    graph: StyledLine
    cells: tuple[str, ...] = ()
    detail: StyledLine | None = None


def draw(
    steps: Sequence[Step],
    inner: Mapping[int, Sequence[Step]],
    now: datetime,
    *,
    width: int,
    signs: Signs = UNICODE,
    fold_equal: bool = True,
) -> list[StyledLine]:
    """Return the lines of the drawing. `inner`: the steps of sub-workflows, by the id of the workflow."""
    entries = list(_Drawing(inner, now, signs, fold_equal, width).entries(steps))
    return [_cut(line, width, signs.more) for line in _aligned(entries, min(NAME_WIDTH, width // 2))] if entries else []


def legend(steps: Sequence[Step], signs: Signs = UNICODE) -> StyledLine:
    """Return the number of steps in each state, with signs: this explains the signs."""
    counts = count_by(steps, shown_state)
    return _counts({state: counts[state] for state in signs.states if state in counts}, signs, named=True)


def plain(line: Iterable[tuple[str, str]]) -> str:
    """Return the text of a line without its styles."""
    return "".join(piece for piece, _ in line).rstrip()


@dataclass(frozen=True)
class _Edges:
    """The edges around a node: to its left, to its right, and on the lines below."""

    left: str = ""
    right: str = ""
    beneath: str = ""

    @property
    def indented(self) -> str:
        """The edges at the beginning of lines that belong to the node: its failures, the steps of its sub-workflow."""
        return self.beneath + "  "


class _Drawing:
    """Builds the entries of a graph and of its sub-workflows."""

    def __init__(
        self, inner: Mapping[int, Sequence[Step]], now: datetime, signs: Signs, fold_equal: bool, width: int
    ) -> None:
        self._inner = inner
        self._now = now
        self._signs = signs
        self._fold_equal = fold_equal
        self._max_columns = max(3, min(MAX_COLUMNS, (width - MIN_TEXT_WIDTH) // 2))

    def entries(self, steps: Sequence[Step], prefix: str = "") -> Iterator[_Entry]:
        """Yield the entries of a workflow, each behind the prefix; the finalizer is the last one."""
        finalizers = [step for step in steps if step.kind is StepKind.FINALIZER]
        graph = [step for step in steps if step.kind is not StepKind.FINALIZER]
        groups = fold(graph) if self._fold_equal else fold(graph, len(graph) + 1)
        try:
            yield from list(self._graph(groups, prefix))
        except TooWide:
            yield from self._list(groups, prefix)
        for step in finalizers:
            if graph:  # an empty line: the finalizer runs after all steps, and an edge from one step would mislead
                yield _Entry([(prefix, QUIET)])
            yield from self._group(Group([step], []), _Edges(prefix))

    def _graph(self, groups: Sequence[Group], prefix: str) -> Iterator[_Entry]:
        for line in graph_lines([group.after for group in groups], self._max_columns):
            if line.node is None:
                yield _Entry([(prefix + draw_cells(line.cells, True, self._signs.lines), QUIET)])
            else:
                yield from self._group(groups[line.node], self._edges(prefix, line))

    def _edges(self, prefix: str, line: GraphLine) -> _Edges:
        left, right, beneath = (
            draw_cells(cells, False, self._signs.lines)
            for cells in (line.cells[: line.column], line.cells[line.column + 1 :], line.below)
        )
        return _Edges(prefix + left, right, prefix + beneath)

    def _list(self, groups: Sequence[Group], prefix: str) -> Iterator[_Entry]:
        """Yield the steps without edges, for graphs that are too wide: each step names the steps before it."""
        for group in groups:
            after = ", ".join(text.line(groups[each].name) for each in group.after)
            yield from self._group(group, _Edges(prefix, beneath=prefix), f"after {after}" if after else "")

    def _group(self, group: Group, edges: _Edges, parents_text: str = "") -> Iterator[_Entry]:
        """Yield a step with the steps of its sub-workflow, or a group of folded steps with its failures."""
        graph = [(edges.left, QUIET), self._sign(most_urgent(group.steps)), (" " + edges.right, QUIET)]
        parents: StyledLine = [(parents_text, QUIET)] if parents_text else []
        if group.folded:
            name_and_size = f"{text.line(group.name)} {self._signs.times}{len(group.steps):,}"
            yield _Entry(graph, (name_and_size,), [*self._folded(group), ("  ", ""), *parents])
            yield from self._failures(group.steps, edges.indented)
        else:
            step = group.steps[0]
            yield _Entry(graph, self._cells(step), [*self._detail(step), *parents])
            yield from self.entries(self._inner.get(step.workflow_id or 0, ()), edges.indented)

    def _failures(self, steps: Sequence[Step], prefix: str) -> Iterator[_Entry]:
        failed = [step for step in steps if step.state is State.FAILED]
        for step in failed[:FAILURES_SHOWN]:
            yield _Entry(
                [(prefix, QUIET), self._sign(shown_state(step)), (" ", "")], self._cells(step), self._detail(step)
            )
        if len(failed) > FAILURES_SHOWN:
            more = f"{self._signs.more} {len(failed) - FAILURES_SHOWN:,} more failed"
            yield _Entry([(prefix, QUIET)], (more,))

    def _sign(self, state: str) -> tuple[str, str]:
        return self._signs.states[state], STYLES[state]

    def _folded(self, group: Group) -> StyledLine:
        counts = count_by(group.steps, shown_state)
        return _counts({state: counts[state] for state in self._signs.states if state in counts}, self._signs)

    def _cells(self, step: Step) -> tuple[str, ...]:
        name = text.line(f"{step.type} {step.name}" if step.kind is StepKind.FINALIZER else step.name)
        attempts = "" if step.kind is StepKind.WORKFLOW else f"{step.attempts}/{step.max_attempts}"
        return name, str(step.task_id), attempts, _took(step, self._now)

    def _detail(self, step: Step) -> StyledLine:
        if step.error is not None and step.state is not State.COMPLETED:
            summary = f"{step.error.type}: {step.error.message}".partition("\n")[0]
            summary = f"permanent failure: {summary}" if step.error.permanent else summary
            return [(text.line(summary), STYLES["failed"] if step.state is State.FAILED else "")]
        if step.kind is StepKind.WORKFLOW:
            return [(f"workflow {step.workflow_id}", QUIET)] if step.workflow_id else []
        if step.state is State.CLAIMED and step.worker_id:
            return [(f"on {text.line(step.worker_id)}", QUIET)]
        return []


def _counts(counts: Mapping[str, int], signs: Signs, *, named: bool = False) -> StyledLine:
    line: StyledLine = []
    for state, count in counts.items():
        gap = "  " if line else ""
        line.append((f"{gap}{signs.states[state]} {count:,}" + (f" {state}" if named else ""), STYLES[state]))
    return line


def _took(step: Step, now: datetime) -> str:
    if step.claimed_at is None or step.state not in (State.CLAIMED, State.COMPLETED, State.FAILED, State.CANCELLED):
        return ""
    return format_duration((step.finished_at or now) - step.claimed_at)


def format_duration(time: timedelta) -> str:
    """Format a duration, with milliseconds below one second."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)


def _aligned(entries: Sequence[_Entry], most: int) -> Iterator[StyledLine]:
    """Align the entries under titles. `most`: the largest width of names. The summary of a group of folded steps begins
    at the columns of numbers."""
    graph = max(_length(entry.graph) for entry in entries) + 1
    table = [entry.cells for entry in entries if len(entry.cells) > 1]
    shown = [entry.cells[0] for entry in entries if entry.cells]
    name = min(most, max(map(len, [TITLES[0], *shown])))
    widths = [max(map(len, column)) for column in zip(TITLES[1:], *(cells[1:] for cells in table), strict=True)]
    yield [(" " * graph + _row(TITLES, name, widths), "bold")]
    for entry in entries:
        yield _line(entry, graph, lambda cells: _row(cells, name, widths))


def _line(entry: _Entry, graph: int, row: Callable[[Sequence[str]], str]) -> StyledLine:
    line = [*entry.graph, (" " * (graph - _length(entry.graph)), "")] if entry.cells else list(entry.graph)
    if entry.cells:
        line.append((row(entry.cells), ""))
    return [*line, ("  ", ""), *entry.detail] if entry.detail else line


def _row(cells: Sequence[str], name: int, widths: Sequence[int]) -> str:
    numbers = (f"  {cell:>{width}}" for cell, width in zip(cells[1:], widths, strict=False))
    return f"{text.shorten(cells[0], name):<{name}}" + "".join(numbers)


def _length(line: StyledLine) -> int:
    return sum(len(piece) for piece, _ in line)


def _cut(line: StyledLine, width: int, more: str) -> StyledLine:
    """Cut the line to the width, with an ellipsis."""
    if len(plain(line)) <= width:
        return line
    kept: StyledLine = []
    room = width - len(more)
    for piece, style in line:
        kept.append((piece[: max(0, room)], style))
        room -= len(piece)
    return [*kept, (more, "")]


def bar(percent: float, signs: Signs = UNICODE, width: int = 20) -> str:
    """Return a progress bar."""
    filled = int(percent * width // 100)
    return signs.bar[0] * filled + signs.bar[1] * (width - filled)
