"""From an exception to what the store keeps of it."""

from __future__ import annotations

import traceback

from dibs.task import Failure


def describe(error: BaseException | Failure | str) -> Failure:
    """Type, message and traceback of an exception; a plain text is a message."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure("Error", error)
    return Failure(type(error).__qualname__, _message(error), "".join(traceback.format_exception(error)))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # an exception whose __str__ raises must not take the failure with it
        return f"<{type(error).__qualname__} without a message: its __str__ raised {type(broken).__qualname__}>"
