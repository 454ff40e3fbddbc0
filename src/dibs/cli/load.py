"""From MODULE:APP to the app, or to a message that says which part of that went wrong."""

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
    """The app that the program names, found from the current folder on."""
    name, _, attribute = program.partition(":")
    module = _import(name)
    return _checked(_find(module, attribute or "app"), program)


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        hint = "Write it as in an import, without .py: package.module:app."
        raise InvalidValue(f"{name!r} is no name of a module.", hint=hint)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from None
        hint = "Run dibs in the folder that holds the module, or put that folder on PYTHONPATH."
        raise InvalidValue(f"There is no module {error.name!r}.", hint=hint) from None
    except Exception as error:
        raise _broken(name, error) from None


def _broken(name: str, error: Exception) -> InvalidValue:
    """The program's own mistake: show where it is."""
    shown = traceback.TracebackException.from_exception(error)
    ours = (__file__, importlib.__file__)
    kept = [each for each in shown.stack if each.filename not in ours and not each.filename.startswith("<frozen")]
    shown.stack = traceback.StackSummary.from_list(kept)
    sys.stderr.write(text.lines(redact("".join(shown.format()))))
    return InvalidValue(f"The module {name!r} cannot be imported: {type(error).__name__}: {error}.", hint="See above.")


def _find(module: ModuleType, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _no_such(module, path) from None
    return found


def _no_such(module: ModuleType, path: str) -> InvalidValue:
    from dibs.client_base import ClientBase

    apps = [name for name, value in vars(module).items() if isinstance(value, ClientBase)]
    hint = f"It has: {', '.join(f'{module.__name__}:{name}' for name in apps)}." if apps else "It has no app at all."
    return InvalidValue(f"The module {module.__name__!r} has no {path!r}.", hint=hint)


def _checked(app: Any, program: str) -> Any:
    from dibs.client_base import ClientBase

    if not isinstance(app, ClientBase):
        hint = "Name the Dibs or AsyncDibs object that the handlers are registered with."
        raise InvalidValue(f"{program} is no app but a {type(app).__name__}.", hint=hint)
    if not app.handlers:
        hint = "Declare them with @app.task; those in other modules must be imported by this one."
        raise InvalidValue(f"{program} has no handlers.", hint=hint)
    return app
