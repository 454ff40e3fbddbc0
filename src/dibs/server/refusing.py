"""Refusals: every error of dibs as an HTTP answer, with a status for the machine and a sentence for its owner."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dibs.errors import AlreadyClaimed, DibsError
from dibs.model.task import State
from dibs.model.workflow import WorkflowState

STATUS = {
    "bad_request": 400,
    "invalid_value": 400,
    "schema_violation": 400,
    "validation_too_slow": 400,
    "invalid_graph": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "queue_not_allowed": 403,
    "key_limited_to_queues": 403,
    "not_your_claim": 403,
    "wrong_origin": 403,
    "not_found": 404,
    "task_not_found": 404,
    "task_type_not_found": 404,
    "schedule_not_found": 404,
    "retention_not_found": 404,
    "key_not_found": 404,
    "workflow_not_found": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "key_conflict": 409,
    "claim_lost": 409,
    "outcome_conflict": 409,
    "not_claimable": 409,
    "already_claimed": 409,
    "wrong_state": 409,
    "workflow_state": 409,
    "finalization_lost": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "unknown_host": 421,
    "rate_limited": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "store_refused": 500,
    "store_error": 503,
    "store_busy": 503,
    "store_unavailable": 503,
    "outcome_unknown": 503,
    "schema_too_new": 503,
    "schema_missing": 503,
    "stopping": 503,
    "stuck": 503,
    "too_many_connections": 503,
}

Status = Annotated[str, Meta(extra_json_schema={"enum": sorted({*State, *WorkflowState})})]
"""Where the task stands, or the workflow."""

SOON = 1.0
"""Seconds after which a client may ask a store again that did not answer."""


class Refusal(DibsError):
    """What the server itself refuses, before a store is asked."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.retry_after = retry_after
        self.headers = headers


class RefusalShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request changed nothing. `code` is a stable word for programs; `hint` says what to do."""

    success: bool = False
    error: str
    code: str
    hint: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    task_id: int | UnsetType = UNSET
    token: int | UnsetType = UNSET
    workflow_id: int | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    worker_id: str | UnsetType | None = UNSET
    key: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


def refusal(error: DibsError) -> RefusalShape:
    """The JSON of an error."""
    about: dict[str, Any] = {
        name: value
        for name in ("task_id", "workflow_id", "token", "worker_id", "key", "name")
        if (value := _of(error, name)) is not None
    }
    if (state := _of(error, "state")) is not None:
        about["status"] = str(state)
    if error.hint:
        about["hint"] = error.hint
    if isinstance(error, AlreadyClaimed):
        about["message"] = error.message
        whose = "another worker" if error.token is None else "this worker"
        return RefusalShape(error=f"Task already claimed by {whose}", code=error.code, **about)
    return RefusalShape(error=error.message, code=error.code, **about)


def status_of(error: DibsError) -> int:
    """The HTTP status of an error; one without a status of its own is ours to repair."""
    return STATUS.get(error.code, 500)


def headers_of(error: DibsError) -> tuple[tuple[bytes, bytes], ...]:
    """Headers that go with an error: when to come back, above all."""
    given: tuple[tuple[bytes, bytes], ...] = getattr(error, "headers", ())
    wait = getattr(error, "retry_after", None)
    if wait is None and status_of(error) == 503:
        wait = SOON
    return given if wait is None else (*given, (b"retry-after", str(max(1, math.ceil(wait))).encode()))


def _of(error: DibsError, name: str) -> Any:
    return getattr(error, name, None)
