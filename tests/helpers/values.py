"""Types that handlers take and return, with values of each."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 9


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Line(BaseModel):
    price: Decimal
    tags: set[str] = set()
    at: datetime = NOW
    path: Path = Path("a/b")
    took: timedelta = timedelta(0)
    rate: float = Field(default=0.1, multiple_of=0.1)
    code: str = Field(default="a-1", pattern=r"^\w+-\d+$")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(alias="orderNumber", gt=0)
    lines: list[Line] = []
    color: Color = Color.RED
    of: Order | None = None

    @computed_field
    def size(self) -> int:
        return len(self.lines)


class Frozen(BaseModel, frozen=True):
    n: int


class Numbers(RootModel[list[int]]):
    pass


@attrs.define
class Job:
    order: Order | None
    where: Path
    point: Point = attrs.field(factory=lambda: Point(1))
    wait: timedelta = attrs.field(default=timedelta(seconds=1), validator=attrs.validators.instance_of(timedelta))


@dataclass
class Size:
    width: int
    taken: datetime | None = None
    path: Path = Path("x")


@dataclass(frozen=True)
class Node:
    value: int
    order: Order | None = None
    children: list[Node] = field(default_factory=list)


class Album(msgspec.Struct, rename="camel"):
    name: str
    all_sizes: list[Size] = []
    by_id: dict[UUID, Job] = {}


class Tagged(msgspec.Struct, tag=True):
    n: int


class Packed(msgspec.Struct, array_like=True, tag="packed"):
    a: int
    b: Path | None = None


class Fields(TypedDict):
    a: int
    path: NotRequired[Path]


ORDER = Order(orderNumber=3, lines=[Line(price="1.50", tags={"b", "a"}, took=timedelta(days=-1))])
JOB = Job(ORDER, Path("some/where"))

VALUES: list[tuple[Any, Sequence[Any]]] = [
    (int, (7, -(2**63))),
    (float, (0.5, 7)),
    (str, ("", "ä")),
    (bool, (True,)),
    (bytes, (b"", b"\x00\xff")),
    (datetime, (NOW, NOW.replace(tzinfo=None), NOW.astimezone(timezone(timedelta(hours=-3))))),
    (date, (date(2026, 2, 28),)),
    (time, (time(1, 2, 3, 4), time(1, tzinfo=UTC))),
    (timedelta, (timedelta(0), timedelta(days=-1, microseconds=1), timedelta.max, timedelta.min)),
    (UUID, (UUID(int=7),)),
    (Decimal, (Decimal("1.50"), Decimal("1E+400"))),
    (Path, (Path("a b/ü"), Path("/"), Path())),
    (PurePosixPath, (PurePosixPath("a"),)),
    (Color, (Color.BLUE,)),
    (Level, (Level.HIGH,)),
    (Right, (Right.READ, Right.READ | Right.WRITE)),
    (Literal["a", 7], ("a", 7)),
    (Point, (Point(1, 2), Point(3))),
    (tuple[int, Path], ((1, Path("a")),)),
    (tuple[Path, ...], ((), (Path("a"), Path("b")))),
    (list[timedelta], ([timedelta(1)],)),
    (set[str], (set(), {"a", "b", "c"})),
    (set[Path], ({Path("a"), Path("b")},)),
    (frozenset[tuple[int, str]], (frozenset({(1, "a"), (2, "b")}),)),
    (set[Frozen], ({Frozen(n=1), Frozen(n=2)},)),
    (dict[int, str], ({7: "seven"},)),
    (dict[UUID, Order], ({UUID(int=1): ORDER},)),
    (dict[date, int], ({date(2026, 1, 1): 1},)),
    (dict[Level, Job], ({Level.LOW: JOB},)),
    (Order, (ORDER, Order(orderNumber=1, of=ORDER))),
    (Order | None, (None, ORDER)),
    (list[Order | None], ([ORDER, None],)),
    (Numbers, (Numbers([1, 2]),)),
    (Job, (JOB, Job(None, Path("a"), Point(5, 6)))),
    (dict[str, Job], ({"a": JOB},)),
    (Size, (Size(7, NOW), Size(8))),
    (Size | int | None, (Size(7), 5, None)),
    (Node, (Node(1, ORDER, [Node(2, None, [Node(3)])]),)),
    (Album, (Album("mine", [Size(1)], {UUID(int=2): JOB}),)),
    (Tagged, (Tagged(1),)),
    (Packed, (Packed(1), Packed(2, Path("a")))),
    (Fields, ({"a": 1}, {"a": 1, "path": Path("a")})),
    (Annotated[int, msgspec.Meta(gt=0, multiple_of=3)], (9,)),
    (Annotated[float, msgspec.Meta(multiple_of=0.25)], (0.5,)),
    (Annotated[list[str], msgspec.Meta(min_length=1)], (["a"],)),
    (Annotated[str, msgspec.Meta(pattern=r"^\w+$(?<!x)", max_length=3)], ("äö",)),
    (list, ([1, "a"],)),
    (dict, ({"a": None},)),
    (Any, ({"a": [1]},)),
    (object, ("a",)),
]
"""Annotations, with values that come back exactly as they are."""
