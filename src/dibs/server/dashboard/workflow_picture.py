"""The picture of a workflow: the text in each box of its graph, and the target of its link.

The number of boxes is limited: equal steps are folded into one box with counts, which links to the table of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dibs.model.task import State
from dibs.model.workflow import WORKFLOW_STEP, Step, StepDetails, StepKind
from dibs.server.dashboard.graph_layout import Box, lay_out
from dibs.server.dashboard.rendering import seconds, shorten, visible
from dibs.server.dashboard.workflow_shapes import GroupStatus, NodeGroup
from dibs.workflow.summary import IGNORED, most_urgent_of, shown_state

STATES = ("completed", IGNORED, "claimed", "pending", "scheduled", "blocked", "cancelled", "failed")
"""The order of states in a bar."""

NARROW, WIDE = 116.0, 250.0
LOW, HIGH = 46.0, 60.0
LETTER, SMALL_LETTER = 7.6, 5.8
MARGIN = 34.0


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A segment of a bar for one state. The bar is 1000 units wide."""

    state: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Node:
    """A box and its text. `title`: the full text. `since`: the time of the claim. `parts`: the bar of folded steps."""

    box: Box
    kind: str
    state: str
    name: str
    label: str
    title: str
    href: str
    since: datetime | None
    parts: Sequence[BarSegment]


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge. `kind`: `done` if its source no longer blocks the target, `last` if it leads to the finalizer."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole picture."""

    width: float
    height: float
    nodes: Sequence[Node]
    arrows: Sequence[Arrow]


@dataclass(frozen=True, slots=True)
class Scene:
    """The data for the boxes: the steps of single boxes, and the URL of the page for links of folded boxes."""

    some: StepDetails
    page: str
    now: datetime


def draw(groups: Sequence[NodeGroup], statuses: Sequence[GroupStatus], scene: Scene) -> Picture:
    """Draw the groups with their statuses."""
    boxes = [_Box(group, status, scene) for group, status in zip(groups, statuses, strict=True)]
    layout = lay_out([group.after for group in groups], [box.size for box in boxes])
    nodes = [box.node(place) for box, place in zip(boxes, layout.boxes, strict=True)]
    arrows = [
        Arrow(edge.path, _kind(statuses[edge.start], is_last=groups[edge.end].is_finalizer)) for edge in layout.edges
    ]
    return Picture(layout.width, layout.height, nodes, arrows)


def bar(counts: Mapping[str, int]) -> list[BarSegment]:
    """Return the segments of a bar. Each state has a minimum width."""
    total = sum(counts.values())
    parts, x = list[BarSegment](), 0.0
    for state in STATES:
        if counts.get(state):
            width = round(max(8.0, 1000 * counts[state] / total), 1)
            parts.append(BarSegment(state, counts[state], round(x, 1), width))
            x += width
    scale = 1000 / x if x > 1000 else 1
    return [
        BarSegment(part.state, part.count, round(part.x * scale, 1), round(part.width * scale, 1)) for part in parts
    ]


def duration(step: Step, now: datetime) -> float | None:
    """Return the duration of the last attempt in seconds, up to now if it is running."""
    if step.claimed_at is None or step.state in (State.BLOCKED, State.PENDING, State.SCHEDULED):
        return None
    return max(0.0, ((step.finished_at or now) - step.claimed_at).total_seconds())


class _Box:
    """The text of a box: a name, a label, and a full title."""

    def __init__(self, group: NodeGroup, status: GroupStatus, scene: Scene) -> None:
        self._group, self._status = group, status
        self._page = scene.page
        if group.folded:
            self._step = None
            self._name, self._label = _many(group, status)
        else:
            self._step = scene.some.steps[group.ids[0]]
            self._name, self._label = _one(self._step, scene)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height of the box."""
        width = max(len(self._name) * LETTER, len(self._label) * SMALL_LETTER) + MARGIN
        return min(WIDE, max(NARROW, float(round(width)))), HIGH if self._group.folded else LOW

    def node(self, box: Box) -> Node:
        """Return the node for a position."""
        step = self._step
        return Node(
            box,
            "many" if step is None else step.kind.value,
            most_urgent_of(self._status.words) if step is None else shown_state(step),
            shorten(visible(self._name), int((box.width - MARGIN) / LETTER) + 1),
            shorten(visible(self._label), int((box.width - MARGIN) / SMALL_LETTER) + 1),
            f"{visible(self._name)}: {self._label if step is None else _title(step)}",
            self._many_href() if step is None else _href(step),
            step.claimed_at if step is not None and step.state is State.CLAIMED else None,
            bar(self._status.words) if step is None else (),
        )

    def _many_href(self) -> str:
        return f"{self._page}{'&' if '?' in self._page else '?'}of={self._group.ids[0]}#steps"


def _many(group: NodeGroup, status: GroupStatus) -> tuple[str, str]:
    counts = ", ".join(f"{status.words[state]:,} {state}" for state in reversed(STATES) if status.words.get(state))
    return f"{group.name} × {len(group.ids):,}", counts  # noqa: RUF001 (the sign for times)


def _one(step: Step, scene: Scene) -> tuple[str, str]:
    if step.kind is StepKind.FINALIZER:
        return step.type, _label(["finalizer", _attempts(step), _duration(step, scene.now)])
    if step.kind is StepKind.WORKFLOW:
        inside = scene.some.inside.get(step.task_id)
        far = "" if inside is None else f"{inside.ended:,} of {inside.steps:,}"
        return step.name, _label([f"workflow {step.workflow_id or ''}".rstrip(), far, _duration(step, scene.now)])
    kind = "" if step.type == step.name else shorten(step.type, 20)
    return step.name, _label([kind, _attempts(step), _duration(step, scene.now)]) or step.state.value


def _label(words: Sequence[str]) -> str:
    return " · ".join(each for each in words if each)


def _attempts(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}" if step.attempts else ""


def _duration(step: Step, now: datetime) -> str:
    time = duration(step, now)
    return "" if time is None else seconds(time)


def _title(step: Step) -> str:
    kind = "" if step.type == WORKFLOW_STEP else f"{visible(step.type)}, "
    worker = f" on {visible(step.worker_id)}" if step.state is State.CLAIMED and step.worker_id else ""
    return f"{kind}{shown_state(step)}{worker}, task {step.task_id}"


def _href(step: Step) -> str:
    return f"/workflows/{step.workflow_id}" if step.workflow_id is not None else f"/tasks/{step.task_id}"


def _kind(start: GroupStatus, *, is_last: bool) -> str:
    return "last" if is_last else "done" if start.passed else ""
