"""The kinds of objects that Django's admin shows: unmanaged models, which have no table.

A model gives its kind the permissions (`dibs.view_task`), the place in the admin and the entries in the admin's log.
The admin reads the objects with the verbs of the client; a query for one of the models finds nothing and asks no
database.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class StoreManager(models.Manager):
    """Finds nothing: `dumpdata` and other commands that read all models find no table of these models."""

    def get_queryset(self) -> Any:
        """Return an empty query set."""
        return super().get_queryset().none()


class StoreModel(models.Model):
    """A kind of objects in dibs' store."""

    objects = StoreManager()

    class Meta:
        """Meta data of all models."""

        abstract = True
        managed = False
        base_manager_name = "objects"
        default_permissions: tuple[str, ...] = ("view", "change", "delete")

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class Task(StoreModel):
    """A task. `change`: retry and cancel; `delete`: discard."""

    id = models.BigIntegerField(primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""


class DeadTask(StoreModel):
    """A task of the dead letter, with the permissions of tasks."""

    id = models.BigIntegerField(primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""

        verbose_name = "task"
        verbose_name_plural = "dead letter"
        default_permissions = ()


class Queue(StoreModel):
    """A queue. `change`: pause and resume."""

    name = models.CharField(max_length=255, primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""

        default_permissions = ("view", "change")


class Workflow(StoreModel):
    """A workflow. `change`: retry and cancel."""

    id = models.BigIntegerField(primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""

        default_permissions = ("view", "change")


class Schedule(StoreModel):
    """A schedule. `change`: run now, enable and disable; `delete`: remove."""

    name = models.CharField(max_length=255, primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""


class Worker(StoreModel):
    """A worker."""

    id = models.CharField(max_length=255, primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""

        default_permissions = ("view",)


class Limit(StoreModel):
    """A limit. `add` and `change`: set; `delete`: remove."""

    name = models.CharField(max_length=255, primary_key=True)

    class Meta(StoreModel.Meta):
        """Meta data."""

        default_permissions = ("view", "add", "change", "delete")
