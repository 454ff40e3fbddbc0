"""Claims over HTTP: taken, kept and ended, each write fenced by its token on the other side.

Everything here may be repeated: an outcome told again is recognised by its token, and a claim carries an id of its
request, under which the server gives again what it gave when the answer was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from dibs.errors import DibsError, InvalidValue
from dibs.model.claim import (
    MAX_BATCH,
    AnyClaim,
    Claim,
    ClaimRequest,
    ClaimStatus,
    FinishResult,
    Outcome,
    OutcomeReport,
    Renewed,
    check_claims,
    check_reports,
)
from dibs.store.operation import Mode, Operation
from dibs.store.remote.call import LIMIT, Call, Steps, encode, joined, place, post, split
from dibs.store.remote.decode import NOTHING_PENDING, decoder, not_understood, reader
from dibs.wire import claims as wire
from dibs.wire.errors import Refusal
from dibs.wire.fields import RequestBody
from dibs.wire.tasks import ManyTasks, Task

T = TypeVar("T")
Read = Callable[[msgspec.Raw], T | DibsError]
Envelope = Callable[[str, Any], RequestBody]
"""The body of a request about claims of one worker, from the worker's id and the entries as JSON."""

Entry = bytes | DibsError
"""The JSON for one claim, or why it cannot be sent."""

ENVELOPE = 1024
"""Bytes that a request needs beside its entries."""


