"""Errors as JSON: the code of each error, its HTTP status, and the exception that a client raises for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from dibs import errors
from dibs.errors import AlreadyClaimed, DibsError, InvalidValue, NotAllowed, StoreError
from dibs.model.task import State
from dibs.model.workflow import WorkflowState

T = TypeVar("T")

Headers = tuple[tuple[bytes, bytes], ...]
AnyState = Annotated[str, Meta(extra_json_schema={"enum": sorted({*State, *WorkflowState})})]
"""The state of the task, or of the workflow."""

KEY_HINT = "Give the key with the argument api_key or in DIBS_API_KEY."

SOON = 1.0
"""Seconds after which a client may repeat a request that failed because the store did not answer."""

_DETAILS = ("task_id", "workflow_id", "token", "worker_id", "key", "name", "after", "pruned_to")
"""Attributes of exceptions that the answer has as fields of the same name."""


class RequestRefused(DibsError):
    """A request that the server refuses before it uses the store."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retry_after = retry_after
        self.headers = headers


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a request. `code`: a stable name for programs. `hint`: what to do.

    Unless the code is outcome_unknown, the write that failed has changed nothing.
    """

    success: bool = False
    error: str
    code: str
    hint: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    task_id: int | UnsetType = UNSET
    token: int | UnsetType = UNSET
    workflow_id: int | UnsetType = UNSET
    state: AnyState | UnsetType = field(name="status", default=UNSET)
    worker_id: str | UnsetType | None = UNSET
    key: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    after: int | UnsetType = UNSET
    pruned_to: int | UnsetType = UNSET

    @classmethod
    def from_model(cls, error: DibsError) -> Refusal:
        """The exception as an answer."""
        about: dict[str, Any] = {name: value for name in _DETAILS if (value := getattr(error, name, None)) is not None}
        if (state := getattr(error, "state", None)) is not None:
            about["state"] = str(state)
        if error.hint:
            about["hint"] = error.hint
        if isinstance(error, AlreadyClaimed):
            about["message"] = error.message
            whose = "another worker" if error.token is None else "this worker"
            return cls(error=f"Task already claimed by {whose}", code=error.code, **about)
        return cls(error=error.message, code=error.code, **about)

    def to_model(self) -> DibsError:
        """The exception for the client to raise: of the type that the server raised, with the same attributes."""
        known = CODES.get(self.code)
        error = _unknown(self) if known is None or known.exception is None else known.exception(self)
        # The hint of NotAllowed is for Python and the command line, that of the server for the HTTP header.
        if self.hint is not UNSET and not isinstance(error, NotAllowed):
            error.hint = self.hint
        return error


class Code(NamedTuple):
    """The HTTP status of an error code, and the function that makes the exception for a client to raise. None for codes
    that no request of a dibs client should get: the client raises StoreError."""

    status: int
    exception: Callable[[Refusal], DibsError] | None = None


def status_of(error: DibsError) -> int:
    """The HTTP status of an error; 500 for an error without a status of its own."""
    known = CODES.get(error.code)
    return 500 if known is None else known.status


def headers_of(error: DibsError) -> Headers:
    """The HTTP headers of an error, such as Retry-After."""
    given: Headers = getattr(error, "headers", ())
    wait = getattr(error, "retry_after", None)
    if wait is None and status_of(error) == 503:
        wait = SOON
    return given if wait is None else (*given, (b"retry-after", str(max(1, math.ceil(wait))).encode()))


def _or_none(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def _unknown(refusal: Refusal) -> DibsError:
    return StoreError(f"The server refused it ({refusal.code}): {refusal.error}")


def _plain(kind: Callable[[str], DibsError]) -> Callable[[Refusal], DibsError]:
    """The exception has a message only."""
    return lambda refusal: kind(refusal.error)


def _of_claim(kind: Callable[..., DibsError]) -> Callable[[Refusal], DibsError]:
    """The exception has the task and the token of a claim."""
    return lambda refusal: kind(refusal.error, task_id=refusal.task_id or 0, token=refusal.token or 0)


def _of_state(kind: Callable[..., DibsError]) -> Callable[[Refusal], DibsError]:
    """The exception has the task and its state."""
    return lambda refusal: kind(refusal.error, task_id=refusal.task_id or 0, state=refusal.state or "")


def _not_allowed(hint: str) -> Callable[[Refusal], DibsError]:
    return lambda refusal: NotAllowed(refusal.error, code=refusal.code, hint=hint)


def _limit_reached(refusal: Refusal) -> DibsError:
    return errors.LimitReached(refusal.error, task_id=refusal.task_id or 0, name=refusal.name or "")


def _already_claimed(refusal: Refusal) -> DibsError:
    return AlreadyClaimed(
        refusal.message or refusal.error,
        task_id=refusal.task_id or 0,
        worker_id=_or_none(refusal.worker_id),
        token=_or_none(refusal.token),
    )


def _key_conflict(refusal: Refusal) -> DibsError:
    return errors.KeyConflict(
        refusal.key or "",
        _or_none(refusal.task_id),
        workflow_id=_or_none(refusal.workflow_id),
        message=refusal.error,
    )


def _workflow_state(refusal: Refusal) -> DibsError:
    return errors.WrongWorkflowState(refusal.error, workflow_id=refusal.workflow_id or 0, state=refusal.state or "")


def _finalization_lost(refusal: Refusal) -> DibsError:
    return errors.FinalizationLost(refusal.error, workflow_id=refusal.workflow_id or 0, token=refusal.token or 0)


CODES = {
    "bad_request": Code(400, _plain(InvalidValue)),
    "invalid_value": Code(400, _plain(InvalidValue)),
    "schema_violation": Code(400, _plain(errors.SchemaViolation)),
    "limit_unknown": Code(400, lambda refusal: errors.LimitUnknown(refusal.name or "")),
    "validation_too_slow": Code(400, _plain(errors.ValidationTooSlow)),
    "invalid_graph": Code(400, _plain(errors.InvalidGraph)),
    "unauthorized": Code(401, _not_allowed(f"{KEY_HINT} `dibs keys create` makes a key, `dibs keys list` shows them.")),
    "forbidden": Code(
        403, _not_allowed("Use a key that has the missing scope; `dibs keys create --scopes` makes one.")
    ),
    "queue_not_allowed": Code(
        403, _not_allowed("Use a key for that queue, or name one of the queues that this key is limited to.")
    ),
    "key_limited_to_queues": Code(403, _not_allowed("Use a key that is not limited to queues.")),
    "not_your_claim": Code(403, _of_claim(errors.NotYourClaim)),
    "wrong_origin": Code(403),
    "not_found": Code(404),
    "task_not_found": Code(404, lambda refusal: errors.TaskNotFound(refusal.task_id or 0)),
    "task_type_not_found": Code(404, _plain(errors.TaskTypeNotFound)),
    "limit_not_found": Code(404, lambda refusal: errors.LimitNotFound(refusal.name or "")),
    "events_pruned": Code(410, lambda refusal: errors.EventsPruned(refusal.after or 0, refusal.pruned_to or 0)),
    "schedule_not_found": Code(404, lambda refusal: errors.ScheduleNotFound(refusal.name or "")),
    "retention_not_found": Code(404, _plain(errors.RetentionNotFound)),
    "key_not_found": Code(404, lambda refusal: errors.KeyNotFound(refusal.error, key_id=_or_none(refusal.key))),
    "workflow_not_found": Code(404, lambda refusal: errors.WorkflowNotFound(refusal.workflow_id or 0)),
    "method_not_allowed": Code(405),
    "too_slow": Code(408),
    "key_conflict": Code(409, _key_conflict),
    "claim_lost": Code(409, _of_claim(errors.ClaimLost)),
    "task_expired": Code(409, _of_claim(errors.TaskExpired)),
    "outcome_conflict": Code(409, _of_claim(errors.OutcomeConflict)),
    "not_claimable": Code(409, _of_state(errors.NotClaimable)),
    "limit_reached": Code(409, _limit_reached),
    "already_claimed": Code(409, _already_claimed),
    "wrong_state": Code(409, _of_state(errors.WrongState)),
    "already_started": Code(409, _of_state(errors.AlreadyStarted)),
    "workflow_state": Code(409, _workflow_state),
    "finalization_lost": Code(409, _finalization_lost),
    "too_large": Code(413, _plain(InvalidValue)),
    "unsupported_media_type": Code(415),
    "unknown_host": Code(421),
    "rate_limited": Code(429, _plain(errors.RateLimited)),
    "headers_too_large": Code(431),
    "internal_error": Code(500, _plain(errors.StoreRefused)),
    "store_refused": Code(500, _plain(errors.StoreRefused)),
    "store_error": Code(503, _plain(StoreError)),
    "store_busy": Code(503, _plain(errors.StoreBusy)),
    "store_unavailable": Code(503, _plain(errors.StoreUnavailable)),
    "outcome_unknown": Code(503, _plain(errors.OutcomeUnknown)),
    "schema_too_new": Code(503, _plain(errors.SchemaTooNew)),
    "schema_missing": Code(503, _plain(errors.SchemaMissing)),
    "stopping": Code(503, _plain(errors.StoreUnavailable)),
    "stuck": Code(503),
    "too_many_connections": Code(503),
}
