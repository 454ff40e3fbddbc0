"""The program of a worker of a Django project: `dibs worker dibs.django.project`, which `manage.py dibs worker` runs.

The import sets up Django and imports the modules in which the project declares tasks. Processes that a supervisor
starts, with `--processes` or `--reload`, import this module as well.
"""

from __future__ import annotations

from dibs.django.attempts import set_up
from dibs.django.client import app
from dibs.django.discovery import discover

__all__ = ["app"]


set_up()
discover()
