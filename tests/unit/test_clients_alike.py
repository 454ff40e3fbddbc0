"""Dibs and AsyncDibs have the same methods, parameters and docstrings; one is called, the other is awaited."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs
from dibs.client_base import ClientBase
from tests.helpers.each import for_each

CONTEXT = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


ITERATED = {"events"}
"""Methods that return an iterator: `for` or `async for`."""


def public(client: type) -> list[str]:
    """The public names of the client itself, in the order in which they are written."""
    return [name for name in vars(client) if not name.startswith("_")]


VERBS = public(Dibs)


def described(method: Any) -> list[tuple[str, Any, Any, Any]]:
    """Name, kind, default and annotation of each parameter, and what comes back: a Task or an AsyncTask (a Workflow, an
    Iterator)."""
    signature = inspect.signature(method)
    returned = re.sub("Async(Task|Workflow|Iterator)", r"\1", str(signature.return_annotation))
    parameters = [(each.name, each.kind, each.default, each.annotation) for each in signature.parameters.values()]
    return [*parameters, ("return", None, None, returned)]


def test_both_have_the_same_public_names_in_the_same_order() -> None:
    assert public(AsyncDibs) == VERBS
    assert len(VERBS) > 30


def test_both_have_the_same_class_docstring() -> None:
    assert Dibs.__doc__ == AsyncDibs.__doc__ == ClientBase.__doc__


@for_each("name", VERBS)
def test_a_method_has_the_same_parameters_defaults_and_annotations(name: str) -> None:
    assert described(getattr(Dibs, name)) == described(getattr(AsyncDibs, name))


@for_each("name", VERBS)
def test_a_method_has_a_docstring_and_both_are_the_same(name: str) -> None:
    assert getattr(Dibs, name).__doc__ == getattr(AsyncDibs, name).__doc__
    assert getattr(Dibs, name).__doc__


@for_each("name", VERBS)
def test_a_method_is_awaited_in_the_async_client_and_called_in_the_sync_client(name: str) -> None:
    if inspect.isgeneratorfunction(getattr(Dibs, name)):
        assert inspect.isasyncgenfunction(getattr(AsyncDibs, name))
        return
    assert inspect.iscoroutinefunction(getattr(AsyncDibs, name)) or name in ITERATED
    assert not inspect.iscoroutinefunction(getattr(Dibs, name))


@for_each("name", VERBS)
def test_a_method_annotates_its_parameters_and_its_return_value(name: str) -> None:
    unknown = [
        each[0]
        for each in described(getattr(Dibs, name))[1:]
        if each[3] in (inspect.Parameter.empty, str(inspect.Parameter.empty))
    ]
    assert unknown == []


@pytest.mark.parametrize(("called", "awaited"), CONTEXT.items())
def test_both_are_context_managers(called: str, awaited: str) -> None:
    assert described(vars(Dibs)[called]) == described(vars(AsyncDibs)[awaited])
    assert inspect.iscoroutinefunction(vars(AsyncDibs)[awaited])


def test_methods_that_do_not_use_the_store_are_shared() -> None:
    for name in ("on", "signed", "__init__", "__repr__"):
        assert getattr(Dibs, name) is getattr(AsyncDibs, name) is getattr(ClientBase, name)
