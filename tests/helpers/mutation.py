"""Remove one condition of one section of SQL, in memory: a good suite fails for the broken statement."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dibs.store.migrate import Migration
from dibs.store.postgres import migrations
from dibs.store.sql import SqlFiles
from dibs.store.sqlite import finalization

ENGINES = ("sqlite", "postgres")

FENCES = {
    "token": re.compile(r"(task\.)?\btoken = (:token|items\.token)"),
    "worker": re.compile(r"(task\.)?\bworker_id = (:worker_id|items\.worker_id)(?=\s+AND)"),
    "state": re.compile(
        r"(\+?task\.)?\bstate = 'claimed'(?=\s*(\{\{step_condition\}\}|RETURNING|ON CONFLICT|$))"
        r"|\{\{unindexed: state\}\} = 'claimed'"
    ),
}
WRITES = re.compile("UPDATE|INSERT")
ALWAYS = "1 = 1"

CONDITIONS = {
    "claims_of_request": {
        "worker": re.compile(r"(task\.)?\bworker_id = :worker_id"),
        "request": re.compile(r"(task\.)?\brequest = :request"),
        "incarnation": re.compile(r"(task\.)?\bincarnation (IS :incarnation|IS NOT DISTINCT FROM :incarnation)"),
        "lease": re.compile(r"(task\.)?\blease_until > (:now|\(SELECT now FROM moment\))"),
    },
    "change_tasks": {
        "waiting": re.compile(r"\{\{unindexed: (waiting\.)?state\}\} IN \('scheduled', 'blocked', 'pending'\)")
    },
    "replace": {
        "started": re.compile(r"(?<=AND )(task\.)?\btoken = 0"),
        "state": re.compile(r"\+state = :from_state|\{\{unindexed: task\.state\}\} = items\.from_state"),
    },
    "end_keys": {"time": re.compile(r"key_until <= \{\{now\}\}")},
    "decide_steps": {"once": re.compile(r"(step\.)?\bpassed IS NULL")},
    "open_children": {"count": re.compile(r"(step\.)?\bwaits - done\.parents")},
    "claim_finalization": {"holder": re.compile(r"\(finalization_until IS NULL OR .*\)(?=\s*RETURNING)")},
    "renew_finalization": {
        "holder": re.compile(r"finalization_by = :processor"),
        "token": re.compile(r"finalization_token = :token"),
    },
    "release_finalization": {
        "holder": re.compile(r"finalization_by = :processor"),
        "token": re.compile(r"finalization_token = :token"),
    },
}
"""Statements that hand out claims without writing, or are fenced by other words than a token: what each condition keeps
from whom it does not concern."""

INSTEAD = {"count": "0"}
"""What is put in the place of an expression that is no condition."""

_HOLDER = re.compile(r"(v_)?workflow\.finalization_by = p_processor")
_TOKEN = re.compile(r"(v_)?workflow\.finalization_token = p_token")

FUNCTIONS = {
    "claim_finalization": {"holder": re.compile(r"\(workflow\.finalization_until IS NULL OR [^)]*\)(?=\s*RETURNING)")},
    "renew_finalization": {"holder": _HOLDER, "token": _TOKEN},
    "release_finalization": {"holder": _HOLDER, "token": _TOKEN},
    "finalize": {"holder": _HOLDER, "token": _TOKEN},
}
"""Conditions in functions of PostgreSQL, which a migration makes. The statements of these names only call them."""

FUNCTION_OF = {"finalize": "dibs_finalize_at"}
"""The function of a statement, where it is not called dibs_ and the statement's name."""

_check_holder = finalization._check_holder

CODE: dict[str, dict[str, Callable[[Any, Any, Any], None]]] = {
    "finalize": {
        "token": lambda workflow, processor, _: _check_holder(workflow, processor, workflow.finalization_token),
        "holder": lambda workflow, _, token: _check_holder(workflow, workflow.finalization_by, token),
    },
}
"""Fences of SQLite that are no SQL: what stands in their place. The workflow is held when they are asked."""


@dataclass(frozen=True)
class Mutation:
    """A condition of a statement that is to hold always."""

    engine: str
    statement: str
    fence: str

    def __str__(self) -> str:
        return f"{self.engine}:{self.statement}:{self.fence}"


def read(text: str) -> Mutation:
    """The mutation that `str` wrote."""
    return Mutation(*text.split(":"))


def mutations() -> list[Mutation]:
    """Every fence of every statement that names a token, and every condition in CONDITIONS, CODE and FUNCTIONS."""
    of_postgres = {name: fences for name, fences in CONDITIONS.items() if name not in FUNCTIONS}
    return [
        *_named("sqlite", CODE),
        *_named("sqlite", CONDITIONS),
        *_fenced("sqlite"),
        *_named("postgres", FUNCTIONS),
        *_named("postgres", of_postgres),
        *_fenced("postgres"),
    ]


def apply(mutation: Mutation) -> None:
    """Break the condition for the rest of this process."""
    if mutation.engine == "postgres" and mutation.statement in FUNCTIONS:
        migrations.KNOWN = tuple(_without_fence(each, mutation) for each in migrations.KNOWN)
        return
    if mutation.statement in CODE:
        finalization._check_holder = CODE[mutation.statement][mutation.fence]
        return
    whole = SqlFiles.read

    def read(self: SqlFiles, name: str) -> str:
        text = whole(self, name)
        if self.package != f"dibs.store.{mutation.engine}" or name != mutation.statement:
            return text
        pattern = CONDITIONS.get(name, FENCES)[mutation.fence]
        broken, count = pattern.subn(INSTEAD.get(mutation.fence, ALWAYS), text)
        assert count == 1, f"{mutation} matches {count} times"
        return broken

    SqlFiles.read = read  # type: ignore[method-assign]


def _without_fence(migration: Migration, mutation: Mutation) -> Migration:
    """The migration with the condition taken out of the function that it creates."""
    function = f"CREATE FUNCTION {FUNCTION_OF.get(mutation.statement, f'dibs_{mutation.statement}')}("
    before, head, rest = migration.sql.partition(function)
    body, end, after = rest.partition("\n$$;\n")
    broken, count = FUNCTIONS[mutation.statement][mutation.fence].subn(ALWAYS, body)
    assert count == 1, f"{mutation} matches {count} times"
    return replace(migration, sql=before + head + broken + end + after)


def _named(engine: str, conditions: dict[str, Any]) -> list[Mutation]:
    return [Mutation(engine, name, fence) for name, fences in conditions.items() for fence in fences]


def _fenced(engine: str) -> list[Mutation]:
    return [
        Mutation(engine, name, fence)
        for name in _files(engine).names()
        for fence in FENCES
        if FENCES["token"].search(text := _files(engine).read(name))
        and WRITES.search(text)
        and FENCES[fence].search(text)
    ]


def _files(engine: str) -> SqlFiles:
    return SqlFiles(f"dibs.store.{engine}")
