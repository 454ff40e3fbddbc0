"""The parts of the admin's pages: columns of lists, sections of the pages of objects, actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dibs.client import Dibs
from dibs.django.admin.html import Html


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of a list: its heading, and the content of its cell for a row."""

    heading: str
    cell: Callable[[Any], Html]


@dataclass(frozen=True, slots=True)
class StoreAction:
    """An action on one object: its name in forms, its label, the permission that it needs and the verb that it calls.

    `past`: the label in the past tense. `applies`: False for objects whose page does not offer the action. `confirm`:
    what happens, for actions that the user has to confirm. `deletes`: the object is gone afterwards.
    """

    name: str
    label: str
    past: str
    permission: str
    run: Callable[[Dibs, Any], Any]
    applies: Callable[[Any], bool] = lambda _: True
    confirm: str = ""
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class FilterLinks:
    """A filter of a list as links: label, URL, and whether it is chosen."""

    title: str
    choices: Sequence[tuple[str, str, bool]]


@dataclass(frozen=True, slots=True)
class ListTable:
    """A table on a page: headings, and rows of cells."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Html]]


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of the page of an object: labels with values, a table, or a text."""

    title: str
    facts: Sequence[tuple[str, Html]] = ()
    table: ListTable | None = None
    content: Html = ""
    note: Html = ""


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """The page of an object. `subject`: the object, by which actions decide whether they apply; None: no actions."""

    title: str
    subject: Any
    sections: Sequence[PageSection]
    template: str = "admin/dibs/page.html"
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list: the objects, links to other pages, filters.

    `older`, `newer`: query strings of other pages. `note`: a remark about the result. `fields`: filters that the user
    types: name, label and value. `matching`: True if the actions on all matching objects are offered.
    """

    rows: Sequence[Any]
    older: str | None = None
    newer: str | None = None
    note: str = ""
    links: Sequence[FilterLinks] = ()
    fields: Sequence[tuple[str, str, str]] = ()
    search: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    matching: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatchAction:
    """An action on all objects that match the filters of a list. The user has to confirm it.

    `run`: called with the client and the request; returns the number of changed objects, and whether more may match.
    """

    name: str
    label: str
    past: str
    permission: str
    run: Callable[[Dibs, Any], tuple[int, bool]]
    confirm: str
