"""A name that the tests import. The tests that use it are left out."""

from django.contrib.admin import ModelAdmin as DBTaskResultAdmin

__all__ = ["DBTaskResultAdmin"]
