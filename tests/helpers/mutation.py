"""Break one condition of one `.sql` file, in memory: what a suite is worth shows when the code is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dibs.store.sqlfiles import SqlFiles

FENCES = {
    "token": re.compile(r"(task\.)?\btoken = (:token|said\.token|%\(token\)s)"),
    "worker": re.compile(r"(task\.)?\bworker_id = (:worker_id|said\.worker_id|%\(worker_id\)s)(?= AND)"),
    "state": re.compile(r"(\+?task\.)?\bstate = 'claimed'(?=\s*(RETURNING|$))|\{\{still: 'claimed'\}\}"),
}
ALWAYS = "1 = 1"

LOOKS = {
    "asked": {
        "worker": re.compile(r"(task\.)?\bworker_id = (:worker_id|%\(worker_id\)s)"),
        "request": re.compile(r"(task\.)?\brequest = (:request|%\(request\)s)"),
        "incarnation": re.compile(r"(task\.)?\bincarnation (IS :incarnation|IS NOT DISTINCT FROM %\(incarnation\)s)"),
        "lease": re.compile(r"(task\.)?\blease_until > (:now|\(SELECT now FROM moment\))"),
    },
}
"""Statements that hand out claims without writing: what each condition keeps from whom it does not concern."""


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
    """Every fence of every statement that names a token, and every condition of those in LOOKS, on both engines."""
    looks = [
        Mutation(engine, name, fence) for engine in ("sqlite", "postgres") for name in LOOKS for fence in LOOKS[name]
    ]
    return looks + [
        Mutation(engine, name, fence)
        for engine in ("sqlite", "postgres")
        for name in _files(engine).names()
        for fence in FENCES
        if FENCES["token"].search(text := _files(engine).read(name)) and "UPDATE" in text and FENCES[fence].search(text)
    ]


def apply(mutation: Mutation) -> None:
    """Break the condition for the rest of this process."""
    whole = SqlFiles.read

    def read(self: SqlFiles, name: str) -> str:
        text = whole(self, name)
        if self.package != f"dibs.store.{mutation.engine}" or name != mutation.statement:
            return text
        broken, count = LOOKS.get(name, FENCES)[mutation.fence].subn(ALWAYS, text)
        assert count == 1, f"{mutation} matches {count} times"
        return broken

    SqlFiles.read = read  # type: ignore[method-assign]


def _files(engine: str) -> SqlFiles:
    return SqlFiles(f"dibs.store.{engine}")
