"""The URLs of the dashboard: `path("dibs/", include("dibs.django.urls"))`."""

from __future__ import annotations

from django.urls import re_path

from dibs.django.dashboard import dashboard
from dibs.django.databases import without_transaction

app_name = "dibs"
urlpatterns = [re_path(r"^(?P<path>.*)$", without_transaction(dashboard), name="dashboard")]
