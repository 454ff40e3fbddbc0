"""The check of names in `make check`: a class name has one definition, and retired words do not come back."""

from __future__ import annotations

import pytest

from tools.names import doubled, retired


def test_a_class_name_that_two_modules_define_is_reported() -> None:
    [problem] = doubled({"Row": ["dibs.a", "dibs.b"], "Task": ["dibs.a"]})
    assert problem == "The class name Row is defined 2 times: dibs.a, dibs.b."


def test_a_wire_struct_may_have_the_name_of_its_model_type() -> None:
    assert list(doubled({"Task": ["dibs.model.task", "dibs.wire.tasks"]})) == []
    assert len(list(doubled({"Task": ["dibs.wire.claims", "dibs.wire.tasks"]}))) == 1


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


def test_a_retired_word_inside_another_word_is_not_reported() -> None:
    assert list(retired("def keyboard() -> None: ...", "dibs.storytold")) == []
