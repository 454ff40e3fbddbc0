"""Migrations: numbered SQL per engine, applied in order, each in a transaction, under a lock."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dibs.errors import SchemaMissing, SchemaTooNew

_COMPATIBLE = re.compile(r"^-- compatible: (\d+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*$", re.MULTILINE)


Note = Callable[[str], None]
"""Told the name of each migration before it is applied, for those who want to see how far it is."""


def tell_nobody(name: str) -> None:
    """The note of those who do not."""


@dataclass(frozen=True)
class Migration:
    """One step of the schema. `compatible`: the oldest schema version whose code still runs after this step."""

    version: int
    name: str
    sql: str
    compatible: int

    def statements(self) -> list[str]:
        """The statements one by one, without comments."""
        return [part.strip() for part in _COMMENT.sub("", self.sql).split(";") if part.strip()]


@cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of an engine, in order."""
    paths = [path for path in files(package).joinpath("migrations").iterdir() if path.name.endswith(".sql")]
    return tuple(_read(path.name, path.read_text(encoding="utf-8")) for path in sorted(paths, key=lambda p: p.name))


def _read(name: str, sql: str) -> Migration:
    version = int(name.partition("_")[0])
    found = _COMPATIBLE.search(sql)
    return Migration(version, name.removesuffix(".sql"), sql, int(found[1]) if found else version)


def missing(known: tuple[Migration, ...], applied: dict[int, int]) -> list[Migration]:
    """The migrations still to apply, given those applied (version -> compatible). SchemaTooNew where this dibs is too
    old for what a newer one made of the database."""
    newest = known[-1].version
    foreign = {version: compatible for version, compatible in applied.items() if version > newest}
    if foreign and max(foreign.values()) > newest:
        raise SchemaTooNew(
            f"The database has schema version {max(foreign)}; this dibs knows version {newest} and is too old for it."
        )
    return [migration for migration in known if migration.version not in applied]


def refuse_if_missing(todo: list[Migration]) -> None:
    """For a store that must not migrate by itself."""
    if todo:
        names = ", ".join(migration.name for migration in todo)
        raise SchemaMissing(f"The database lacks these migrations: {names}.")
