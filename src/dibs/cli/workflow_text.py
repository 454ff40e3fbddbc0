"""A workflow's steps drawn as lines of text: what waits for what, how far each step is, and what went wrong.

Nothing is said by colour alone, and nothing by a sign that the terminal cannot show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dibs.cli import text
from dibs.cli.graph_text import ASCII_LINES, LINES, Row, TooWide, drawn, rows
from dibs.cli.output import STYLES
from dibs.model.task import State
from dibs.model.workflow import Step, StepKind
from dibs.workflow.summary import IGNORED, Group, counted, fold, word, worst

Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""

QUIET = "bright_black"
TITLES = ("step", "task", "attempts", "took")
MOST_LANES = 16
FAILURES_SHOWN = 3
NAME_WIDTH = 48
ROOM_FOR_WORDS = 36


@dataclass(frozen=True)
class Signs:
    """What a terminal can show."""

    states: Mapping[str, str]
    lines: Mapping[int, str]
    times: str
    more: str
    bar: tuple[str, str]

    @property
    def all(self) -> str:
        """Every sign there is."""
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
    """A line in the making: the lanes with a sign among them, then either the words of a step or a sentence."""

    graph: Line
    words: tuple[str, ...] = ()
    detail: Line | None = None


def draw(
    steps: Sequence[Step],
    inner: Mapping[int, Sequence[Step]],
    now: datetime,
    *,
    width: int,
    signs: Signs = UNICODE,
    fold_equal: bool = True,
) -> list[Line]:
    """The picture, line by line. `inner`: the steps of sub-workflows, by the id of the workflow."""
    entries = list(_Drawing(inner, now, signs, fold_equal, width).entries(steps))
    return [_cut(line, width, signs.more) for line in _aligned(entries, min(NAME_WIDTH, width // 2))] if entries else []


def legend(steps: Sequence[Step], signs: Signs = UNICODE) -> Line:
    """How many steps there are in each state, and by this the meaning of the signs."""
    counts = counted(steps, word)
    return _counts({state: counts[state] for state in signs.states if state in counts}, signs, named=True)


def plain(line: Iterable[tuple[str, str]]) -> str:
    """The text alone."""
    return "".join(piece for piece, _ in line).rstrip()


@dataclass(frozen=True)
class _Place:
    """Where a node stands: what is left and right of it, and in the lanes below."""

    left: str = ""
    right: str = ""
    beneath: str = ""

    @property
    def inside(self) -> str:
        """What stands before anything that is written below the node as a part of it."""
        return self.beneath + "  "


class _Drawing:
    """The entries of a graph, and of the graphs inside it."""

    def __init__(
        self, inner: Mapping[int, Sequence[Step]], now: datetime, signs: Signs, fold_equal: bool, width: int
    ) -> None:
        self._inner = inner
        self._now = now
        self._signs = signs
        self._fold_equal = fold_equal
        self._most_lanes = max(3, min(MOST_LANES, (width - ROOM_FOR_WORDS) // 2))

    def entries(self, steps: Sequence[Step], prefix: str = "") -> Iterator[_Entry]:
        last = [step for step in steps if step.kind is StepKind.FINALIZER]
        graph = [step for step in steps if step.kind is not StepKind.FINALIZER]
        groups = fold(graph) if self._fold_equal else fold(graph, len(graph) + 1)
        try:
            yield from list(self._graph(groups, prefix))
        except TooWide:
            yield from self._list(groups, prefix)
        for step in last:
            if graph:
                yield _Entry([(prefix, QUIET)])  # it comes after everything: a line from one step would say less
            yield from self._group(Group([step], []), _Place(prefix))

    def _graph(self, groups: Sequence[Group], prefix: str) -> Iterator[_Entry]:
        for row in rows([group.after for group in groups], self._most_lanes):
            if row.node is None:
                yield _Entry([(prefix + drawn(row.cells, True, self._signs.lines), QUIET)])
            else:
                yield from self._group(groups[row.node], self._place(prefix, row))

    def _place(self, prefix: str, row: Row) -> _Place:
        left, right, beneath = (
            drawn(cells, False, self._signs.lines)
            for cells in (row.cells[: row.place], row.cells[row.place + 1 :], row.beneath)
        )
        return _Place(prefix + left, right, prefix + beneath)

    def _list(self, groups: Sequence[Group], prefix: str) -> Iterator[_Entry]:
        """Without lines, where there would be too many: each step names those that it comes after."""
        for group in groups:
            after = ", ".join(text.line(groups[each].name) for each in group.after)
            yield from self._group(group, _Place(prefix, beneath=prefix), f"after {after}" if after else "")

    def _group(self, group: Group, place: _Place, after: str = "") -> Iterator[_Entry]:
        graph = [(place.left, QUIET), self._sign(worst(group.steps)), (" " + place.right, QUIET)]
        named: Line = [(after, QUIET)] if after else []
        if group.folded:
            many = f"{text.line(group.name)} {self._signs.times}{len(group.steps):,}"
            yield _Entry(graph, (many,), [*self._folded(group), ("  ", ""), *named])
            yield from self._failures(group.steps, place.inside)
        else:
            step = group.steps[0]
            yield _Entry(graph, self._words(step), [*self._detail(step), *named])
            yield from self.entries(self._inner.get(step.workflow_id or 0, ()), place.inside)

    def _failures(self, steps: Sequence[Step], inside: str) -> Iterator[_Entry]:
        failed = [step for step in steps if step.state is State.FAILED]
        for step in failed[:FAILURES_SHOWN]:
            yield _Entry([(inside, QUIET), self._sign(word(step)), (" ", "")], self._words(step), self._detail(step))
        if len(failed) > FAILURES_SHOWN:
            more = f"{self._signs.more} {len(failed) - FAILURES_SHOWN:,} more failed"
            yield _Entry([(inside, QUIET)], (more,))

    def _sign(self, state: str) -> tuple[str, str]:
        return self._signs.states[state], STYLES[state]

    def _folded(self, group: Group) -> Line:
        counts = counted(group.steps, word)
        return _counts({state: counts[state] for state in self._signs.states if state in counts}, self._signs)

    def _words(self, step: Step) -> tuple[str, ...]:
        name = text.line(f"{step.type} {step.name}" if step.kind is StepKind.FINALIZER else step.name)
        attempts = "" if step.kind is StepKind.WORKFLOW else f"{step.attempts}/{step.max_attempts}"
        return name, str(step.task_id), attempts, _took(step, self._now)

    def _detail(self, step: Step) -> Line:
        if step.error is not None and step.state is not State.COMPLETED:
            said = f"{step.error.type}: {step.error.message}".partition("\n")[0]
            said = f"permanent failure: {said}" if step.error.permanent else said
            return [(text.line(said), STYLES["failed"] if step.state is State.FAILED else "")]
        if step.kind is StepKind.WORKFLOW:
            return [(f"workflow {step.workflow_id}", QUIET)] if step.workflow_id else []
        if step.state is State.CLAIMED and step.worker_id:
            return [(f"on {text.line(step.worker_id)}", QUIET)]
        return []


def _counts(counts: Mapping[str, int], signs: Signs, *, named: bool = False) -> Line:
    line: Line = []
    for state, count in counts.items():
        gap = "  " if line else ""
        line.append((f"{gap}{signs.states[state]} {count:,}" + (f" {state}" if named else ""), STYLES[state]))
    return line


def _took(step: Step, now: datetime) -> str:
    if step.claimed_at is None or step.state not in (State.CLAIMED, State.COMPLETED, State.FAILED, State.CANCELLED):
        return ""
    return took((step.finished_at or now) - step.claimed_at)


def took(time: timedelta) -> str:
    """A length of time, to the millisecond where that tells something."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else text.duration(seconds)


