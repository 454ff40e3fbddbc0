"""The picture of a workflow: for each box of the graph its size, text, state and link; for each edge its path.

`workflow_graphs` groups the steps: a group of several steps is one folded box with counts, so the number of boxes is
limited. `graph_layout` computes the positions, and the macros in `templates/drawing.html` draw the result as SVG. The
sizes below are in units of that SVG and must fit the fonts in the style sheet. `kind` and `state` of a node are names
of CSS classes. Names of steps are chosen by users: `visible` makes their control characters visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dibs.model.task import State
from dibs.model.workflow import WORKFLOW_STEP, Step, StepDetails, StepKind
from dibs.server.dashboard.graph_layout import Box, lay_out
from dibs.server.dashboard.texts import seconds, shorten, visible
from dibs.server.dashboard.workflow_graphs import GroupStatus, NodeGroup
from dibs.workflow.summary import IGNORED, most_urgent_of, shown_state

STATES = ("completed", IGNORED, "claimed", "pending", "scheduled", "blocked", "cancelled", "failed")
"""The order of the states in a bar, from left to right."""

MIN_WIDTH, MAX_WIDTH = 116.0, 250.0
HEIGHT, FOLDED_HEIGHT = 46.0, 60.0
NAME_LETTER, LABEL_LETTER = 7.6, 5.8
"""The average width of a letter in the name and in the label of a box."""

MARGIN = 34.0
"""The width of a box that its text cannot use."""

BAR_WIDTH, MIN_SEGMENT = 1000.0, 8.0


@dataclass(frozen=True, slots=True)
class BarSegment:
    """The segment of a bar for one state. `x`, `width`: in units of which the bar has BAR_WIDTH."""

    state: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Node:
    """A box of the picture. `name`, `label`: the two lines of text, shortened. `title`: the full text. `since`: the
    time of the claim, if the step is claimed. `segments`: the bar of a folded box."""

    box: Box
    kind: str
    state: str
    name: str
    label: str
    title: str
    href: str
    since: datetime | None
    segments: Sequence[BarSegment]


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge. `kind`: "last" if the edge leads to the finalizer, else "done" if its source no longer blocks its
    target."""

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
    """The data for the boxes. `details`: the steps of all boxes that are not folded. `page`: the URL of the page, for
    the links of folded boxes."""

    details: StepDetails
    page: str
    now: datetime


def draw(groups: Sequence[NodeGroup], statuses: Sequence[GroupStatus], scene: Scene) -> Picture:
    """Return the picture of the groups. `statuses`: the status of each group, in the same order."""
    boxes = [_BoxText(group, status, scene) for group, status in zip(groups, statuses, strict=True)]
    layout = lay_out([group.after for group in groups], [box.size for box in boxes])
    nodes = [box.node(place) for box, place in zip(boxes, layout.boxes, strict=True)]
    arrows = [
        Arrow(edge.path, _arrow_kind(statuses[edge.start], to_finalizer=groups[edge.end].is_finalizer))
        for edge in layout.edges
    ]
    return Picture(layout.width, layout.height, nodes, arrows)


def bar(counts: Mapping[str, int]) -> list[BarSegment]:
    """Return the segments of a bar. A state with few steps still gets a segment that can be seen."""
    total = sum(counts.values())
    segments, x = list[BarSegment](), 0.0
    for state in STATES:
        if counts.get(state):
            width = round(max(MIN_SEGMENT, BAR_WIDTH * counts[state] / total), 1)
            segments.append(BarSegment(state, counts[state], round(x, 1), width))
            x += width
    scale = BAR_WIDTH / x if x > BAR_WIDTH else 1
    return [
        BarSegment(each.state, each.count, round(each.x * scale, 1), round(each.width * scale, 1)) for each in segments
    ]


