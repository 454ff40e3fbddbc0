"""Helpers for the checks of `dibs doctor`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from dibs.errors import StoreError
from dibs.model.upkeep import Check, Verdict
from dibs.store.migrate import Applied, Migration, missing

_warned: set[str] = set()
_warning = threading.Lock()


def warn_once(caution: str | None, logger: logging.Logger) -> None:
    """Log the warning of a store (see Store.caution), once in a process however many stores it opens."""
    with _warning:
        if caution is None or caution in _warned:
            return
        _warned.add(caution)
    logger.warning("%s", caution, extra={"event": "store.caution"})


def judge(name: str, fine: bool, message: str, hint: str = "", *, otherwise: Verdict = Verdict.FAIL) -> Check:
    """The result of a check: ok if `fine`, else the verdict `otherwise` with the hint."""
    return Check(name, Verdict.OK, message) if fine else Check(name, otherwise, message, hint)


def judge_limits(count: int) -> Check:
    """The check that the use of every limit is the number of tasks that count towards it."""
    message = f"{count} counters differ from the tasks that they count"
    return judge("limits", count == 0, message, "Another program changed or deleted claimed tasks with limits.")


def judge_schema(known: tuple[Migration, ...], applied: Mapping[int, Applied]) -> Check:
    """The check that this version of dibs can use the schema. `applied`: the applied migrations by version."""
    message = f"schema version {max(applied, default=0)} of {known[-1].version}"
    try:
        return judge("schema", not missing(known, applied), message, "Migrate it.")
    except StoreError as error:
        return judge("schema", False, message, error.hint)
