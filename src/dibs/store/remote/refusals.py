"""The server's refusals as the exceptions that the other engines raise, with the same attributes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dibs import errors
from dibs.errors import DibsError, InvalidValue, NotAllowed, StoreError
from dibs.store.remote.address import KEY_APART
from dibs.store.remote.wire import Reply

NOTHING_PENDING = "nothing_pending"
"""What we call the one refusal without a code: a claim that found no task."""

_decode = msgspec.json.Decoder(Reply).decode


def read_refusal(content: bytes) -> Reply | None:
    """What the server says in a refusal; None where these are not the words of a dibs server."""
    try:
        said = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not said.code and said.filters is not None:
        said.code = NOTHING_PENDING
    return said if said.code else None


def refusal(said: Reply) -> DibsError:
    """The exception that the server's own engine raised."""
    error = _BUILDERS.get(said.code, _other)(said)
    if said.hint is not None and not isinstance(error, NotAllowed):  # there the server speaks of headers, we of keys
        error.hint = said.hint
    return error


def _other(said: Reply) -> DibsError:
    return StoreError(f"The server refused it ({said.code}): {said.error}")


def _plain(kind: Callable[[str], DibsError]) -> Callable[[Reply], DibsError]:
    return lambda said: kind(said.error)


def _not_allowed(said: Reply) -> DibsError:
    return NotAllowed(said.error, code=said.code, hint=_KEY_HINTS.get(said.code))


_KEY_HINTS = {
    "unauthorized": f"{KEY_APART} `dibs keys create` makes a key, `dibs keys list` shows them.",
    "forbidden": "Use a key that has the missing scope; `dibs keys create --scopes` makes one.",
    "queue_not_allowed": "Use a key for that queue, or name one of the queues that this key is limited to.",
    "key_limited_to_queues": "Use a key that is not limited to queues.",
}

_BUILDERS: dict[str, Callable[[Reply], DibsError]] = {
    "invalid_value": _plain(InvalidValue),
    "bad_request": _plain(InvalidValue),
    "too_large": _plain(InvalidValue),
    "schema_violation": _plain(errors.SchemaViolation),
    "validation_too_slow": _plain(errors.ValidationTooSlow),
    "invalid_graph": _plain(errors.InvalidGraph),
    "workflow_not_found": lambda said: errors.WorkflowNotFound(said.workflow_id or 0),
    "workflow_state": lambda said: errors.WrongWorkflowState(
        said.error, workflow_id=said.workflow_id or 0, state=said.status or ""
    ),
    "finalization_lost": lambda said: errors.FinalizationLost(
        said.error, workflow_id=said.workflow_id or 0, token=said.token or 0
    ),
    "task_not_found": lambda said: errors.TaskNotFound(said.task_id or 0),
    "task_type_not_found": _plain(errors.TaskTypeNotFound),
    "schedule_not_found": lambda said: errors.ScheduleNotFound(said.name or ""),
    "retention_not_found": _plain(errors.RetentionNotFound),
    "key_not_found": lambda said: errors.KeyNotFound(said.error, key_id=said.key),
    "key_conflict": lambda said: errors.KeyConflict(said.key or "", said.task_id, workflow_id=said.workflow_id),
    "claim_lost": lambda said: errors.ClaimLost(said.error, task_id=said.task_id or 0, token=said.token or 0),
    "outcome_conflict": lambda said: errors.OutcomeConflict(
        said.error, task_id=said.task_id or 0, token=said.token or 0
    ),
    "not_your_claim": lambda said: errors.NotYourClaim(said.error, task_id=said.task_id or 0, token=said.token or 0),
    "not_claimable": lambda said: errors.NotClaimable(said.error, task_id=said.task_id or 0, state=said.status or ""),
    "already_claimed": lambda said: errors.AlreadyClaimed(
        said.message or said.error, task_id=said.task_id or 0, worker_id=said.worker_id, token=said.token
    ),
    "wrong_state": lambda said: errors.WrongState(said.error, task_id=said.task_id or 0, state=said.status or ""),
    "store_error": _plain(StoreError),
    "store_refused": _plain(errors.StoreRefused),
    "internal_error": _plain(errors.StoreRefused),
    "store_busy": _plain(errors.StoreBusy),
    "store_unavailable": _plain(errors.StoreUnavailable),
    "stopping": _plain(errors.StoreUnavailable),
    "outcome_unknown": _plain(errors.OutcomeUnknown),
    "schema_too_new": _plain(errors.SchemaTooNew),
    "schema_missing": _plain(errors.SchemaMissing),
    "rate_limited": _plain(errors.RateLimited),
    **dict.fromkeys(_KEY_HINTS, _not_allowed),
}