def duration(step: Step, now: datetime) -> float | None:
    """Return the duration of the last attempt in seconds, up to now if the attempt is running; None before the first
    attempt and while the step waits for its next attempt."""
    if step.claimed_at is None or step.state in (State.BLOCKED, State.PENDING, State.SCHEDULED):
        return None
    return max(0.0, ((step.finished_at or now) - step.claimed_at).total_seconds())


class _BoxText:
    """The text of a box, which decides its size before the layout, and from which its node is made afterwards."""

    def __init__(self, group: NodeGroup, status: GroupStatus, scene: Scene) -> None:
        self._group, self._status = group, status
        self._page = scene.page
        if group.folded:
            self._step = None
            self._name, self._label = _text_of_group(group, status)
        else:
            self._step = scene.details.steps[group.ids[0]]
            self._name, self._label = _text_of_step(self._step, scene)

    @property
    def size(self) -> tuple[float, float]:
        """The width and height of the box."""
        width = max(len(self._name) * NAME_LETTER, len(self._label) * LABEL_LETTER) + MARGIN
        height = FOLDED_HEIGHT if self._group.folded else HEIGHT
        return min(MAX_WIDTH, max(MIN_WIDTH, float(round(width)))), height

    def node(self, box: Box) -> Node:
        """Return the node at the position that the layout chose."""
        step = self._step
        return Node(
            box,
            "many" if step is None else step.kind.value,
            most_urgent_of(self._status.counts) if step is None else shown_state(step),
            shorten(visible(self._name), int((box.width - MARGIN) / NAME_LETTER) + 1),
            shorten(visible(self._label), int((box.width - MARGIN) / LABEL_LETTER) + 1),
            f"{visible(self._name)}: {self._label if step is None else _title(step)}",
            self._group_href() if step is None else _step_href(step),
            step.claimed_at if step is not None and step.state is State.CLAIMED else None,
            bar(self._status.counts) if step is None else (),
        )

    def _group_href(self) -> str:
        """Return the link to the table of the steps in this folded box."""
        return f"{self._page}{'&' if '?' in self._page else '?'}of={self._group.ids[0]}#steps"


def _text_of_group(group: NodeGroup, status: GroupStatus) -> tuple[str, str]:
    counts = ", ".join(f"{status.counts[state]:,} {state}" for state in reversed(STATES) if status.counts.get(state))
    return f"{group.name} × {len(group.ids):,}", counts  # noqa: RUF001 (the sign for times)


def _text_of_step(step: Step, scene: Scene) -> tuple[str, str]:
    if step.kind is StepKind.FINALIZER:
        return step.type, _label(["finalizer", _attempts(step), _duration(step, scene.now)])
    if step.kind is StepKind.WORKFLOW:
        inside = scene.details.inside.get(step.task_id)
        progress = "" if inside is None else f"{inside.ended:,} of {inside.steps:,}"
        return step.name, _label([f"workflow {step.workflow_id or ''}".rstrip(), progress, _duration(step, scene.now)])
    type_name = "" if step.type == step.name else shorten(step.type, 20)
    return step.name, _label([type_name, _attempts(step), _duration(step, scene.now)]) or step.state.value


def _label(texts: Sequence[str]) -> str:
    return " · ".join(text for text in texts if text)


def _attempts(step: Step) -> str:
    return f"{step.attempts}/{step.max_attempts}" if step.attempts else ""


def _duration(step: Step, now: datetime) -> str:
    time = duration(step, now)
    return "" if time is None else seconds(time)


def _title(step: Step) -> str:
    type_name = "" if step.type == WORKFLOW_STEP else f"{visible(step.type)}, "
    worker = f" on {visible(step.worker_id)}" if step.state is State.CLAIMED and step.worker_id else ""
    return f"{type_name}{shown_state(step)}{worker}, task {step.task_id}"


def _step_href(step: Step) -> str:
    return f"/workflows/{step.workflow_id}" if step.workflow_id is not None else f"/tasks/{step.task_id}"


def _arrow_kind(source: GroupStatus, *, to_finalizer: bool) -> str:
    return "last" if to_finalizer else "done" if source.passed else ""