def _aligned(entries: Sequence[_Entry], most: int) -> Iterator[Line]:
    """Entries under titles. A sentence that stands for many steps begins where the columns of numbers do."""
    graph = max(_length(entry.graph) for entry in entries) + 1
    table = [entry.words for entry in entries if len(entry.words) > 1]
    shown = [entry.words[0] for entry in entries if entry.words]
    name = min(most, max(map(len, [TITLES[0], *shown])))
    widths = [max(map(len, column)) for column in zip(TITLES[1:], *(words[1:] for words in table), strict=True)]
    yield [(" " * graph + _row(TITLES, name, widths), "bold")]
    for entry in entries:
        yield _line(entry, graph, lambda words: _row(words, name, widths))


def _line(entry: _Entry, graph: int, row: Callable[[Sequence[str]], str]) -> Line:
    line = [*entry.graph, (" " * (graph - _length(entry.graph)), "")] if entry.words else list(entry.graph)
    if entry.words:
        line.append((row(entry.words), ""))
    return [*line, ("  ", ""), *entry.detail] if entry.detail else line


def _row(words: Sequence[str], name: int, widths: Sequence[int]) -> str:
    numbers = (f"  {word:>{width}}" for word, width in zip(words[1:], widths, strict=False))
    return f"{text.shorten(words[0], name):<{name}}" + "".join(numbers)


def _length(line: Line) -> int:
    return sum(len(piece) for piece, _ in line)


def _cut(line: Line, width: int, more: str) -> Line:
    """The line within the width, with a sign that something is missing."""
    if len(plain(line)) <= width:
        return line
    kept: Line = []
    room = width - len(more)
    for piece, style in line:
        kept.append((piece[: max(0, room)], style))
        room -= len(piece)
    return [*kept, (more, "")]


def bar(percent: float, signs: Signs = UNICODE, width: int = 20) -> str:
    """A bar that is filled so far."""
    filled = int(percent * width // 100)
    return signs.bar[0] * filled + signs.bar[1] * (width - filled)
