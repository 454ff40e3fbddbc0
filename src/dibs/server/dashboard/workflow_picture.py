"""The picture of a workflow: what stands in each box of its graph, and where a click on it leads.

However many steps there are, there are never more boxes than can be looked at: what is alike is one box with its
counts, which leads to the table of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dibs.model.task import State
from dibs.model.workflow import WORKFLOW_STEP, Step, StepDetails, StepKind
from dibs.server.dashboard.graph_layout import Box, lay_out
from dibs.server.dashboard.rendering import seconds, shorten, visible
from dibs.server.dashboard.workflow_shapes import Group, Stand
from dibs.workflow.summary import IGNORED, word, worst_of

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
    """All of it."""

    width: float
    height: float
    nodes: Sequence[Node]
    arrows: Sequence[Arrow]


@dataclass(frozen=True, slots=True)
class Scene:
    """What the boxes tell: of those that stand for one step, the step; `page`: the address of the page, for boxes that
    lead to a part of its table."""

    some: StepDetails
    page: str
    now: datetime


def draw(groups: Sequence[Group], stands: Sequence[Stand], scene: Scene) -> Picture:
    """The picture of these groups, which stand like that."""
    boxes = [_Box(group, stand, scene) for group, stand in zip(groups, stands, strict=True)]
    layout = lay_out([group.after for group in groups], [box.size for box in boxes])
    nodes = [box.node(place) for box, place in zip(boxes, layout.boxes, strict=True)]
    arrows = [
        Arrow(line.path, _kind(stands[line.start], is_last=groups[line.end].is_finalizer)) for line in layout.lines
    ]
    return Picture(layout.width, layout.height, nodes, arrows)


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


class _Box:
    """What stands in a box: two lines, and all of it in a sentence."""

    def __init__(self, group: Group, stand: Stand, scene: Scene) -> None:
        self._group, self._stand = group, stand
        self._page = scene.page
        if group.folded:
            self._step = None
            self._name, self._label = _many(group, stand)
        else:
            self._step = scene.some.steps[group.ids[0]]
            self._name, self._label = _one(self._step, scene)

    @property
    def size(self) -> tuple[float, float]:
        """How much room it takes."""
        width = max(len(self._name) * LETTER, len(self._label) * SMALL_LETTER) + MARGIN
        return min(WIDE, max(NARROW, float(round(width)))), HIGH if self._group.folded else LOW

    def node(self, box: Box) -> Node:
        """The box at its place."""
        step = self._step
        return Node(
            box,
            "many" if step is None else step.kind.value,
            worst_of(self._stand.words) if step is None else word(step),
            shorten(visible(self._name), int((box.width - MARGIN) / LETTER) + 1),
            shorten(visible(self._label), int((box.width - MARGIN) / SMALL_LETTER) + 1),
            f"{visible(self._name)}: {self._label if step is None else _title(step)}",
            self._many_href() if step is None else _href(step),
            step.claimed_at if step is not None and step.state is State.CLAIMED else None,
            bar(self._stand.words) if step is None else (),
        )

    def _many_href(self) -> str:
        return f"{self._page}{'&' if '?' in self._page else '?'}of={self._group.ids[0]}#steps"


def _many(group: Group, stand: Stand) -> tuple[str, str]:
    counts = ", ".join(f"{stand.words[state]:,} {state}" for state in reversed(STATES) if stand.words.get(state))
    return f"{group.name} × {len(group.ids):,}", counts  # noqa: RUF001 (the sign for times)


def _one(step: Step, scene: Scene) -> tuple[str, str]:
    if step.kind is StepKind.FINALIZER:
        return step.type, _label(["finalizer", _attempts(step), _took(step, scene.now)])
    if step.kind is StepKind.WORKFLOW:
        inside = scene.some.inside.get(step.task_id)
        far = "" if inside is None else f"{inside.ended:,} of {inside.steps:,}"
        return step.name, _label([f"workflow {step.workflow_id or ''}".rstrip(), far, _took(step, scene.now)])
    kind = "" if step.type == step.name else shorten(step.type, 20)
    return step.name, _label([kind, _attempts(step), _took(step, scene.now)]) or step.state.value


def _label(words: Sequence[str]) -> str:
    return " · ".join(each for each in words if each)


def _attempts(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}" if step.attempts else ""


def _took(step: Step, now: datetime) -> str:
    time = took(step, now)
    return "" if time is None else seconds(time)


def _title(step: Step) -> str:
    kind = "" if step.type == WORKFLOW_STEP else f"{visible(step.type)}, "
    worker = f" on {visible(step.worker_id)}" if step.state is State.CLAIMED and step.worker_id else ""
    return f"{kind}{word(step)}{worker}, task {step.task_id}"


def _href(step: Step) -> str:
    return f"/workflows/{step.workflow_id}" if step.workflow_id is not None else f"/tasks/{step.task_id}"


def _kind(start: Stand, *, is_last: bool) -> str:
    return "last" if is_last else "done" if start.passed else ""
