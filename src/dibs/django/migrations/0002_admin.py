"""Record the models of the admin, which have no tables. Their permissions are created after the migration."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

ID = models.BigIntegerField(primary_key=True, serialize=False)
NAME = models.CharField(max_length=255, primary_key=True, serialize=False)
MODELS = (
    ("DeadTask", "id", ID, ()),
    ("Limit", "name", NAME, ("view", "add", "change", "delete")),
    ("Queue", "name", NAME, ("view", "change")),
    ("Schedule", "name", NAME, ("view", "change", "delete")),
    ("Task", "id", ID, ("view", "change", "delete")),
    ("Worker", "id", NAME, ("view",)),
    ("Workflow", "id", ID, ("view", "change")),
)
NAMES = {"DeadTask": {"verbose_name": "task", "verbose_name_plural": "dead letter"}}
"""The names of models that do not follow from the name of the class."""


def _options(name: str, permissions: tuple[str, ...]) -> dict[str, Any]:
    names = NAMES.get(name, {})
    return {
        "abstract": False,
        "managed": False,
        "default_permissions": permissions,
        "base_manager_name": "objects",
        **names,
    }


class Migration(migrations.Migration):
    """Changes no table."""

    dependencies = [("dibs", "0001_initial")]  # noqa: RUF012 - as Django reads it
    operations = [  # noqa: RUF012
        migrations.CreateModel(name, [(key, field.clone())], _options(name, permissions))
        for name, key, field, permissions in MODELS
    ]
