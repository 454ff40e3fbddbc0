"""Every page of the dashboard."""

from __future__ import annotations

from dibs.server.dashboard import assets, signin
from dibs.server.dashboard.page import Page
from dibs.server.dashboard.plain import PlainPage

PAGES: list[Page | PlainPage] = [assets.files, *signin.PAGES]
