"""Entries of a log: what their writers gave them beside the sentence, whoever writes them down in the end."""

from __future__ import annotations

import logging
from typing import Any

_STANDARD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has."""


def given(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the entry was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
