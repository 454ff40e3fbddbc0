"""dibs in Flask applications: the extension FlaskDibs, and the command `flask dibs`.

The store is the one that the configuration of the application names. Handlers run in an application context.
"""

from __future__ import annotations

from dibs.flask.extension import FlaskDibs

__all__ = ["FlaskDibs"]
