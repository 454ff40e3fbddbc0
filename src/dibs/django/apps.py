"""The Django app of dibs."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate

from dibs.django import tables


class DibsConfig(AppConfig):
    """The app "dibs.django". The models are for the admin and have no tables; a migration makes those of dibs."""

    name = "dibs.django"
    label = "dibs"
    verbose_name = "dibs"

    def ready(self) -> None:
        """Register the system checks, and keep the tables up to date after each `migrate`."""
        from dibs.django import checks

        checks.register()
        post_migrate.connect(tables.after_migrate, sender=self, dispatch_uid="dibs")
