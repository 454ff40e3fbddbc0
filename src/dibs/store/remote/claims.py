"""Claims over HTTP: taken, kept and ended, each write fenced by its token on the other side.

Everything here may be repeated: an outcome told again is recognised by its token, and a claim carries an id of its
request, under which the server gives again what it gave when the answer was lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from dibs.codec import clean_text, encode
from dibs.errors import DibsError, InvalidValue
from dibs.model.claim import (
    MAX_BATCH,
    AnyClaim,
    Cancelled,
    Claim,
    ClaimRequest,
    ClaimStatus,
    Completed,
    Failed,
    Finished,
    FinishResult,
    Outcome,
    OutcomeReport,
    Released,
    Renewed,
    check_claims,
    check_reports,
)
from dibs.model.task import State
from dibs.store.operation import Mode, Operation
from dibs.store.remote import wire
from dibs.store.remote.call import LIMIT, Call, Steps, joined, place, post, split, without_nones
from dibs.store.remote.refusals import NOTHING_PENDING, refusal
from dibs.store.remote.tasks import filters_body
from dibs.store.remote.wire import Reply
from dibs.store.remote.workflows import step_body

T = TypeVar("T")
Read = Callable[[Reply], T]
Entry = bytes | DibsError
"""What is said about one claim, as JSON; or why that cannot be sent."""

ENVELOPE = 1024
"""Bytes that a request needs beside its entries."""


class RemoteClaims:
    """Claim, finish, and what lies between."""

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Claim up to `count` tasks; the server waits for one for up to `wait` seconds."""
        return Operation("claim", lambda: _claim(request), decode=_read_claims, request=request)

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, or say why not. Repeating it is safe: under its name it is answered as the first time."""
        return Operation("claim_by_id", lambda: _claim_by_id(task_id, request), decode=wire.read_claim)

    def finish(self, reports: Sequence[OutcomeReport]) -> Operation[list[FinishResult]]:
        """Write many outcomes; each is fenced and answered on its own."""
        check_reports(reports)
        entries = [_outcome_entry(ref, outcome) for ref, outcome in reports]
        refs = [ref for ref, _ in reports]
        return Operation("finish", lambda: _many(_FINISH, refs, entries), wakes=True, request=reports)

    def exchange(
        self, reports: Sequence[OutcomeReport], request: ClaimRequest
    ) -> Operation[tuple[list[FinishResult], list[Claim]]]:
        """Write the outcomes and claim, both or neither; outcomes that do not fit one request are written before."""
        check_reports(reports)
        entries = [_outcome_entry(ref, outcome) for ref, outcome in reports]
        refs = [ref for ref, _ in reports]
        return Operation("exchange", lambda: _exchange(refs, entries, request), wakes=True, request=(reports, request))

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """These tasks, claimed ahead of their turn, begin now."""
        check_claims(claims)
        return Operation("start", lambda: _many(_START, claims, _entries(claims)))

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Prolong the leases to `lease` microseconds from now."""
        check_claims(claims)
        return Operation("renew", lambda: _many(_RENEW, claims, _entries(claims), lease_seconds=lease / 1e6))

    def progress(self, reports: Sequence[tuple[AnyClaim, int, str | None]]) -> Operation[list[bool | DibsError]]:
        """Note how far the tasks are."""
        refs = [ref for ref, _, _ in reports]
        check_claims(refs)
        entries = [_note_entry(*note) for note in reports]
        return Operation("progress", lambda: _many(_PROGRESS, refs, entries))

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """How the claims stand, without touching them."""
        check_claims(claims)
        return Operation("claim_status", lambda: _standing(claims), mode=Mode.READ)


def claim_body(request: ClaimRequest) -> dict[str, Any]:
    """What to claim, under a name of its own: whoever repeats this body gets the same tasks."""
    return {
        **filters_body(request),
        "lease_seconds": request.lease,
        "incarnation": request.incarnation,
        "ahead": request.ahead or None,
        "request_id": _name_of(request),
    }


