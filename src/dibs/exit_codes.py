"""The exit codes of the command line."""

from __future__ import annotations

DONE, REFUSED, WRONG_USAGE, NO_STORE, INTERRUPTED = 0, 1, 2, 3, 130
