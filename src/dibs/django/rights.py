"""What a user of Django may do in the dashboard: the scopes that follow from the permissions of the admin."""

from __future__ import annotations

from typing import Any

from django.apps import apps

SCOPES: dict[str, dict[str, tuple[str, ...]]] = {
    "read": {
        "task": ("view",),
        "queue": ("view",),
        "workflow": ("view",),
        "schedule": ("view",),
        "worker": ("view",),
        "limit": ("view",),
    },
    "enqueue": {"task": ("change",), "workflow": ("change",), "schedule": ("change",)},
}
EVERY = "admin"
"""The scope of users who have every permission of dibs: with it, a user creates API keys, which allow everything."""


def scopes_of(user: Any) -> list[str]:
    """Return the scopes of a user: none for a user who is not a member of the staff, or may not see every kind."""
    if not (user.is_active and user.is_staff):
        return []
    if all(user.has_perm(name) for name in permissions()):
        return ["read", "enqueue", EVERY]
    scopes = [scope for scope, kinds in SCOPES.items() if _has(user, kinds)]
    return scopes if "read" in scopes else []


def scopes_at(path: str, scopes: list[str]) -> list[str]:
    """Return the scopes of a user for a path. In the HTTP API the scope `enqueue` would also allow to enqueue any task
    and to create schedules, for which no permission exists, so only users with every permission may write there."""
    return ["read"] if path.startswith("api/") and EVERY not in scopes and scopes else scopes


def permissions() -> list[str]:
    """Return the names of all permissions of dibs."""
    kinds = apps.get_app_config("dibs").get_models()
    return [
        f"dibs.{permission}_{kind._meta.model_name}" for kind in kinds for permission in kind._meta.default_permissions
    ]


def _has(user: Any, kinds: dict[str, tuple[str, ...]]) -> bool:
    return all(user.has_perm(f"dibs.{each}_{kind}") for kind, needed in kinds.items() for each in needed)