class RemoteClaims:
    """Claim, finish, and what lies between."""

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Claim up to `count` tasks; the server waits for one for up to `wait` seconds."""
        return Operation("claim", lambda: _claim(request), decode=_read_claims, request=request)

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, or say why not. Repeating it is safe: under its name it is answered as the first time."""
        return Operation("claim_by_id", lambda: _claim_by_id(task_id, request), decode=_read_claim)

    def finish(self, reports: Sequence[OutcomeReport]) -> Operation[list[FinishResult]]:
        """Write many outcomes; each is fenced and answered on its own."""
        check_reports(reports)
        entries = [_outcome_entry(ref, outcome) for ref, outcome in reports]
        refs = [ref for ref, _ in reports]
        return Operation(
            "finish",
            lambda: _many("/api/tasks/finish", _finish_body, _read_finished, refs, entries),
            wakes=True,
            request=reports,
        )

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
        entries = _entries(claims)
        return Operation("start", lambda: _many("/api/tasks/start", _claims_body, _read_started, claims, entries))

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Prolong the leases to `lease` microseconds from now."""
        check_claims(claims)
        entries = _entries(claims)

        def body(worker_id: str, refs: Any) -> RequestBody:
            return wire.RenewManyBody(worker_id=worker_id, claims=refs, lease=lease / 1e6)

        return Operation("renew", lambda: _many("/api/tasks/renew", body, _read_renewed, claims, entries))

    def progress(self, reports: Sequence[tuple[AnyClaim, int, str | None]]) -> Operation[list[bool | DibsError]]:
        """Note how far the tasks are."""
        refs = [ref for ref, _, _ in reports]
        check_claims(refs)
        entries = [encode(wire.TaskProgress.from_model(*note)) for note in reports]
        return Operation("progress", lambda: _many("/api/tasks/progress", _notes_body, _read_noted, refs, entries))

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """How the claims stand, without touching them."""
        check_claims(claims)
        return Operation("claim_status", lambda: _standing(claims), mode=Mode.READ)


class _Answers(msgspec.Struct, frozen=True):
    """An answer to each of many claims, a result or a refusal, and what was claimed in exchange."""

    answers: list[msgspec.Raw]
    tasks: list[Task] = []


def _answer_reader(kind: type[Any]) -> Read[Any]:
    """A function from the answer to one of many claims to its result, or to the error that it is."""
    decode = msgspec.json.Decoder(kind).decode

    def read(content: msgspec.Raw) -> Any:
        try:
            answer = decode(content)
        except msgspec.ValidationError:
            return _read_refusal(content)
        return answer.to_model() if answer.success else _read_refusal(content)

    return read


_read_refusal = reader(Refusal)
_read_finished = _answer_reader(wire.Finished)
_read_renewed = _answer_reader(wire.Renewed)
_read_noted = _answer_reader(wire.ProgressSaved)
_read_started = _answer_reader(wire.Started)
_read_answers = decoder(_Answers, lambda answers: answers)
_read_claimed = decoder(ManyTasks, lambda claimed: [task.to_claim() for task in claimed.tasks])  # `task` is the first
_read_claim = decoder(wire.Claimed, lambda claimed: claimed.task.to_claim())
_read_standings = reader(wire.ClaimStatuses)


def _claim(request: ClaimRequest) -> Steps[Any]:
    body = encode(wire.ClaimBody.from_model(request))
    return (yield Call("POST", "/api/tasks/claim", body, or_none=NOTHING_PENDING, wait=request.wait))


def _claim_by_id(task_id: int, request: ClaimRequest) -> Steps[Any]:
    return (yield post(place("tasks", task_id, "claim"), wire.ClaimByIdBody.from_model(request)))


def _read_claims(content: bytes | None) -> list[Claim]:
    return [] if content is None else _read_claimed(content)


def _finish_body(worker_id: str, outcomes: Any) -> RequestBody:
    return wire.FinishBody(worker_id=worker_id, outcomes=outcomes)


def _claims_body(worker_id: str, claims: Any) -> RequestBody:
    return wire.ClaimsBody(worker_id=worker_id, claims=claims)


def _notes_body(worker_id: str, notes: Any) -> RequestBody:
    return wire.ProgressManyBody(worker_id=worker_id, notes=notes)


def _many(
    path: str, body: Envelope, read: Read[T], refs: Sequence[AnyClaim], entries: Sequence[Entry]
) -> Steps[list[T | DibsError]]:
    """Send each entry, in as many requests as it takes; the answer to each, in order."""
    answers: dict[int, T | DibsError] = {}
    for worker_id, places in _requests(refs, entries):
        found = _read_answers((yield post(path, body(worker_id, _at(places, entries)))))
        answers.update(_answers(places, found.answers, read))
    return _in_order(entries, answers)


def _exchange(
    refs: Sequence[AnyClaim], entries: Sequence[Entry], request: ClaimRequest
) -> Steps[tuple[list[FinishResult], list[Claim]]]:
    requests = list(_requests(refs, entries))
    own = [places for worker_id, places in requests if worker_id == request.worker_id]
    last = own[-1] if own else []
    answers: dict[int, FinishResult] = {}
    for worker_id, places in requests:
        if places is not last:
            found = _read_answers((yield post("/api/tasks/finish", _finish_body(worker_id, _at(places, entries)))))
            answers.update(_answers(places, found.answers, _read_finished))
    outcomes: Any = _at(last, entries)
    claim = wire.ClaimOptions.from_model(request)
    body = wire.ExchangeBody(worker_id=request.worker_id, outcomes=outcomes, claim=claim)
    found = _read_answers((yield post("/api/tasks/exchange", body)))
    answers.update(_answers(last, found.answers, _read_finished))
    return _in_order(entries, answers), [task.to_claim() for task in found.tasks]


def _at(places: Sequence[int], entries: Sequence[Entry]) -> msgspec.Raw:
    return joined([entry for at in places if isinstance(entry := entries[at], bytes)])


def _answers(places: Sequence[int], found: Sequence[msgspec.Raw], read: Read[T]) -> dict[int, T | DibsError]:
    if len(places) != len(found):
        raise not_understood(f"{len(found)} answers to {len(places)} questions")
    return {at: read(answer) for at, answer in zip(places, found, strict=True)}


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
        found = _read_standings((yield post("/api/tasks/standing", _claims_body(worker_id, _at(places, entries)))))
        standings.update(zip(places, found, strict=True))
    return [standings[at] for at in range(len(claims))]


def _entries(claims: Sequence[AnyClaim]) -> list[bytes]:
    return [encode(wire.OneClaim.from_model(ref)) for ref in claims]


def _outcome_entry(ref: AnyClaim, outcome: Outcome) -> Entry:
    """The outcome as JSON, or why it cannot be sent: then only this one is refused."""
    try:
        entry = encode(wire.outcome_body(ref, outcome))
    except InvalidValue as error:
        return error
    if len(entry) > LIMIT - ENVELOPE:
        return InvalidValue(
            f"The outcome of task {ref.task_id} takes {len(entry):,} bytes; the server takes {LIMIT:,} a request.",
            hint="Keep large results elsewhere (a file, a bucket, a table) and send a reference to them.",
        )
    return entry
