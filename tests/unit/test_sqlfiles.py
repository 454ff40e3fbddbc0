"""The `.sql` files: the same statements in both engines, each explained, each used, none made of user input."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.store.sqlfiles import SqlFiles
from tests.helpers.each import for_each

SOURCE = Path(dibs.__file__).parent
STORE = SOURCE / "store"
ENGINES = ("sqlite", "postgres")

# What only one engine has, and why.
ONLY = {
    "sqlite": {
        "append_history",  # it cannot update one table and insert into another in one statement
        "enqueue_history",  # the same, for all new tasks at once
        "sequence",  # where the highest id is kept, which a temporary table of the user's can hide
        "last_id",  # the ids of new tasks are counted under the write lock
        "draw_places",  # plain values are inserted, and only where a line races more than that is done
        "next_queue",  # lines are found by small probes, one statement each
        "next_type",
        "next_attempts_left",
        "paused",
        "pick",  # tasks are picked line by line under the write lock
        "pick_level",
        "pick_race",
        "race",  # where a race stands; on PostgreSQL a part of the claim
        "leave_tasks",  # what a recovery clears; on PostgreSQL the statement that recovers clears it
        "note_drawn",  # two tables take two statements
        "note_finalization",  # PostgreSQL does it in the function that claims, for those who call that in SQL
        "fresh_keys",  # both keys of a task in one fragment; PostgreSQL's enqueue needs them one by one
    },
    "postgres": {
        "enqueue_keyless",  # without keys a cheaper statement will do; SQLite looks for keys before it inserts
        "moment",  # fragments: time, history, lines and candidates are parts of one statement
        "noted",
        "lines",
        "queues_found",  # parts of lines: named by the claim, or found
        "queues_named",
        "types_found",
        "types_named",
        "in_line",
        "candidates_ordered",
        "candidates_levels",
        "candidates_race",
        "undrawn",
        "undrawn_lines",  # on SQLite each line is looked at anyway
        "random_place",
        "weighted_place",
        "still",  # keeps plans made on an empty table away from partial indexes
        "claimed",
        "to_one",  # for whom the picked tasks are; SQLite has a statement for each worker
        "to_many",
        "from_one_line",  # a claim from a single line needs no candidates
        "if_several",
        "overdue",  # the claim itself looks whether there is anything to sweep
        "wanted",
        "claim_any",  # other claims may hold the locks of all candidates
        "finalize",  # one call of a function, for programs in other languages as well; SQLite does it step by step
        "hold_workflows",  # on SQLite the write lock keeps everybody else out
        "in_turn",  # the same
        "one_snapshot",  # on SQLite every read is one
        "gaps",  # on SQLite ids are committed in their order
        "filled",
        "late_moves",
        "peek",  # on SQLite the same probes as for a claim
        "vitals",  # SQLite's are the sizes of its files
    },
}

# Words that the code fills in from fixed tables; every other placeholder is a fragment.
WORDS = {
    "order",
    "at_hand",
    "beyond",
    "levels",
    "within",
    "index",
    "key",
    "rate",
    "count",
    "limit",
    "reach",
    "span",
    "candidates",
    "alone",
    "only",
    "open_queues",
    "kinds",
    "conditions",
    "argument",
    "hands",
    "which",
    "whose",
    "rows",
}

# The only SQL that is put together in Python. Each part is a constant of its module.
ASSEMBLED = {
    "f'LISTEN {CHANNEL}'",
    "f\"SELECT current_setting('transaction_read_only'), {doing}\"",  # NULL, or the notification
    "f'SHOW {name}'",  # the three names stand in the loop above it
    "f'PRAGMA incremental_vacuum({PAGES_A_ROUND})'",
    "f'DROP TABLE temp.\"{name}\"'",  # the names of dibs' own tables, as SQLite lists them
}

SQL_WORD = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|PRAGMA|SHOW|SET|LISTEN|NOTIFY|BEGIN|SAVEPOINT)\b"
)


def folder(engine: str) -> Path:
    return STORE / engine / "sql"


def names(engine: str) -> set[str]:
    return {path.stem for path in folder(engine).glob("*.sql")}


def every_file() -> list[Path]:
    return sorted(path for engine in ENGINES for path in (STORE / engine).glob("*/*.sql"))


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"\{\{(\w+)", text))


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def engines_of(path: Path) -> tuple[str, ...]:
    """Which engines run this module: its own, or both."""
    return tuple(engine for engine in ENGINES if engine in path.parts) or ENGINES


# Names


def test_both_engines_have_the_same_statements_apart_from_the_explained_ones() -> None:
    assert names("sqlite") - names("postgres") == ONLY["sqlite"]
    assert names("postgres") - names("sqlite") == ONLY["postgres"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_reader_finds_every_file(engine: str) -> None:
    assert set(SqlFiles(f"dibs.store.{engine}").names()) == names(engine)


@for_each("path", every_file())
def test_a_file_begins_with_a_comment_that_says_what_it_is_for(path: Path) -> None:
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert re.match(r"-- \S.{15,}", first), first


@for_each("path", every_file())
def test_a_placeholder_is_a_fragment_or_a_known_word(path: Path) -> None:
    assert placeholders(path.read_text(encoding="utf-8")) <= names(path.parts[-3]) | WORDS


# Use


def literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_file_is_used() -> None:
    for engine in ENGINES:
        mentioned = {text for path, tree in modules(STORE) if engine in engines_of(path) for text in literals(tree)}
        fragments = {name for text in mentioned for name in placeholders(text)}
        fragments |= {name for path in folder(engine).glob("*.sql") for name in placeholders(path.read_text("utf-8"))}
        of_tasks = ("state", "type", "queue", "queues", "cursor", "error", "only", "dead")
        of_workflows = tuple(f"workflow_{what}" for what in ("state", "name", "cursor", "floor", "ids", "queues"))
        of_searches = ("still", "key", "worker", "since", "until", "text")
        fragments |= {f"by_{name}" for name in (*of_tasks, *of_workflows, *of_searches)}  # the conditions of lists
        assert names(engine) - mentioned - fragments == set()


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def passes_on(function: ast.FunctionDef) -> bool:
    """True for a helper that hands its first parameter to Statement as the name."""
    first = function.args.args[0].arg if function.args.args else None
    return any(
        isinstance(node, ast.Call)
        and called(node) == "Statement"
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == first
        for node in ast.walk(function)
    )


def statements_named(tree: ast.Module) -> Iterator[str]:
    """Every statement that the module names where it makes one, itself or by a helper."""
    helpers = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and passes_on(node)}
    makers = {"Statement", "SQL.text", *helpers}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in makers and node.args:
            yield from literals(node.args[0])


def test_every_statement_that_the_code_names_exists() -> None:
    named = [(path, name) for path, tree in modules(STORE) for name in statements_named(tree)]
    lacking = [
        f"{path.name}: {engine} has no {name}.sql"
        for path, name in named
        for engine in engines_of(path)
        if name not in names(engine)
    ]
    assert lacking == []
    assert len(named) > 50


def test_every_outcome_has_its_statement() -> None:
    from dibs.store.operations.finishing import _STATEMENTS

    for engine in ENGINES:
        assert {name for name, _ in _STATEMENTS.values()} <= names(engine)


# What the SQL is made of


def test_no_sql_is_put_together_from_values() -> None:
    assembled = {
        ast.unparse(node)
        for _, tree in modules(SOURCE)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        and isinstance(node.values[0], ast.Constant)
        and SQL_WORD.match(str(node.values[0].value))
    }
    assert assembled == ASSEMBLED


def test_what_is_executed_is_never_made_on_the_spot() -> None:
    made = {
        ast.unparse(node.args[0])
        for _, tree in modules(SOURCE)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("execute", "executemany", "executescript")
        and isinstance(node.args[0], (ast.JoinedStr, ast.BinOp))
    }
    assert made <= ASSEMBLED


def test_the_words_of_a_list_are_only_the_names_of_its_filters() -> None:
    from dibs.store.operations.looking import Looking, TaskFilter

    odd = "'; DROP TABLE dibs_tasks; --"
    steps = Looking().list_tasks(TaskFilter(type=odd, queue=odd, state="pending", cursor=5)).begin()
    statement = next(steps)
    conditions = ("conditions", "{{by_state}} {{by_type}} {{by_queue}} {{by_cursor}}")
    assert statement.words == (conditions, ("limit", "100"))
    assert statement.params["type"] == odd


# The reader itself


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a few statements of its own."""
    sql = tmp_path / "some_engine" / "sql"
    sql.mkdir(parents=True)
    (tmp_path / "some_engine" / "__init__.py").touch()
    (sql / "plain.sql").write_text("-- A comment.\nSELECT 1\n\n\nFROM t;\n")
    (sql / "outer.sql").write_text("-- A comment.\nSELECT {{part}} {{call: x + 1}} {{word}}\n")
    (sql / "part.sql").write_text("-- A fragment.\na, {{word}}\n")
    (sql / "call.sql").write_text("-- A fragment.\n({{argument}})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_engine", raising=False)  # that of another test, whose files are gone
    return "some_engine"


def test_comments_blank_lines_and_the_last_semicolon_are_left_out(package: str) -> None:
    assert SqlFiles(package).text("plain") == "SELECT 1\nFROM t"


def test_placeholders_are_filled_by_fragments_arguments_and_words(package: str) -> None:
    assert SqlFiles(package).text("outer", (("word", "w"),)) == "SELECT a, w (x + 1) w"


def test_a_word_that_nobody_gave_is_an_error(package: str) -> None:
    with pytest.raises(FileNotFoundError):
        SqlFiles(package).text("outer")
