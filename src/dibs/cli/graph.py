"""A workflow in a file: the JSON that the HTTP API takes, read without a server, and refused where it is wrong."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from dibs.cli.enqueue import read_object
from dibs.errors import InvalidValue
from dibs.model.workflow import NewWorkflow
from dibs.wire.fields import whole_numbers
from dibs.wire.workflows import WorkflowBody

HINT = 'Such as {"name": "order", "steps": [{"task_type": "fetch"}, {"task_type": "render", "after": ["fetch"]}]}.'


def read_workflow(file: str) -> NewWorkflow:
    """The workflow in this file, or in standard input for `-`."""
    content = read_object(_content(file), "The workflow", HINT)
    try:
        return msgspec.convert(whole_numbers(content), WorkflowBody).to_model()
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The workflow is not as it should be: {_said(error)}.", hint=HINT) from None
    except RecursionError:
        raise InvalidValue(
            "The workflow is nested too deeply.", hint="Let steps wait for each other instead."
        ) from None


def _content(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape")
    try:
        return Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InvalidValue(f"{file} cannot be read: {error.strerror}.", hint="Name a file, or - for stdin.") from None


def _said(error: msgspec.ValidationError) -> str:
    """Its words as people would say them: the root of the path by its name, and no pattern."""
    words = re.sub(r"`str` matching regex '[^']*'", "one line without control characters", str(error))
    return words[:1].lower() + words[1:].replace("`$", "`workflow")
