"""The name of a Django user as the author of changes in the history."""

from __future__ import annotations

from typing import Any

from dibs.server.dashboard.texts import visible

MAX_AUTHOR = 200


def author(user: Any) -> str:
    """Return the author: `django:` and the name of the user."""
    return f"django:{visible(user.get_username())}"[:MAX_AUTHOR]
