"""The program of a worker of a Django project: `dibs worker dibs.django.project`, which `manage.py dibs worker` runs.

The import sets up Django and imports the modules in which the project declares tasks. Processes that a supervisor
starts, with `--processes` or `--reload`, import this module as well.
"""

from __future__ import annotations

import importlib

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from dibs.django.attempts import set_up
from dibs.django.client import app
from dibs.django.configuration import task_modules

__all__ = ["app"]


def discover() -> None:
    """Import the modules `tasks` of all installed apps, those that OPTIONS["modules"] names, and what the URLconf
    imports: tasks may be declared beside views."""
    autodiscover_modules(*task_modules())
    if urlconf := getattr(settings, "ROOT_URLCONF", None):
        importlib.import_module(urlconf)


set_up()
discover()
