"""The URLs of the dashboard: `path("dibs/", include("dibs.django.urls"))`."""

from __future__ import annotations

from django.urls import re_path

from dibs.django.dashboard import dashboard

app_name = "dibs"
urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="dashboard")]
