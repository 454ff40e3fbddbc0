"""The remote store: enqueue, claim, finish and keep claims alive, as requests to a server over HTTP. See
QueueOperations.

The operations promise the same as those of a database; the server fences every write about a claim by its token. The
paths and the JSON (`dibs.wire`) are the public HTTP API. A lost response is answered with a repetition, so every
request here must be safe to repeat: the server recognises a repeated outcome by its token, and a repeated claim by its
request id, for which it returns the tasks of the first response; so it does for a repeated enqueue whose key may have
ended. Only an enqueue without idempotency keys is not repeated.

A batch may need several requests: a request has entries of one worker and must fit the limits of the server. `entries`
are the claims or outcomes as JSON; a place is the index of an entry in the batch, by which the answers are put back in
order.
"""

from __future__ import annotations

import uuid
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
    Filters,
    FinishResult,
    Outcome,
    OutcomeReport,
    Renewed,
    check_claims,
    check_reports,
)
from dibs.model.task import ALWAYS, RETURN, NewTask, Task
from dibs.store.operation import Mode, Operation
from dibs.store.remote.decode import NOTHING_PENDING, decoder, not_understood, reader, reader_or
from dibs.store.remote.request import (
    LIMIT,
    HttpCall,
    HttpCalls,
    api_path,
    check_fits,
    encode,
    get,
    joined,
    post,
    read_operation,
    split,
    write_operation,
)
from dibs.wire import claims as wire
from dibs.wire import tasks as wire_tasks
from dibs.wire.errors import Refusal
from dibs.wire.fields import RequestBody

T = TypeVar("T")
AnswerReader = Callable[[msgspec.Raw], T | DibsError]
"""Decodes the answer to one entry: its result, or the error with which the server refused the entry."""

BodyBuilder = Callable[[str, Any], RequestBody]
"""Builds the body of a request from the id of the worker and a JSON array of entries."""

Entry = bytes | DibsError
"""The JSON for one claim or outcome, or the error for which it cannot be sent."""

BODY_OVERHEAD = 1024
"""Bytes of a request in addition to its entries, at most."""


