"""The demo application: the background tasks of a small site for pictures and films.

`dibs demo` runs the whole demo; `dibs worker dibs.demo:app` starts a worker for its tasks.
"""

from __future__ import annotations

from dibs.demo import workflows
from dibs.demo.tasks import app

__all__ = ["app", "workflows"]
