"""Orders of claiming: `order` by its own name, or `sort_by` and `sort_order`, which map onto them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from dibs.body.fields import Body, not_both
from dibs.errors import InvalidValue
from dibs.model.claim import Order

_SORTS = {
    ("priority", "desc"): Order.PRIORITY,
    ("priority", "asc"): Order.PRIORITY_ASC,
    ("created_at", "asc"): Order.FIFO,
    ("created_at", "desc"): Order.LIFO,
    ("random", "asc"): Order.RANDOM,
    ("random", "desc"): Order.RANDOM,
}
_USUAL = {"priority": "desc", "created_at": "asc", "random": "asc"}


class Ordered(Body, frozen=True):
    """Which of the tasks first."""

    rules = (not_both("order", "sort_by"), not_both("order", "sort_order"))

    order: Annotated[Order, Meta(description="Instead of sort_by and sort_order.")] | None = None
    sort_by: (
        Annotated[Literal["priority", "created_at", "random"], Meta(description="What decides; by default priority.")]
        | None
    ) = None
    sort_order: (
        Annotated[
            Literal["asc", "desc"],
            Meta(description="By default desc for priority, asc for created_at; random has none."),
        ]
        | None
    ) = None


def order_of(body: Ordered) -> Order:
    """The order that a body asks for; priority where it says nothing."""
    if body.order is not None:
        if body.sort_by is not None or body.sort_order is not None:
            raise InvalidValue("Give either order, or sort_by and sort_order.")
        return body.order
    sort_by = body.sort_by or "priority"
    return _SORTS[sort_by, body.sort_order or _USUAL[sort_by]]
