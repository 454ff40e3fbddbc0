"""The SQL sections: the same statements in both engines, each explained, each used, none built from user input."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dibs
from dibs.store.sql import ParameterStyle, Section, SqlFiles, read_folder, to_pyformat

SOURCE = Path(dibs.__file__).parent
STORE = SOURCE / "store"
ENGINES = ("sqlite", "postgres")

# What only one engine has, and why.
ONLY = {
    "sqlite": {
        "append_history",  # it cannot update one table and insert into another in one statement
        "enqueue_history",  # the same, for all new tasks at once
        "enqueued_columns",
        "enqueue_scoped",  # keys that end need more columns, which cost every row
        "taken_keys",  # under the write lock the keys can be looked up before the insert
        "due_again",
        "last_id",  # the ids of new tasks are counted under the write lock
        "schema",  # the schema that holds the tasks: the file, the temporary tables, or an attached file
        "create_random_index",  # in the transaction that begins the order; PostgreSQL would have to stop all writers
        "number_new",  # plain values are inserted, and numbered afterwards where a random order is in use
        "enqueue_limited",  # plain values are inserted, and those of limits only where a task has them
        "next_pair",  # backlogs are found by small probes, one statement each
        "next_queue",  # streams are found and read by small probes, one statement each
        "next_level",
        "next_attempts",
        "level_is_cut",
        "read_levels",
        "read_streams",
        "part_of_stream",
        "filtered_part_of_stream",
        "create_stream_index",  # as create_random_index
        "read_numbers",
        "cut_streams",
        "paused_of",
        "queue_is_open",
        "type_is_open",
        "also_paused",
        "beyond_numbers",
        "random_order",  # the state of a random order; on PostgreSQL a part of the claim
        "advance_random_order",
        "redraw",
        "number_tasks",  # two tables take two statements
        "note_numbered",
        "fresh_keys",  # both numbers of a task in one fragment; PostgreSQL's enqueue needs them one by one
        "order_in_use",
        "position_of",
        "leave_tasks",  # what a recovery clears; on PostgreSQL the statement that recovers clears it
        "note_finalization",  # PostgreSQL does it in the SQL function that claims
        "leave_finalization",  # the same
    },
    "postgres": {
        "same_limits",  # the INSERT compares the version of the limits; SQLite reads it before, under the lock
        "registered",
        "limited_work",  # a part of the claim; on SQLite a statement of its own
        "if_ever_limited",
        "no_limited_work",
        "watchers_of_counters",  # one statement for all counters, queues and types; on SQLite one for each
        "moment",  # fragments: time, history, streams and candidates are parts of one statement
        "noted",
        "first_in_order",
        "first_in_levels",
        "number_in_stream",  # the expression that keeps the planner on an index
        "any_priority",
        "any_age",
        "any_number",
        "reach",
        "merge",
        "read_to_priority",
        "read_range",
        "from_oldest",
        "from_newest",
        "from_smallest",
        "read_stream",
        "read_part_of_stream",
        "streams_of_names",
        "streams_of_levels",
        "queues_found",
        "queues_named",
        "types_named",
        "whole_store",
        "left_by_scan",
        "left_by_merge",
        "left_by_random",
        "beyond_walk",
        "in_open_queue",
        "pairs_named",
        "attempts_found",
        "request_index",  # SQLite creates an index at once; here upkeep builds it beside all writers
        "requested_indexes",
        "overdue_indexes",
        "note_index_built",
        "note_index_error",
        "owns_tasks",
        "being_built",
        "of_open_type",
        "is_open",
        "paused",
        "random_candidates",
        "after_random",
        "random_place",
        "weighted_place",
        "number",
        "claimed",
        "still_claimable",  # a candidate is checked again under its lock
        "for_one_worker",  # for whom the picked tasks are; SQLite has a statement for each worker
        "for_each_worker",
        "overdue",  # the claim itself looks whether there is anything to sweep
        "wanted",
        "claim_any",  # other claims may hold the locks of all candidates
        "finalize",  # one call of a function, for programs in other languages as well; SQLite does it step by step
        "lock_workflows",  # on SQLite the write lock excludes other writers
        "in_turn",  # the same
        "one_snapshot",  # on SQLite every read is one
        "gaps",  # on SQLite ids are committed in their order
        "filled",
        "late_moves",
        "peek",  # on SQLite the same probes as for a claim
        "database_health",  # SQLite reports the sizes of its files
        "task_writers",  # on SQLite no other transaction writes
        "writers_left",
        "writes_tasks",
        "pause_briefly",
        "named",  # SQLite reads the items first
    },
}

# Words that the code fills in from fixed tables; every other placeholder is a fragment.
WORDS = {
    "in_queues",
    "in_types",
    "unlimited",
    "limited",
    "which",
    "order",
    "beyond",
    "levels",
    "within",
    "index",
    "kept",
    "columns",
    "other_column",
    "key",
    "rate",
    "count",
    "limit",
    "reach",
    "span",
    "candidates",
    "conditions",
    "argument",
    "holder_columns",
    "step_condition",
    "rows",
    "condition",
    "body",
    "after",
    "bound",
    "collated",
    "column",
    "cut",
    "first",
    "tasks_to_park",
    "in_stream",
    "left",
    "names",
    "of_name",
    "part",
    "number",
    "numbered",
    "passes",
    "read",
    "streams",
    "tier",
    "where",
    "age",
    "bar_holds",
    "extra",
    "in_index",
    "index_order",
    "near",
    "range",
    "read_to_bar",
}

# The only SQL that is put together in Python. Each part is a constant of its module.
ASSEMBLED = {
    "f'LISTEN {CHANNEL}'",
    "f'NOTIFY {CHANNEL}'",
    "f\"SELECT current_setting('transaction_read_only'), {doing}\"",  # NULL, or the notification
    "f'SHOW {name}'",  # the three names stand in the loop above it
    "f'CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON dibs_tasks {DEFINITIONS[name]}'",  # a name of STREAM_INDEXES
    "f'DROP INDEX CONCURRENTLY IF EXISTS {name}'",  # the same
    "f'SELECT pg_try_advisory_xact_lock({LOCK})'",
    "f'PRAGMA incremental_vacuum({PAGES_A_ROUND})'",
    "f'PRAGMA busy_timeout = {patience}'",  # the number that SQLite has returned
    "f'DROP TABLE temp.\"{name}\"'",  # the names of dibs' own tables, as SQLite lists them
}

SQL_WORD = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|ALTER|DROP|PRAGMA|SHOW|SET|LISTEN|NOTIFY|BEGIN|SAVEPOINT)\b"
)


FILES = {engine: SqlFiles(f"dibs.store.{engine}") for engine in ENGINES}


def names(engine: str) -> set[str]:
    return set(FILES[engine].names())


def sections() -> list[tuple[str, Section]]:
    """Every section with the engines that have it; a shared one comes twice."""
    return [(engine, section) for engine in ENGINES for section in FILES[engine].sections.values()]


def every_file() -> list[Path]:
    return sorted(STORE.rglob("*.sql"))


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


def test_every_file_begins_with_a_comment_about_its_theme() -> None:
    heads = {path.name: path.read_text(encoding="utf-8").splitlines()[0] for path in every_file()}
    assert {name: head for name, head in heads.items() if not re.match(r"-- [A-Z].{15,}", head)} == {}


def test_every_section_begins_with_a_comment_about_its_purpose() -> None:
    unexplained = [each.name for _, each in sections() if not re.match(r"-- \S.{15,}", each.comment)]
    assert unexplained == []


def test_every_statement_states_its_promise() -> None:
    assert [each.name for _, each in sections() if each.kind == "name" and "Promise:" not in each.comment] == []


def test_every_placeholder_is_a_fragment_or_a_known_parameter_word() -> None:
    unknown = {
        f"{engine}: {each.name} uses {word}"
        for engine, each in sections()
        for word in placeholders(each.sql)
        if word not in WORDS and FILES[engine].sections[word].kind != "fragment"
    }
    assert unknown == set()


DIALECT = re.compile(
    r"json_each|INDEXED BY|::|\bANY\b|LOCKED|FOR UPDATE|IS DISTINCT|\binstr\b|moment|%\(|RETURNING \w+\."
)
"""What only one engine understands. SQLite 3.40 does not know the alias of a table in RETURNING."""


def test_shared_sections_leave_dialects_to_fragments() -> None:
    shared = {section.name for section in read_folder(STORE / "sql" / "common")}
    texts = {name: re.sub(r"\{\{\w+", "", FILES["sqlite"].read(name)) for name in shared}
    assert {name: found[0] for name, text in texts.items() if (found := DIALECT.search(text))} == {}
    assert len(shared) > 100


# Use


def literals(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_section_is_used() -> None:
    for engine in ENGINES:
        mentioned = {text for path, tree in modules(STORE) if engine in engines_of(path) for text in literals(tree)}
        fragments = {name for text in mentioned for name in placeholders(text)}
        fragments |= {name for each in FILES[engine].sections.values() for name in placeholders(each.sql)}
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
        f"{path.name}: {engine} has no section {name}"
        for path, name in named
        for engine in engines_of(path)
        if name not in names(engine)
    ]
    assert lacking == []
    assert len(named) > 50


def test_every_outcome_has_its_statement() -> None:
    from dibs.store.operations.finish import _STATEMENTS

    for engine in ENGINES:
        assert {name for name, _ in _STATEMENTS.values()} <= names(engine)


# What the SQL is made of


def test_no_sql_is_built_from_values() -> None:
    assembled = {
        ast.unparse(node)
        for _, tree in modules(SOURCE)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        and isinstance(node.values[0], ast.Constant)
        and SQL_WORD.match(str(node.values[0].value))
    }
    assert assembled == ASSEMBLED


def test_no_executed_sql_is_built_in_place() -> None:
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


def test_the_sql_of_a_list_contains_only_the_names_of_its_filters() -> None:
    from dibs.model.search import TaskFilter
    from dibs.store.operations.flow import RulesCache
    from dibs.store.operations.inspect import Inspect

    odd = "'; DROP TABLE dibs_tasks; --"
    steps = Inspect(RulesCache()).list_tasks(TaskFilter(type=odd, queue=odd, state="pending", cursor=5)).begin()
    statement = next(steps)
    conditions = ("conditions", "AND state = :state AND type = :type AND queue = :queue AND id < :cursor")
    assert statement.words == (conditions, ("limit", "100"))
    assert statement.params["type"] == odd


# The reader itself


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with a few statements of its own, half of them shared."""
    (tmp_path / "some_engine" / "sql").mkdir(parents=True)
    (tmp_path / "some_engine" / "common").mkdir()
    (tmp_path / "some_engine" / "__init__.py").touch()
    (tmp_path / "some_engine" / "sql" / "own.sql").write_text(OWN)
    (tmp_path / "some_engine" / "common" / "shared.sql").write_text(SHARED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_engine", raising=False)  # that of another test, whose files are gone
    return "some_engine"


OWN = """\
-- The head of a file.

-- name: plain
-- A comment.
SELECT 1


FROM t;

-- fragment: part
-- A comment.
a, {{word}}
"""

SHARED = """\
-- name: outer
-- A comment.
SELECT {{part}} {{call: :x + 1}} {{word}}

-- fragment: call
-- A comment.
({{argument}})
"""


def read(package: str, style: ParameterStyle = "named") -> SqlFiles:
    return SqlFiles(package, style, shared=package)


def test_comments_blank_lines_and_the_last_semicolon_are_left_out(package: str) -> None:
    assert read(package).text("plain") == "SELECT 1\nFROM t"


def test_placeholders_are_filled_by_fragments_arguments_and_words(package: str) -> None:
    assert read(package).text("outer", (("word", "w"),)) == "SELECT a, w (:x + 1) w"


def test_parameters_are_written_as_the_driver_expects(package: str) -> None:
    assert read(package, "pyformat").text("outer", (("word", ":w"),)) == "SELECT a, %(w)s (%(x)s + 1) %(w)s"


def test_a_word_that_is_not_given_is_an_error(package: str) -> None:
    with pytest.raises(LookupError, match="no SQL section 'word'"):
        read(package).text("outer")


def test_a_name_in_two_places_is_an_error(package: str, tmp_path: Path) -> None:
    (tmp_path / "some_engine" / "sql" / "twice.sql").write_text("-- name: outer\n-- A comment.\nSELECT 2\n")
    with pytest.raises(ValueError, match=r"'outer' stands in shared\.sql and in twice\.sql"):
        read(package).names()


def test_quotes_and_casts_are_left_alone_and_percent_signs_doubled() -> None:
    text = """SELECT :a::text, ':b %', ":c", x::bigint % 2, '{"d":e}'"""
    assert to_pyformat(text) == """SELECT %(a)s::text, ':b %%', ":c", x::bigint %% 2, '{"d":e}'"""
