"""The settings of the project in which the test suites run. The database under test is in the environment."""

import json
import os

import django

SECRET_KEY = "of the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["DATABASE"])}
INSTALLED_APPS = ["dibs.django", "django_tasks_db", "tests"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
