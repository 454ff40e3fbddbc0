"""Make the tables of dibs."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from dibs.django import tables


def _create(apps: Any, schema_editor: Any) -> None:
    tables.create(schema_editor.connection.alias)


def _drop(apps: Any, schema_editor: Any) -> None:
    tables.drop(schema_editor.connection.alias)


class Migration(migrations.Migration):
    """Runs the migrations of dibs. Not in a transaction of Django: SQLite cannot switch to WAL mode inside of one."""

    atomic = False
    initial = True
    operations = [migrations.RunPython(_create, _drop)]  # noqa: RUF012 - as Django reads it
