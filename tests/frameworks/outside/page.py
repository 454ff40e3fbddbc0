"""The page with the outcome of the test suites: what it must have. `python -m tests.frameworks.outside.page` prints
the reasons."""

from __future__ import annotations

from tests.environments import ROOT
from tests.frameworks.outside.left_out import REASONS

PAGE = ROOT / "docs" / "guides" / "django-outside-tests.md"
DJANGO_TASKS_DB = "django-tasks-db==0.13.0"
"""A newer version may have other tests: change it here, and the table in left_out.py."""

TITLES = {"django": "Django's `tests/tasks`", "django-tasks-db": "`tests` of django-tasks-db"}


def text() -> str:
    """What stands on the page."""
    return PAGE.read_text(encoding="utf-8")


def row(suite: str, django: str, found: int, passed: int) -> str:
    """The row of the table for a suite and a version of Django, without the patch level."""
    minor = ".".join(django.split(".")[:2])
    return f"| {TITLES[suite]} | {minor} | {found} | {passed} | {found - passed} |"


def reasons() -> str:
    """The tests that do not apply, with their reasons."""
    return "\n\n".join(f"## {TITLES[suite]}: tests that do not apply\n\n{_table(suite)}" for suite in REASONS)


def _table(suite: str) -> str:
    rows = (f"| {reason} | {', '.join(f'`{name}`' for name in names)} |" for reason, names in REASONS[suite].items())
    return "\n".join(("| why | tests |", "|---|---|", *rows))


if __name__ == "__main__":
    print(reasons())