class RemoteQueue:
    """The operations on tasks and claims. See QueueOperations."""

    def enqueue(self, tasks: Sequence[NewTask]) -> Operation[list[Task]]:
        """Store the tasks in this order, all or none. A batch that does not fit one request is refused."""
        if not tasks:
            return Operation("enqueue", _no_calls, wakes=True)
        return write_operation("enqueue", *_enqueue_call(tasks), wakes=True)

    def claim(self, request: ClaimRequest) -> Operation[list[Claim]]:
        """Claim up to `count` tasks. If there is none, the server waits for a task for up to `wait` seconds."""
        return Operation("claim", lambda: _claim(request), decode=_read_claims, request=request)

    def claim_by_id(self, task_id: int, request: ClaimRequest) -> Operation[Claim]:
        """Claim this task, or raise the reason why not. The body has a request id, so the request can be
        repeated."""
        return Operation("claim_by_id", lambda: _claim_by_id(task_id, request), decode=_read_claim)

    def peek(self, filters: Filters, content: int | None = None) -> Operation[list[Task]]:
        """Read the tasks that a claim would take now. Another worker may claim them first. `content` is not sent: the
        server has its own limit."""
        return read_operation("peek", post("/api/tasks/peek", wire.PeekBody.from_model(filters)), _read_tasks)

    def finish(self, reports: Sequence[OutcomeReport]) -> Operation[list[FinishResult]]:
        """Write outcomes. Each is fenced, and has its own result."""
        check_reports(reports)
        entries = [_outcome_entry(ref, outcome) for ref, outcome in reports]
        refs = [ref for ref, _ in reports]
        return Operation(
            "finish",
            lambda: _send_entries("/api/tasks/finish", _finish_body, _read_finished, refs, entries),
            wakes=True,
            request=reports,
        )

    def exchange(
        self, reports: Sequence[OutcomeReport], request: ClaimRequest
    ) -> Operation[tuple[list[FinishResult], list[Claim]]]:
        """Write the outcomes and claim, both or neither. Outcomes of other workers, and outcomes that do not fit into
        the request, are written before, in requests of their own."""
        check_reports(reports)
        entries = [_outcome_entry(ref, outcome) for ref, outcome in reports]
        refs = [ref for ref, _ in reports]
        return Operation("exchange", lambda: _exchange(refs, entries, request), wakes=True, request=(reports, request))

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """Record that tasks that were claimed ahead have started."""
        check_claims(claims)
        entries = _entries(claims)
        return Operation(
            "start", lambda: _send_entries("/api/tasks/start", _claims_body, _read_started, claims, entries)
        )

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Renew the leases until `lease` microseconds from now."""
        check_claims(claims)
        entries = _entries(claims)

        def body(worker_id: str, refs: Any) -> RequestBody:
            return wire.RenewManyBody(worker_id=worker_id, claims=refs, lease=lease / 1e6)

        return Operation("renew", lambda: _send_entries("/api/tasks/renew", body, _read_renewed, claims, entries))

    def progress(self, reports: Sequence[tuple[AnyClaim, int, str | None]]) -> Operation[list[bool | DibsError]]:
        """Store the progress of the tasks."""
        refs = [ref for ref, _, _ in reports]
        check_claims(refs)
        entries = [encode(wire.TaskProgress.from_model(*report)) for report in reports]
        return Operation(
            "progress", lambda: _send_entries("/api/tasks/progress", _progress_body, _read_progress, refs, entries)
        )

    def claim_status(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """Read the status of each claim."""
        check_claims(claims)
        return Operation("claim_status", lambda: _claim_status(claims), mode=Mode.READ)

    def checkpoints(self, task_id: int) -> Operation[dict[str, Any]]:
        """Read the checkpoints of the task: the values by name."""
        call = get(api_path("tasks", task_id, "checkpoints"), or_none="task_not_found")
        return read_operation("checkpoints", call, _read_checkpoints)

    def keep_checkpoint(self, claim: AnyClaim, name: str, value: Any) -> Operation[Any]:
        """Store a checkpoint and return the stored value. An earlier value of the same name stays, so the request can
        be repeated."""
        check_claims([claim])
        body = encode(wire.CheckpointBody.from_model(claim, name, value))
        check_fits(f"The checkpoint {name!r} does", len(body))
        call = HttpCall("POST", api_path("tasks", claim.task_id, "checkpoints"), body)
        return write_operation("keep_checkpoint", call, _read_kept)


class _Answers(msgspec.Struct, frozen=True):
    """The body of a response: the answer to each entry, and the tasks that an exchange claimed."""

    answers: list[msgspec.Raw]
    tasks: list[wire_tasks.Task] = []


def _answer_reader(kind: type[Any]) -> AnswerReader[Any]:
    """Return a function that decodes the answer to one entry. `kind`: the struct of a successful answer."""
    decode = msgspec.json.Decoder(kind).decode

    def read(content: msgspec.Raw) -> Any:
        try:
            answer = decode(content)
        except msgspec.ValidationError:
            return _read_refusal(content)
        return answer.to_model() if answer.success else _read_refusal(content)

    return read


_read_created = decoder(wire_tasks.Created, lambda answer: [answer.to_model()])
_read_batch = reader(wire_tasks.CreatedBatch)
_read_tasks = reader(wire_tasks.ManyTasks)
_read_checkpoints = reader_or(wire.Checkpoints, {})
_read_kept = reader(wire.KeptCheckpoint)
_read_refusal = reader(Refusal)
_read_finished = _answer_reader(wire.Finished)
_read_renewed = _answer_reader(wire.Renewed)
_read_progress = _answer_reader(wire.ProgressSaved)
_read_started = _answer_reader(wire.Started)
_read_answers = decoder(_Answers, lambda answers: answers)
_read_claimed = decoder(wire_tasks.ManyTasks, lambda claimed: [task.to_claim() for task in claimed.tasks])
_read_claim = decoder(wire.Claimed, lambda claimed: claimed.task.to_claim())
_read_statuses = reader(wire.ClaimStatuses)


def _claim(request: ClaimRequest) -> HttpCalls[Any]:
    body = encode(wire.ClaimBody.from_model(request))
    return (yield HttpCall("POST", "/api/tasks/claim", body, or_none=NOTHING_PENDING, wait=request.wait))


def _claim_by_id(task_id: int, request: ClaimRequest) -> HttpCalls[Any]:
    return (yield post(api_path("tasks", task_id, "claim"), wire.ClaimByIdBody.from_model(request)))


def _read_claims(content: bytes | None) -> list[Claim]:
    return [] if content is None else _read_claimed(content)


def _finish_body(worker_id: str, outcomes: Any) -> RequestBody:
    return wire.FinishBody(worker_id=worker_id, outcomes=outcomes)


def _claims_body(worker_id: str, claims: Any) -> RequestBody:
    return wire.ClaimsBody(worker_id=worker_id, claims=claims)


def _progress_body(worker_id: str, notes: Any) -> RequestBody:
    return wire.ProgressManyBody(worker_id=worker_id, notes=notes)


def _send_entries(
    path: str, body: BodyBuilder, read: AnswerReader[T], refs: Sequence[AnyClaim], entries: Sequence[Entry]
) -> HttpCalls[list[T | DibsError]]:
    """Send the entries in as few requests as possible. Returns the answer to each entry, in order."""
    answers: dict[int, T | DibsError] = {}
    for worker_id, places in _split_into_requests(refs, entries):
        found = _read_answers((yield post(path, body(worker_id, _entries_at(places, entries)))))
        answers.update(_answers_by_place(places, found.answers, read))
    return _in_order(entries, answers)


def _exchange(
    refs: Sequence[AnyClaim], entries: Sequence[Entry], request: ClaimRequest
) -> HttpCalls[tuple[list[FinishResult], list[Claim]]]:
    """Send the last request of the claiming worker as an exchange, and all other requests as plain finishes before."""
    requests = list(_split_into_requests(refs, entries))
    own = [places for worker_id, places in requests if worker_id == request.worker_id]
    last = own[-1] if own else []
    answers: dict[int, FinishResult] = {}
    for worker_id, places in requests:
        if places is not last:
            found = _read_answers(
                (yield post("/api/tasks/finish", _finish_body(worker_id, _entries_at(places, entries))))
            )
            answers.update(_answers_by_place(places, found.answers, _read_finished))
    outcomes: Any = _entries_at(last, entries)
    claim = wire.ClaimOptions.from_model(request)
    body = wire.ExchangeBody(worker_id=request.worker_id, outcomes=outcomes, claim=claim)
    found = _read_answers((yield post("/api/tasks/exchange", body)))
    answers.update(_answers_by_place(last, found.answers, _read_finished))
    return _in_order(entries, answers), [task.to_claim() for task in found.tasks]


def _entries_at(places: Sequence[int], entries: Sequence[Entry]) -> msgspec.Raw:
    """Return the entries at these places as a JSON array."""
    return joined([entry for at in places if isinstance(entry := entries[at], bytes)])


def _answers_by_place(
    places: Sequence[int], found: Sequence[msgspec.Raw], read: AnswerReader[T]
) -> dict[int, T | DibsError]:
    if len(places) != len(found):
        raise not_understood(f"{len(found)} answers to {len(places)} entries")
    return {at: read(answer) for at, answer in zip(places, found, strict=True)}


def _in_order(entries: Sequence[Entry], answers: dict[int, T | DibsError]) -> list[T | DibsError]:
    """Return the answer to each entry. The answer to an entry that could not be sent is its error."""
    return [entry if isinstance(entry, DibsError) else answers[at] for at, entry in enumerate(entries)]


def _split_into_requests(refs: Sequence[AnyClaim], entries: Sequence[Entry]) -> Iterator[tuple[str, list[int]]]:
    """Yield the worker and the places of the entries for each request. A request has entries of one worker, within the
    limits of number and size. Entries that cannot be sent are left out."""
    by_worker: dict[str, list[int]] = {}
    sizes: list[int] = []
    for at, (ref, entry) in enumerate(zip(refs, entries, strict=True)):
        sizes.append(len(entry) if isinstance(entry, bytes) else 0)
        if sizes[at]:
            by_worker.setdefault(ref.worker_id, []).append(at)
    for worker_id, places in by_worker.items():
        for start, end in split([sizes[at] for at in places], MAX_BATCH):
            yield worker_id, places[start:end]


def _claim_status(claims: Sequence[AnyClaim]) -> HttpCalls[list[ClaimStatus]]:
    entries = _entries(claims)
    statuses: dict[int, ClaimStatus] = {}
    for worker_id, places in _split_into_requests(claims, entries):
        found = _read_statuses(
            (yield post("/api/tasks/standing", _claims_body(worker_id, _entries_at(places, entries))))
        )
        statuses.update(zip(places, found, strict=True))
    return [statuses[at] for at in range(len(claims))]


def _entries(claims: Sequence[AnyClaim]) -> list[bytes]:
    return [encode(wire.OneClaim.from_model(ref)) for ref in claims]


def _outcome_entry(ref: AnyClaim, outcome: Outcome) -> Entry:
    """Return the outcome as JSON, or the error for which it cannot be sent. Only this outcome is refused then."""
    try:
        entry = encode(wire.outcome_body(ref, outcome))
    except InvalidValue as error:
        return error
    if len(entry) > LIMIT - BODY_OVERHEAD:
        return InvalidValue(
            f"The outcome of task {ref.task_id} takes {len(entry):,} bytes; the server takes {LIMIT:,} a request.",
            hint="Keep large results elsewhere (a file, a bucket, a table) and send a reference to them.",
        )
    return entry


def _enqueue_call(tasks: Sequence[NewTask]) -> tuple[HttpCall, Any]:
    tasks = [_with_request_id(task) for task in tasks]
    single = len(tasks) == 1
    content = encode(wire_tasks.NewTaskBody.from_model(tasks[0]) if single else wire_tasks.BatchBody.from_model(tasks))
    check_fits("This task does" if single else f"These {len(tasks):,} tasks do", len(content), len(tasks))
    safe = all(task.key is not None for task in tasks)  # a repetition returns the tasks that have the keys
    if single:
        return HttpCall("POST", "/api/tasks", content, safe), _read_created
    return HttpCall("POST", "/api/tasks/batch", content, safe), _read_batch


def _with_request_id(task: NewTask) -> NewTask:
    """Give the task an id by which the server recognises a repetition, if the key alone does not tell: the key may end
    between two requests, and an existing task may be the one that the first request has stored."""
    if task.request is not None or task.key is None:
        return task
    if task.key_scope == ALWAYS and task.key_for is None and task.on_conflict == RETURN:
        return task
    return msgspec.structs.replace(task, request=uuid.uuid4().hex)


def _no_calls() -> Any:
    yield from ()
    return []
