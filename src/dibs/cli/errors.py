"""Run the command line and turn errors into messages, JSON and exit codes instead of tracebacks."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.exceptions import TyperException

from dibs.cli import text
from dibs.cli.output import Output
from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.exit_codes import DONE, INTERRUPTED, NO_STORE, REFUSED, WRONG_USAGE
from dibs.redaction import redact

if TYPE_CHECKING:
    from dibs.cli.context import ProjectContext


def run(app: typer.Typer, args: Sequence[str], project: ProjectContext | None = None) -> int:
    """Run the command and return its exit code. `project`: that of a framework, whose store is the default."""
    _make_output_robust()
    as_json = "--json" in _options(args)
    name = "dibs" if project is None else project.command
    try:
        code = app(args, prog_name=name, standalone_mode=False, obj=project)
    except DibsError as error:
        return print_error(error.message, error.hint, error.code, exit_code(error), as_json)
    except TyperException as error:
        return _wrong_usage(error.format_message(), as_json)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def print_error(message: str, hint: str, code: str, exit_code: int, as_json: bool) -> int:
    """Print an error on standard error, and with --json on standard output as well; return the exit code."""
    output = Output(as_json)
    message, hint = (
        redact(message),
        redact(hint),
    )  # the message may quote an argument, for example a URL with a password
    with contextlib.suppress(
        typer.Exit, DibsError
    ):  # the reader closed the pipe; the exit code still reports the error
        output.print_to_stderr(f"error: {text.line(message)}")
        if hint:
            output.print_to_stderr(f"hint: {text.line(hint)}")
        output.print_json({"success": False, "error": message, "code": code})
    return exit_code


def _wrong_usage(message: str, as_json: bool) -> int:
    if message.startswith("Usage: ") and not as_json:  # no command was given: print the help
        with contextlib.suppress(typer.Exit):
            Output().print_to_stderr(message)
        return WRONG_USAGE
    hint = "dibs --help lists the commands, dibs COMMAND --help the options of one."
    return print_error(message.partition("\n")[0], hint, "wrong_usage", WRONG_USAGE, as_json)


def exit_code(error: DibsError) -> int:
    """Return the exit code for an error of dibs."""
    if isinstance(error, InvalidValue):
        return WRONG_USAGE
    return NO_STORE if isinstance(error, StoreError) else REFUSED


def _options(args: Sequence[str]) -> Sequence[str]:
    return args[: args.index("--")] if "--" in args else args


def _make_output_robust() -> None:
    """Escape characters that the terminal's encoding lacks, and write to pipes completely.

    With PYTHONUNBUFFERED, Python drops the part of a write that a pipe does not accept at once, without an error.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - stdout was closed by the caller: `dibs … >&-`
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = open(sys.stdout.fileno(), "w", 1, sys.stdout.encoding, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