def _name_of(request: ClaimRequest) -> str:
    return request.request or uuid.uuid4().hex


def _claim(request: ClaimRequest) -> Steps[Any]:
    given = {"worker_id": request.worker_id, **claim_body(request), "wait_seconds": request.wait or None}
    body = msgspec.json.encode(without_nones(given))
    return (yield Call("POST", "/api/tasks/claim", body, or_none=NOTHING_PENDING, wait=request.wait))


def _claim_by_id(task_id: int, request: ClaimRequest) -> Steps[Any]:
    given = {"worker_id": request.worker_id, "lease_seconds": request.lease, "request_id": _name_of(request)}
    return (yield post(place("tasks", task_id, "claim"), given))


def _read_claims(content: bytes | None) -> list[Claim]:
    return [] if content is None else wire.read_claims(content)


def _many(
    verb: _Verb[T], refs: Sequence[AnyClaim], entries: Sequence[Entry], **more: Any
) -> Steps[list[T | DibsError]]:
    """Ask for each entry, in as many requests as it takes; what was said to each, in order."""
    answers: dict[int, T | DibsError] = {}
    for worker_id, places in _requests(refs, entries):
        answers.update((yield from _some(verb, worker_id, places, entries, **more)))
    return _in_order(entries, answers)


def _some(
    verb: _Verb[T], worker_id: str, places: Sequence[int], entries: Sequence[Entry], **more: Any
) -> Steps[dict[int, T | DibsError]]:
    given = {"worker_id": worker_id, verb.field: _at(places, entries), **more}
    said = wire.read_replies((yield post(verb.path, given)))
    return _answers(places, said.answers, verb.read)


def _exchange(
    refs: Sequence[AnyClaim], entries: Sequence[Entry], request: ClaimRequest
) -> Steps[tuple[list[FinishResult], list[Claim]]]:
    requests = list(_requests(refs, entries))
    own = [places for worker_id, places in requests if worker_id == request.worker_id]
    last = own[-1] if own else []
    answers: dict[int, FinishResult] = {}
    for worker_id, places in requests:
        if places is not last:
            answers.update((yield from _some(_FINISH, worker_id, places, entries)))
    claim = without_nones(claim_body(request))
    given: dict[str, Any] = {"worker_id": request.worker_id, "outcomes": _at(last, entries), "claim": claim}
    said = wire.read_replies((yield post("/api/tasks/exchange", given)))
    answers.update(_answers(last, said.answers, _finished))
    return _in_order(entries, answers), [task.claim() for task in said.tasks]


def _at(places: Sequence[int], entries: Sequence[Entry]) -> msgspec.Raw:
    return joined([entry for at in places if isinstance(entry := entries[at], bytes)])


def _answers(places: Sequence[int], said: Sequence[Reply], read: Read[T]) -> dict[int, T | DibsError]:
    if len(places) != len(said):
        raise wire.not_understood(f"{len(said)} answers to {len(places)} questions")
    return {at: read(reply) if reply.success else refusal(reply) for at, reply in zip(places, said, strict=True)}


def _in_order(entries: Sequence[Entry], answers: dict[int, T | DibsError]) -> list[T | DibsError]:
    return [entry if isinstance(entry, DibsError) else answers[at] for at, entry in enumerate(entries)]


def _requests(refs: Sequence[AnyClaim], entries: Sequence[Entry]) -> Iterator[tuple[str, list[int]]]:
    """The places of the entries that go into one request: of one worker, not too many, not too large."""
    by_worker: dict[str, list[int]] = {}
    sizes: list[int] = []
    for at, (ref, entry) in enumerate(zip(refs, entries, strict=True)):
        sizes.append(len(entry) if isinstance(entry, bytes) else 0)
        if sizes[at]:
            by_worker.setdefault(ref.worker_id, []).append(at)
    for worker_id, places in by_worker.items():
        for start, end in split([sizes[at] for at in places], MAX_BATCH):
            yield worker_id, places[start:end]


