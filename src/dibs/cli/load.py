"""Load the app that MODULE:APP names, with an error message that says which part is wrong."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from dibs.cli import text
from dibs.errors import InvalidValue
from dibs.redaction import redact


def load(program: str) -> Any:
    """Return the app that `program` names. The current folder is searched first."""
    name, _, attribute = program.partition(":")
    module = _import(name)
    return _checked(_find(module, attribute or "app"), program)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        hint = "Write it as in an import, without .py: package.module:app."
        raise InvalidValue(f"{name!r} is not a valid module name.", hint=hint)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_failed(name, error) from None
        hint = "Run dibs in the folder that holds the module, or put that folder on PYTHONPATH."
        raise InvalidValue(f"The module {error.name!r} does not exist.", hint=hint) from None
    except Exception as error:
        raise _import_failed(name, error) from None


def _import_failed(name: str, error: Exception) -> InvalidValue:
    """Print the traceback of an error inside the program, and return the error for the command line."""
    formatted = traceback.TracebackException.from_exception(error)
    loader_files = (__file__, importlib.__file__)
    frames = [
        each
        for each in formatted.stack
        if each.filename not in loader_files and not each.filename.startswith("<frozen")
    ]
    formatted.stack = traceback.StackSummary.from_list(frames)
    sys.stderr.write(text.lines(redact("".join(formatted.format()))))
    return InvalidValue(
        f"The module {name!r} cannot be imported: {type(error).__name__}: {error}.",
        hint="The traceback above shows the place.",
    )


def _find(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _attribute_missing(module, path) from None
    return found


def _attribute_missing(module: ModuleType, path: str) -> InvalidValue:
    from dibs.client_base import ClientBase

    apps = [name for name, value in vars(module).items() if isinstance(value, ClientBase)]
    hint = (
        f"It has: {', '.join(f'{module.__name__}:{name}' for name in apps)}."
        if apps
        else "It has no Dibs or AsyncDibs object."
    )
    return InvalidValue(f"The module {module.__name__!r} has no {path!r}.", hint=hint)


def _checked(app: Any, program: str) -> Any:
    from dibs.client_base import ClientBase

    if not isinstance(app, ClientBase):
        hint = "Name the Dibs or AsyncDibs object that the handlers are registered with."
        raise InvalidValue(f"{program} is a {type(app).__name__}, not an app.", hint=hint)
    if not app.handlers:
        raise InvalidValue(f"{program} has no handlers.", hint=app._how_to_declare)
    return app
