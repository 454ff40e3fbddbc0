"""Migrations: numbered SQL per engine, applied in order, each in a transaction, under a lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dibs.errors import SchemaMissing, SchemaTooNew, StoreError

_COMPATIBLE = re.compile(r"^-- compatible: (\d+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*$", re.MULTILINE)


OnMigration = Callable[[str], None]
"""Called with the name of each migration before it is applied."""


def ignore_migration(name: str) -> None:
    """An OnMigration that does nothing."""


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


class Applied(NamedTuple):
    """An applied migration, from the table dibs_migrations of the database."""

    name: str
    compatible: int


@cache
def migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of an engine, in order."""
    paths = [path for path in files(package).joinpath("migrations").iterdir() if path.name.endswith(".sql")]
    return tuple(_read(path.name, path.read_text(encoding="utf-8")) for path in sorted(paths, key=lambda p: p.name))


def _read(name: str, sql: str) -> Migration:
    version = int(name.partition("_")[0])
    found = _COMPATIBLE.search(sql)
    return Migration(version, name.removesuffix(".sql"), sql, int(found[1]) if found else version)


def missing(known: tuple[Migration, ...], applied: Mapping[int, Applied]) -> list[Migration]:
    """The migrations that are not applied yet. `applied`: the applied migrations by version. SchemaTooNew if a newer
    dibs has changed the schema so that this one cannot use it; StoreError for a database with other migrations."""
    _refuse_other_migrations(known, applied)
    newest = known[-1].version
    foreign = {version: each.compatible for version, each in applied.items() if version > newest}
    if foreign and max(foreign.values()) > newest:
        raise SchemaTooNew(
            f"The database has schema version {max(foreign)}; this dibs knows version {newest} and is too old for it."
        )
    return [migration for migration in known if migration.version not in applied]


def _refuse_other_migrations(known: tuple[Migration, ...], applied: Mapping[int, Applied]) -> None:
    """Refuse a database from before the migrations were squashed: its first migration has another name."""
    for migration in known:
        found = applied.get(migration.version)
        if found is not None and found.name != migration.name:
            raise StoreError(
                f"The database has the migration {found.name}, and this dibs has {migration.name} in its place:"
                " a development version from before the first release made this database.",
                hint="Open an empty database. Finish the tasks of the old one with the version of dibs that made it."
                " Nothing was changed.",
            )


def refuse_if_missing(todo: list[Migration]) -> None:
    """Raise SchemaMissing if migrations are missing, for a store that must not migrate by itself."""
    if todo:
        names = ", ".join(migration.name for migration in todo)
        raise SchemaMissing(f"The database lacks these migrations: {names}.")
