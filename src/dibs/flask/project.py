"""The program of a worker of a Flask application: `dibs worker dibs.flask.project`, which `flask dibs worker` runs.

The import loads the application as the flask command does. Processes that a supervisor starts, with --processes or
--reload, import this module as well.
"""

from __future__ import annotations

from dibs.errors import InvalidValue
from dibs.flask.applications import load_application
from dibs.flask.extension import NAME, FlaskDibs

__all__ = ["app"]

application = load_application()


def _extension() -> FlaskDibs:
    extension = application.extensions.get(NAME)
    if not isinstance(extension, FlaskDibs):
        raise InvalidValue(
            f"The Flask application {application.name!r} has no FlaskDibs.",
            hint="Call init_app(application) in its factory.",
        )
    return extension


app = _extension()
app.run_in(application)
