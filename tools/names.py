"""Check names: a public class is defined once, and no module, class or function is named with a retired word.

Run by `make check`: class names of the package; retired words also in bench, tools and the helpers of tests. The
retired words and their replacements are in docs/concepts/glossary.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.structure import class_names, module_name, python_files

RETIRED = frozenset(
    {
        *(
            "asked",
            "batching",
            "board",
            "contact",
            "crew",
            "desk",
            "fencing",
            "finding",
            "gate",
            "gathering",
            "holding",
        ),
        *("house", "looking", "measuring", "mishap", "mishaps", "outlining", "pulse", "racing", "said", "sampling"),
        *("shelf", "standing", "standings", "still", "tallying", "tending", "together", "told", "undrawn", "vitals"),
        *("draws", "races", "whoever", "wish", "wishes", "witness"),
    }
)
RETIRED_MODULES = frozenset({"body", "frame", "line", "lost", "part", "shape", "shapes", "trend", "waiting"})
"""Words that are clear inside the name of a function, and unclear in the name of a module of the package."""

OTHER_FOLDERS = ("bench", "tests/helpers", "tools")
"""Folders beside the package whose names are checked for retired words."""

WIRE = "dibs.wire."
"""The structs of the HTTP API may have the names of the model's types: they are written `wire.Task`."""

DJANGO_MODELS = "dibs.django.models"
"""The models of Django's admin may have them too: permissions and URLs have their names (`dibs.view_task`)."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def doubled(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Public class names that are defined in more than one module. `names`: class name -> modules."""
    for name, modules in sorted(names.items()):
        structs = [module for module in modules if module.startswith(WIRE)]
        django = [module for module in modules if module == DJANGO_MODELS]
        for homes in (structs, django, [module for module in modules if module not in (*structs, *django)]):
            if len(homes) > 1:
                yield f"The class name {name} is defined {len(homes)} times: {', '.join(homes)}."


def retired(source: str, module: str) -> Iterator[str]:
    """Names of a module, its classes and functions that contain a retired word."""
    if module.startswith("dibs."):
        for word in sorted(RETIRED_MODULES & words_of(module.rpartition(".")[2])):
            yield f"{module}: {word!r} is retired in the name of a module."
    for name, line in _names(source, module):
        for word in sorted(words_of(name) & RETIRED):
            yield f"{module}, line {line}: {name} contains the retired word {word!r}."


def words_of(name: str) -> set[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return {word.lower() for word in _WORD.findall(name)}


def _names(source: str, module: str) -> Iterator[tuple[str, int]]:
    yield module.rpartition(".")[2], 1
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno


def main() -> int:
    """Print what is wrong; the exit code is 1 if anything is."""
    problems = [*doubled(class_names())]
    for path in python_files():
        problems += retired(path.read_text(), module_name(path))
    for path in (path for folder in OTHER_FOLDERS for path in sorted(Path(folder).rglob("*.py"))):
        problems += retired(path.read_text(), ".".join(path.with_suffix("").parts))
    for problem in problems:
        print(problem)
    if problems:
        print(f"Names to change: {len(problems)}; docs/concepts/glossary.md has the current terms.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
