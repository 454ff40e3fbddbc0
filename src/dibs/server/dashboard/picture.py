"""The picture of a workflow: what stands in each box of its graph, and where a click on it leads.

However many steps there are, there are never more boxes than can be looked at: what is alike is one box with its
counts, which leads to the table of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dibs.server.dashboard.graph import Box, lay_out
from dibs.server.dashboard.rendering import seconds, shorten, visible
from dibs.step import WORKFLOW_STEP, Kind, Step
from dibs.task import State
from dibs.workflow.folding import IGNORED, Folding, Group, counted, folding_within, word, worst

MOST, TALLEST = 120, 24
"""Boxes of a picture, and those above each other in one layer."""

MOST_UNFOLDED = 500
"""Boxes of a picture in which somebody wants to see every step alone."""

STATES = ("completed", IGNORED, "claimed", "pending", "scheduled", "blocked", "cancelled", "failed")
"""In the order of a bar: what is done first."""

NARROW, WIDE = 116.0, 250.0
LOW, HIGH = 46.0, 60.0
LETTER, SMALL_LETTER = 7.6, 5.8
MARGIN = 34.0


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: so much of it, from there on, both of a thousand."""

    state: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Node:
    """A box and what stands in it. `title` says all of it. `since`: when it began, while it runs. `parts`: of many."""

    box: Box
    kind: str
    state: str
    name: str
    label: str
    title: str
    href: str
    since: datetime | None
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line: `kind` is `done` where it needs no more waiting for, `last` where it leads to the finalizer."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it. `folded`: some boxes stand for many steps. `groups`: those of the boxes, in their order."""

    width: float
    height: float
    nodes: Sequence[Node]
    arrows: Sequence[Arrow]
    groups: Sequence[Group]

    @property
    def folded(self) -> bool:
        """True where some box stands for many steps."""
        return any(group.folded for group in self.groups)

    def group_of(self, task_id: int) -> Group | None:
        """The box that this step is in."""
        return next((group for group in self.groups if any(step.task_id == task_id for step in group.steps)), None)


def draw(steps: Sequence[Step], folding: Folding, page: str, now: datetime) -> Picture:
    """The picture of these steps. `page`: the address of the page, for boxes that lead to a part of its table."""
    groups = _with_finalizer(steps, folding)
    texts = [_texts(group, now) for group in groups]
    layout = lay_out([group.after for group in groups], [_size(group, *text) for group, text in _zip(groups, texts)])
    nodes = [
        _node(group, box, text, page) for (group, text), box in zip(_zip(groups, texts), layout.boxes, strict=True)
    ]
    arrows = [Arrow(line.path, _kind(groups[line.start], groups[line.end])) for line in layout.lines]
    return Picture(layout.width, layout.height, nodes, arrows, groups)


def fold_steps(steps: Sequence[Step], *, unfold: bool = False) -> Folding:
    """Which steps have a box together; the finalizer has one of its own."""
    most, tallest = (MOST_UNFOLDED, MOST_UNFOLDED) if unfold else (MOST, TALLEST)
    return folding_within(_others(steps), most - 1, tallest)


def bar(counts: Mapping[str, int]) -> list[Part]:
    """The parts of a bar: no state that is there is too thin to be seen."""
    total = sum(counts.values())
    parts, x = list[Part](), 0.0
    for state in STATES:
        if counts.get(state):
            width = round(max(8.0, 1000 * counts[state] / total), 1)
            parts.append(Part(state, counts[state], round(x, 1), width))
            x += width
    scale = 1000 / x if x > 1000 else 1
    return [Part(part.state, part.count, round(part.x * scale, 1), round(part.width * scale, 1)) for part in parts]


def took(step: Step, now: datetime) -> float | None:
    """How many seconds the last attempt took, or has taken so far."""
    if step.claimed_at is None or step.state in (State.BLOCKED, State.PENDING, State.SCHEDULED):
        return None
    return max(0.0, ((step.finished_at or now) - step.claimed_at).total_seconds())


def _zip(groups: Sequence[Group], texts: Sequence[tuple[str, str]]) -> list[tuple[Group, tuple[str, str]]]:
    return list(zip(groups, texts, strict=True))


def _with_finalizer(steps: Sequence[Step], folding: Folding) -> list[Group]:
    """The finalizer comes after everything: after all that nothing else comes after."""
    groups = folding.groups(_others(steps))
    waited_for = {each for group in groups for each in group.after}
    ends = [number for number in range(len(groups)) if number not in waited_for]
    return groups + [Group([step], ends) for step in steps if step.kind is Kind.FINALIZER]


def _others(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.kind is not Kind.FINALIZER]


def _texts(group: Group, now: datetime) -> tuple[str, str]:
    """The two lines of a box."""
    if group.folded:
        counts = counted(group.steps, word)
        return f"{group.name} × {len(group.steps):,}", _counts(counts)  # noqa: RUF001 (the sign for times)
    step = group.steps[0]
    if step.kind is Kind.FINALIZER:
        return step.type, _label(["finalizer", _attempts(step), _took(step, now)])
    if step.kind is Kind.WORKFLOW:
        return step.name, _label([f"workflow {step.workflow_id or ''}".rstrip(), _took(step, now)])
    kind = "" if step.type in (step.name, group.name) else shorten(step.type, 20)
    return step.name, _label([kind, _attempts(step), _took(step, now)]) or step.state.value


def _label(words: Sequence[str]) -> str:
    return " · ".join(each for each in words if each)


def _attempts(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}" if step.attempts else ""


def _took(step: Step, now: datetime) -> str:
    time = took(step, now)
    return "" if time is None else seconds(time)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[state]:,} {state}" for state in reversed(STATES) if state in counts)


def _size(group: Group, name: str, label: str) -> tuple[float, float]:
    width = max(len(name) * LETTER, len(label) * SMALL_LETTER) + MARGIN
    return min(WIDE, max(NARROW, float(round(width)))), HIGH if group.folded else LOW


def _node(group: Group, box: Box, text: tuple[str, str], page: str) -> Node:
    first, (name, label) = group.steps[0], text
    running = first.claimed_at if first.state is State.CLAIMED and not group.folded else None
    return Node(
        box,
        "many" if group.folded else first.kind.value,
        worst(group.steps),
        shorten(visible(name), int((box.width - MARGIN) / LETTER) + 1),
        shorten(visible(label), int((box.width - MARGIN) / SMALL_LETTER) + 1),
        f"{visible(name)}: {_title(group, label)}",
        _href(group, page),
        running,
        bar(counted(group.steps, word)) if group.folded else (),
    )


def _title(group: Group, label: str) -> str:
    first = group.steps[0]
    if group.folded:
        return label
    kind = "" if first.type == WORKFLOW_STEP else f"{visible(first.type)}, "
    worker = f" on {visible(first.worker_id)}" if first.state is State.CLAIMED and first.worker_id else ""
    return f"{kind}{word(first)}{worker}, task {first.task_id}"


def _href(group: Group, page: str) -> str:
    first = group.steps[0]
    if group.folded:
        return f"{page}{'&' if '?' in page else '?'}of={first.task_id}#steps"
    return f"/workflows/{first.workflow_id}" if first.workflow_id is not None else f"/tasks/{first.task_id}"


def _kind(start: Group, end: Group) -> str:
    if end.steps[0].kind is Kind.FINALIZER:
        return "last"
    return "done" if all(step.passed for step in start.steps) else ""
