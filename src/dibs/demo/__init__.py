"""The demo: the background work of a small site for pictures and films, lively enough to watch.

`dibs demo` runs it; `dibs worker dibs.demo:app` works for it.
"""

from __future__ import annotations

from dibs.demo import workflows
from dibs.demo.tasks import app

__all__ = ["app", "workflows"]
