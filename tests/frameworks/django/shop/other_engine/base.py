"""The dummy backend of Django, with a name."""

from django.db.backends.dummy.base import DatabaseWrapper as DummyWrapper


class DatabaseWrapper(DummyWrapper):
    vendor = "other"
    display_name = "Other Database"
