"""What went wrong, said so that a person knows what to do and a script knows what happened; never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from dibs.cli import text
from dibs.cli.output import Output
from dibs.errors import DibsError, InvalidValue, StoreError
from dibs.exit_codes import DONE, INTERRUPTED, NO_STORE, REFUSED, WRONG_USAGE
from dibs.redaction import redact


def run(app: typer.Typer, args: Sequence[str]) -> int:
    """Run the command; its exit code."""
    _never_fail_to_print()
    as_json = "--json" in _options(args)
    try:
        code = app(args, prog_name="dibs", standalone_mode=False)
    except DibsError as error:
        return refuse(error.message, error.hint, error.code, exit_code(error), as_json)
    except TyperException as error:
        return _wrong_usage(error.format_message(), as_json)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def refuse(message: str, hint: str, code: str, exit_code: int, as_json: bool) -> int:
    """Say what is wrong: to people on standard error, to scripts on standard output as well."""
    output = Output(as_json)
    message, hint = redact(message), redact(hint)  # it may quote what was given, a URL for instance
    with contextlib.suppress(typer.Exit, DibsError):  # nobody is listening any more; the exit code still tells
        output.note(f"error: {text.line(message)}")
        if hint:
            output.note(f"hint: {text.line(hint)}")
        output.answer({"success": False, "error": message, "code": code})
    return exit_code


def _wrong_usage(message: str, as_json: bool) -> int:
    if message.startswith("Usage: ") and not as_json:  # no command at all: the help itself is the answer
        with contextlib.suppress(typer.Exit):
            Output().note(message)
        return WRONG_USAGE
    hint = "dibs --help lists the commands, dibs COMMAND --help the options of one."
    return refuse(message.partition("\n")[0], hint, "wrong_usage", WRONG_USAGE, as_json)


def exit_code(error: DibsError) -> int:
    """The exit code for an error of dibs."""
    if isinstance(error, InvalidValue):
        return WRONG_USAGE
    return NO_STORE if isinstance(error, StoreError) else REFUSED


def _options(args: Sequence[str]) -> Sequence[str]:
    return args[: args.index("--")] if "--" in args else args


def _never_fail_to_print() -> None:
    """What the terminal's encoding cannot hold is spelled out, and what was written is all there.

    With PYTHONUNBUFFERED Python drops, without an error, what a pipe does not take in one piece.
    """
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - closed before we began: `dibs … >&-`
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = open(sys.stdout.fileno(), "w", 1, sys.stdout.encoding, closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
