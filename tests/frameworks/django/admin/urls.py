"""The URLs of a project with the admin, and with the dashboard under a path."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("ops/dibs/", include("dibs.django.urls"))]
