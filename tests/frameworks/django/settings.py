"""The settings of the tests: a database of each engine. The fixtures say where they are."""

import django

SECRET_KEY = "of the tests"
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.frameworks.django.shop.urls"
INSTALLED_APPS = ["django.contrib.contenttypes", "dibs.django", "tests.frameworks.django.shop"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")  # its system check calls the backends
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "", "OPTIONS": {"transaction_mode": "IMMEDIATE"}},
    "postgres": {"ENGINE": "django.db.backends.postgresql", "NAME": ""},
}
DATABASE_ROUTERS = ["tests.frameworks.django.shop.routers.UnderTest"]
TASKS = {"default": {"BACKEND": "dibs.django.DibsBackend", "QUEUES": []}}
