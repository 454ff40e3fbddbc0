"""The page of promises names existing tests, and every fault under each promise that the fault tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.helpers.each import for_each
from tests.stress.scenarios import all_scenarios

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"
TEXT = PAGE.read_text(encoding="utf-8")

LINKS = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", TEXT)
PROMISES = {
    int(number): re.findall(r"\[`(\w+)`\]\(([^)]+)\)", section)
    for number, section in re.findall(r"^## (\d+)\. (.*?)(?=^## )", TEXT, re.MULTILINE | re.DOTALL)
}


def test_the_promises_are_numbered_as_in_the_scenarios() -> None:
    assert list(PROMISES) == list(range(1, 13))


@for_each("name, path", LINKS)
def test_every_link_is_to_a_test_that_exists(name: str, path: str) -> None:
    file = (PAGE.parent / path).resolve()
    assert file.is_file()
    assert name in functions_of(file) if name.startswith("test_") else file.stem == name


@for_each("number", PROMISES)
def test_every_promise_lists_its_tests_and_its_faults(number: int) -> None:
    names = [name for name, _ in PROMISES[number]]
    assert [name for name in names if name.startswith("test_")]
    faults = {scenario.name for scenario in all_scenarios() if number in scenario.promises}
    assert {name for name in names if not name.startswith("test_")} == faults
    assert faults


@cache
def functions_of(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