def _standing(claims: Sequence[AnyClaim]) -> Steps[list[ClaimStatus]]:
    entries = _entries(claims)
    standings: dict[int, ClaimStatus] = {}
    for worker_id, places in _requests(claims, entries):
        given = {"worker_id": worker_id, "claims": _at(places, entries)}
        said = wire.read_standings((yield post("/api/tasks/standing", given)))
        standings.update(zip(places, said, strict=True))
    return [standings[at] for at in range(len(claims))]


def _entries(claims: Sequence[AnyClaim]) -> list[bytes]:
    return [msgspec.json.encode(_fence(ref)) for ref in claims]


def _fence(ref: AnyClaim) -> dict[str, Any]:
    return {"task_id": ref.task_id, "token": ref.token}


def _note_entry(ref: AnyClaim, percent: int, message: str | None) -> bytes:
    said = {} if message is None else {"message": clean_text(message)}
    return msgspec.json.encode({**_fence(ref), "progress": percent, **said})


def _outcome_entry(ref: AnyClaim, outcome: Outcome) -> Entry:
    """The outcome as JSON, or why it cannot be sent: then only this one is refused."""
    try:
        entry = msgspec.json.encode({**_fence(ref), **_OUTCOMES[type(outcome)](outcome)})
    except InvalidValue as error:
        return error
    if len(entry) > LIMIT - ENVELOPE:
        return InvalidValue(
            f"The outcome of task {ref.task_id} takes {len(entry):,} bytes; the server takes {LIMIT:,} a request.",
            hint="Keep large results elsewhere (a file, a bucket, a table) and send a reference to them.",
        )
    return entry


def _completed(outcome: Completed) -> dict[str, Any]:
    said: dict[str, Any] = {"outcome": "completed"}
    if outcome.result is not None:
        said["result"] = msgspec.Raw(encode(outcome.result, "result"))
    if outcome.steps:
        said["steps"] = [step_body(step) for step in outcome.steps]
    return said


def _failed(outcome: Failed) -> dict[str, Any]:
    failure = outcome.failure
    said = {
        "outcome": "failed",
        "error_message": clean_text(failure.message),
        "error_code": clean_text(failure.type),
        "traceback": None if failure.traceback is None else clean_text(failure.traceback),
        "retryable": not outcome.permanent,
        "retry_in_seconds": outcome.retry_in,
    }
    return without_nones(said)


def _released(outcome: Released) -> dict[str, Any]:
    return {"outcome": "released", "delay_seconds": outcome.delay} if outcome.delay else {"outcome": "released"}


_OUTCOMES: dict[type, Callable[[Any], dict[str, Any]]] = {
    Completed: _completed,
    Failed: _failed,
    Released: _released,
    Cancelled: lambda outcome: {"outcome": "cancelled"},
}


def _finished(said: Reply) -> Finished:
    assert said.task_id is not None
    assert said.status is not None
    return Finished(said.task_id, State(said.status), said.attempts, said.run_at, said.repeated)


def _renewed(said: Reply) -> Renewed:
    assert said.task_id is not None
    assert said.lease_until is not None
    return Renewed(said.task_id, said.lease_until, said.cancel_requested)


def _asked_to_stop(said: Reply) -> bool:
    return said.cancel_requested


@dataclass(frozen=True, slots=True)
class _Verb(Generic[T]):
    """What can be asked of many claims at once: where, under which name, and what the answer to one means."""

    path: str
    field: str
    read: Read[T]


_FINISH = _Verb("/api/tasks/finish", "outcomes", _finished)
_RENEW = _Verb("/api/tasks/renew", "claims", _renewed)
_PROGRESS = _Verb("/api/tasks/progress", "notes", _asked_to_stop)
_START: _Verb[None] = _Verb("/api/tasks/start", "claims", lambda said: None)
