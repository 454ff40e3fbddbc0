"""Imports the modules in which a project declares tasks."""

from __future__ import annotations

import importlib
from functools import cache

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from dibs.django.configuration import task_modules


@cache
def discover() -> None:
    """Import the modules `tasks` of all installed apps, those that OPTIONS["modules"] names, and what the URLconf
    imports: tasks may be declared beside views."""
    autodiscover_modules(*task_modules())
    if urlconf := getattr(settings, "ROOT_URLCONF", None):
        importlib.import_module(urlconf)
