"""Print figures about the structure of the code: files, lines, repeated class names, base classes, import depth, SQL.

Run it with `python -m tools.structure`. A decision page keeps the figures of earlier commits for comparison.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "dibs"


def python_files() -> list[Path]:
    """All modules of the package."""
    return sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def code_lines(path: Path) -> int:
    """Lines of a Python file without blank lines, comments and docstrings."""
    source = path.read_text()
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(
        1 for number, line in lines if number not in skipped and line.strip() and not line.strip().startswith("#")
    )


def sql_lines(path: Path) -> int:
    """Lines of an SQL file without blank lines and comments."""
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("--"))


def class_names() -> dict[str, list[str]]:
    """Public class names and type aliases -> the modules that define them."""
    found = defaultdict(list)
    for path in python_files():
        if path.parent.name == "migrations":  # Django finds a migration by the name of its class
            continue
        for node in ast.parse(path.read_text()).body:
            name = _defined_type(node)
            if name is not None and not name.startswith("_"):
                found[name].append(module_name(path))
    return dict(found)


def _defined_type(node: ast.stmt) -> str | None:
    if isinstance(node, ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        is_alias = isinstance(node.value, ast.Subscript | ast.BinOp) and name[0].isupper() and not name.isupper()
        return name if is_alias else None
    return None


def imports(path: Path, known: set[str]) -> Iterator[str]:
    """The modules of the package that a module imports when it is imported."""
    for node in _run_on_import(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)


def _run_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _run_on_import(node.body)


def import_depths() -> dict[str, int]:
    """The number of modules in the longest chain of imports that begins at each module."""
    paths = {module_name(path): path for path in python_files()}
    graph = {name: set(imports(path, set(paths))) - {name} for name, path in paths.items()}
    under_way: set[str] = set()

    @cache
    def depth(name: str) -> int:
        under_way.add(name)
        deepest = max((depth(each) for each in graph[name] if each not in under_way), default=0)
        under_way.discard(name)
        return deepest + 1

    return {name: depth(name) for name in graph}


def base_classes() -> dict[str, int]:
    """The number of classes in the method resolution order of each store."""
    from dibs.store.postgres.store import PostgresStore  # noqa: PLC0415
    from dibs.store.remote.store import RemoteStore  # noqa: PLC0415
    from dibs.store.sqlite.store import SqliteStore  # noqa: PLC0415

    return {each.__name__: len(each.__mro__) for each in (SqliteStore, PostgresStore, RemoteStore)}


def report() -> Iterator[str]:
    """The figures, one a line."""
    modules, statements = python_files(), sorted(ROOT.rglob("*.sql"))
    yield f"Python files                       {len(modules)}"
    yield f"Python files under 50 lines        {sum(len(p.read_text().splitlines()) < 50 for p in modules)}"
    yield f"Python lines without comments      {sum(map(code_lines, modules))}"
    yield f"SQL files                          {len(statements)}"
    yield f"SQL lines without comments         {sum(map(sql_lines, statements))}"
    repeated = {name: where for name, where in class_names().items() if len(where) > 1}
    yield f"class names defined more than once {len(repeated)}"
    for store, number in base_classes().items():
        yield f"classes in the MRO of {store:<13}{number}"
    depths = import_depths()
    for name in ("dibs.store.contract", "dibs.client"):
        yield f"import depth of {name:<19}{depths[name]}"
    deepest = max(depths, key=lambda name: depths[name])
    yield f"import depth of {deepest:<19}{depths[deepest]} (the deepest)"
    if "--names" in sys.argv:
        yield from (f"  {name}: {', '.join(where)}" for name, where in sorted(repeated.items()))


if __name__ == "__main__":
    print("\n".join(report()))
