"""The shapes of large workflows, kept: what comes after what stays as it is, however often a page asks again.

To read and fold the dependencies of ten thousand steps takes a tenth of a second; a page that is open asks whenever a
step ends. With the shape at hand, only how the steps stand is read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dibs.server.api.workflows import seen
from dibs.server.dashboard.page import Visit
from dibs.server.dashboard.picture import fold_steps
from dibs.server.service import Service
from dibs.step import Step
from dibs.store.operations.outlining import Outline
from dibs.workflow.folding import Folding

PARENTS = 3
"""Steps that a row of the table names as those before it; of more it says how many."""

LARGE = 300
"""Smaller workflows are not worth it."""

KEPT = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """How the steps of a workflow hang together. `before`: for each the first of its parents, and how many it has.
    `whole`: nothing was left out."""

    size: int
    last: int
    folding: Folding
    before: Sequence[tuple[Sequence[int], int]]
    whole: bool

    def fits(self, steps: Sequence[Step]) -> bool:
        """True while no step was added, and none taken away."""
        return (self.size, self.last) == _extent(steps)


async def look(visit: Visit, flow: int, *, unfold: bool) -> tuple[list[Step], Shape]:
    """The steps of a workflow as they stand now, and their shape."""
    store = visit.service.store
    shapes = _SHAPES.setdefault(visit.service, OrderedDict())
    known = shapes.get((flow, unfold))
    outline = await visit.run(seen(visit, store.outline(flow, edges=known is None)))
    if known is not None and known.fits(outline.steps):
        shapes.move_to_end((flow, unfold))
        return outline.steps, known
    if known is not None:
        outline = await visit.run(seen(visit, store.outline(flow)))
    shape = await asyncio.to_thread(_shape, outline, unfold)  # not on the event loop, which others wait for
    if shape.size >= LARGE:
        shapes[flow, unfold] = shape
        while len(shapes) > KEPT:
            shapes.popitem(last=False)
    return outline.steps, shape


def _shape(outline: Outline, unfold: bool) -> Shape:
    before = [(tuple(step.after[:PARENTS]), len(step.after)) for step in outline.steps]
    return Shape(*_extent(outline.steps), fold_steps(outline.steps, unfold=unfold), before, outline.whole)


def _extent(steps: Sequence[Step]) -> tuple[int, int]:
    return len(steps), steps[-1].task_id if steps else 0


_SHAPES: WeakKeyDictionary[Service, OrderedDict[tuple[int, bool], Shape]] = WeakKeyDictionary()
