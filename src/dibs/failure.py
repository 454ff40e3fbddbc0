"""From an exception to what the store keeps of it."""

from __future__ import annotations

import traceback

from dibs.codec import clean_text
from dibs.redacting import redact
from dibs.task import Failure


def describe(error: BaseException | Failure | str) -> Failure:
    """Type, message and traceback of an exception; a plain text is a message."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure("Error", error)
    message, traceback = redact(clean_text(_message(error))), redact(clean_text(_traceback(error)))
    return Failure(clean_text(type(error).__qualname__), message, traceback)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # an exception whose __str__ raises must not take the failure with it
        return f"<{type(error).__qualname__} without a message: its __str__ raised {type(broken).__qualname__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as broken:  # nor one that cannot be shown: groups a thousand deep, a source that is gone
        return f"<no traceback: showing it raised {type(broken).__qualname__}>"
