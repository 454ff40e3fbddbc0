"""The check of names in `make check`: a class name has one definition, and retired words do not come back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.names import RETIRED, RETIRED_MODULES, doubled, retired

GLOSSARY = Path(__file__).parents[2] / "docs" / "concepts" / "glossary.md"


def test_a_class_name_that_two_modules_define_is_reported() -> None:
    [problem] = doubled({"Row": ["dibs.a", "dibs.b"], "Task": ["dibs.a"]})
    assert problem == "The class name Row is defined 2 times: dibs.a, dibs.b."


def test_a_wire_struct_may_have_the_name_of_its_model_type() -> None:
    assert list(doubled({"Task": ["dibs.model.task", "dibs.wire.tasks"]})) == []
    assert len(list(doubled({"Task": ["dibs.wire.claims", "dibs.wire.tasks"]}))) == 1


def test_a_model_of_the_django_admin_may_have_the_name_of_its_model_type() -> None:
    assert list(doubled({"Task": ["dibs.model.task", "dibs.wire.tasks", "dibs.django.models"]})) == []
    assert len(list(doubled({"Task": ["dibs.django.admin.tasks", "dibs.model.task"]}))) == 1


@pytest.mark.parametrize(
    ("source", "module", "word"),
    [
        ("", "dibs.server.desk", "desk"),
        ("class LiveBoard: ...", "dibs.server", "board"),
        ("def is_told() -> None: ...", "dibs.server", "told"),
        ("class A:\n    async def ask_whoever(self) -> None: ...", "dibs.server", "whoever"),
    ],
)
def test_a_retired_word_in_a_name_is_reported(source: str, module: str, word: str) -> None:
    [problem] = retired(source, module)
    assert problem.endswith(f"contains the retired word {word!r}.")


def test_a_word_that_is_retired_for_modules_may_be_in_the_name_of_a_function() -> None:
    [problem] = retired("", "dibs.store.sqlite.line")
    assert problem == "dibs.store.sqlite.line: 'line' is retired in the name of a module."
    assert list(retired("def write_line() -> None: ...", "dibs.cli.output")) == []
    assert list(retired("", "tests.helpers.waiting")) == []  # a rule for the package


def test_a_retired_word_is_found_among_other_words_of_a_module() -> None:
    [problem] = retired("", "dibs.server.dashboard.workflow_shapes")
    assert problem.endswith("'shapes' is retired in the name of a module.")
    assert len(list(retired("def gate() -> None: ...", "bench.queues.systems"))) == 1


def test_a_retired_word_inside_another_word_is_not_reported() -> None:
    assert list(retired("def keyboard() -> None: ...", "dibs.storytold")) == []


def test_the_glossary_lists_the_retired_words_of_the_check() -> None:
    listed = GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2]
    missing = {word for word in RETIRED | RETIRED_MODULES if not re.search(rf"\b{word}", listed)}
    assert missing == set()
