"""The settings. PGDATABASE chooses a database in PostgreSQL, with the other variables of libpq; else a SQLite file."""

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1]
OUTBOX = Path(os.environ.get("OUTBOX", FOLDER / "outbox"))
SECRET_KEY = os.environ.get("SECRET_KEY", "only for this example")
DEBUG = True
USE_TZ = True
ROOT_URLCONF = "gallery.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["dibs.django", "gallery"]
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": FOLDER / "gallery.sqlite3",
    "OPTIONS": {"transaction_mode": "IMMEDIATE"},
}
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ.get("PGDATABASE", "")}
DATABASES = {"default": POSTGRES if POSTGRES["NAME"] else SQLITE}  # of the pictures and of their tasks
