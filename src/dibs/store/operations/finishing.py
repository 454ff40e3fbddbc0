"""Finish: what a worker says back, each write fenced by the token of its claim."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar, cast

import msgspec

from dibs.codec import clean_text, decode, encode, same
from dibs.errors import ClaimLost, DibsError, InvalidValue, NotYourClaim, OutcomeConflict, TaskNotFound
from dibs.model.checks import from_micros
from dibs.model.claim import (
    AnyClaim,
    Cancelled,
    Claim,
    ClaimName,
    ClaimStatus,
    Completed,
    Failed,
    Finished,
    FinishResult,
    Outcome,
    OutcomeReport,
    ProgressReport,
    Released,
    Renewed,
    check_claims,
    check_reports,
    claim_name,
)
from dibs.model.retry import jitter
from dibs.model.task import FINAL, STATES, Event, Failure, State, Task
from dibs.model.workflow import tasks_in
from dibs.redaction import redact
from dibs.store.operation import WIDTH, Keep, Mark, Operation, Row, Rows, Statement, Steps, Together, Undo
from dibs.store.operations.checking import Checks
from dibs.store.operations.growing import Growing, Growth
from dibs.store.operations.rows import read_task
from dibs.store.sql import Words

T = TypeVar("T")


RowsByStatement = dict[str, list[dict[str, Any]]]
Prepared = tuple[RowsByStatement, dict[ClaimName, FinishResult]]
"""The rows for each statement, and the answers to those whose result dibs cannot store."""


PORTION = 16 * 1024 * 1024
"""Characters of results and errors that one statement holds at most."""

FEW = 8
"""Outcomes that never exceed a statement, whatever they hold: each is limited to 1 MiB."""

PLAIN: Words = (("whose", "{{not_a_step}}"),)
EVERYBODYS: Words = (("whose", ""),)


class Finishing(Growing, ABC):
    """Outcomes, starts, renewals, progress; and how claims stand."""

    def finish(self, reports: Sequence[OutcomeReport]) -> Operation[list[FinishResult]]:
        """Write many outcomes at once; each is fenced and answered on its own, an error where it was refused."""
        prepared = prepare(reports)
        checks = checks_of(reports)
        return Operation(
            "finish",
            lambda: self._finish(reports, *prepared, checks),
            wakes=True,
            about=reports,
            checks=checks,
            apart=lambda: self._finish_apart(reports, checks),
        )

    def _finish_apart(self, reports: Sequence[OutcomeReport], checks: Checks | None) -> Steps[list[FinishResult]]:
        """Write each outcome in a savepoint of its own: one that the database refuses is answered with the refusal.

        Workflows are locked before tasks, and tasks in the order of their ids, as everywhere else.
        """
        yield Together()
        among = yield Statement("steps_among", {"ids": [ref.task_id for ref, _ in reports]})
        yield from self.hold_roots(sorted({row[1] for row in among}))
        answers: dict[ClaimName, FinishResult] = {}
        for report in sorted(reports, key=lambda report: report[0].task_id):
            answers[claim_name(report[0])] = yield from self._finish_one(report, checks)
        return [answers[claim_name(ref)] for ref, _ in reports]

    def _finish_one(self, report: OutcomeReport, checks: Checks | None) -> Steps[FinishResult]:
        yield Mark()
        try:
            [answer] = yield from self._finish([report], *prepare([report]), checks)
        except Exception as error:
            [(refusal,)] = yield Undo(error)
            return cast(DibsError, refusal)
        yield Keep()
        return answer

    def _finish(
        self,
        reports: Sequence[OutcomeReport],
        statements: RowsByStatement,
        unstorable: dict[ClaimName, FinishResult],
        checks: Checks | None,
    ) -> Steps[list[FinishResult]]:
        answers, steps = dict(unstorable), {claim_name(ref) for ref, said in reports if _is_step(ref, said)}
        plain = _rows_of(statements, lambda name: name not in steps) if steps else statements
        done = yield from self._write(plain, PLAIN)
        self.witness.moved(done)
        answers.update((_claim_in(row), _finished(row)) for row in done)
        steps |= {
            claim_name(ref) for ref, _ in reports if not isinstance(ref, Claim) and claim_name(ref) not in answers
        }
        if steps:  # known to be some, or named by somebody who cannot know
            theirs = [report for report in reports if claim_name(report[0]) in steps]
            yield from self._finish_steps(theirs, statements, answers, checks)
        refused = [report for report in reports if claim_name(report[0]) not in answers]
        if refused:
            answers.update((yield from self._answer_refused(refused)))
        return [answers[claim_name(ref)] for ref, _ in reports]

    def _write(self, statements: RowsByStatement, whose: Words) -> Steps[Rows]:
        """Write the outcomes; a row for each that was written."""
        done: Rows = []
        for name, rows in statements.items():
            for some in _portions(rows):
                done += yield Statement(name, rows=some, words=whose, change=True)
        return done

    def _finish_steps(
        self,
        reports: Sequence[OutcomeReport],
        statements: RowsByStatement,
        answers: dict[ClaimName, FinishResult],
        checks: Checks | None,
    ) -> Steps[None]:
        """What ends a step also lets its workflow go on, in one transaction, while the workflow is held. That a task is
        a step, and of whose tree, never changes: so it is asked before."""
        among = yield Statement("steps_among", {"ids": [ref.task_id for ref, _ in reports]})
        if not among and not _growing(reports):
            return
        yield Together()
        yield from self.hold_roots(sorted({row[1] for row in among}))
        growth = {} if checks is None else (yield from self._plan_growth(reports, answers, checks))
        open_ones = {claim_name(ref) for ref, _ in reports} - answers.keys()
        done = yield from self._write(_rows_of(statements, open_ones.__contains__), EVERYBODYS)
        answers.update((_claim_in(row), _finished(row)) for row in done)
        ended, ignored = [row for row in done if row[3] in FINAL], set[int]()
        if ended:
            yield from self._advance(ended, growth, answers, ignored)
        self.witness.moved(done, ignored)

    def _plan_growth(
        self, reports: Sequence[OutcomeReport], answers: dict[ClaimName, FinishResult], checks: Checks
    ) -> Steps[dict[ClaimName, Growth]]:
        """The steps that these outcomes add to their workflows. An outcome whose steps cannot be added is refused with
        the reason, and its task is not completed; a lost claim is refused as lost, whatever it adds."""
        wishes = [(ref, said.steps) for ref, said in reports if isinstance(said, Completed) and said.steps]
        live = (yield from _live([ref for ref, _ in wishes])) if wishes else set()
        growth: dict[ClaimName, Growth] = {}
        for ref, steps in wishes:
            if (name := claim_name(ref)) in live and name not in answers:
                try:
                    growth[name] = yield from self.plan_growth(ref.task_id, steps, checks, growth.values())
                except InvalidValue as error:
                    answers[name] = error
        return growth

    def _advance(
        self,
        ended: Sequence[Row],
        growth: dict[ClaimName, Growth],
        answers: dict[ClaimName, FinishResult],
        ignored: set[int],
    ) -> Steps[None]:
        """Let the workflows of these steps go on; one report of each that has nothing left to run says so. The steps
        whose failure is ignored are added to `ignored`."""
        for row in ended:
            if row[3] == State.COMPLETED and (grown := growth.get(_claim_in(row))) is not None:
                yield from self.grow(grown)
        due = yield from self.advance([row[0] for row in ended], ignored=ignored)
        for workflow_id, row in zip(due, ended, strict=False):  # a due one that finds no report is left to upkeep
            answers[_claim_in(row)] = msgspec.structs.replace(_finished(row), finalize=workflow_id)

    def _answer_refused(self, reports: Sequence[OutcomeReport]) -> Steps[dict[ClaimName, FinishResult]]:
        refs = [ref for ref, _ in reports]
        told = yield Statement("claim_outcomes", rows=[{"id": ref.task_id, "token": ref.token} for ref in refs])
        tasks = yield from _read_tasks([ref.task_id for ref in refs])
        return {claim_name(ref): _refusal_or_repeat(ref, outcome, tasks, told) for ref, outcome in reports}

    def start(self, claims: Sequence[AnyClaim]) -> Operation[list[DibsError | None]]:
        """These tasks, claimed ahead of their turn, begin now; a lost claim is answered with ClaimLost."""
        check_claims(claims)
        return Operation("start", lambda: self._start(claims))

    def _start(self, claims: Sequence[AnyClaim]) -> Steps[list[DibsError | None]]:
        if not claims:
            return []
        rows = yield Statement("start", rows=_in_order([fence(ref) for ref in claims]), words=EVERYBODYS)
        return (yield from _or_refusals(claims, dict.fromkeys((row[:3] for row in rows), None)))

    def renew(self, claims: Sequence[AnyClaim], lease: int) -> Operation[list[Renewed | DibsError]]:
        """Prolong the leases to `lease` microseconds from now; a lost one is answered with ClaimLost."""
        check_claims(claims)
        return Operation("renew", lambda: self._renew(claims, lease))

    def _renew(self, claims: Sequence[AnyClaim], lease: int) -> Steps[list[Renewed | DibsError]]:
        if not claims:
            return []
        given = _in_order([{**fence(ref), "lease": lease} for ref in claims])
        rows = yield Statement("renew", rows=given, words=EVERYBODYS)
        renewed = {row[:3]: Renewed(row[0], from_micros(row[3]), bool(row[4])) for row in rows}
        return (yield from _or_refusals(claims, renewed))

    def progress(self, notes: Sequence[ProgressReport]) -> Operation[list[bool | DibsError]]:
        """Note how far the tasks are; each answer says whether somebody asked the task to stop."""
        check_claims([ref for ref, _, _ in notes])
        return Operation("progress", lambda: self._progress(notes))

    def _progress(self, notes: Sequence[ProgressReport]) -> Steps[list[bool | DibsError]]:
        if not notes:
            return []
        latest = {claim_name(note[0]): _note(*note) for note in notes}  # one statement cannot write a row twice
        rows = yield Statement("progress", rows=_in_order(latest.values()), words=EVERYBODYS)
        noted = {row[:3]: bool(row[3]) for row in rows}
        return (yield from _or_refusals([ref for ref, _, _ in notes], noted))

    def standing(self, claims: Sequence[AnyClaim]) -> Operation[list[ClaimStatus]]:
        """How the claims stand, without touching them."""
        check_claims(claims)
        return Operation("standing", lambda: self._standing(claims), writes=False)

    def _standing(self, claims: Sequence[AnyClaim]) -> Steps[list[ClaimStatus]]:
        if not claims:
            return []
        rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
        live = {row[:3]: ClaimStatus.STOPPING if row[3] else ClaimStatus.HELD for row in rows}
        return [live.get(claim_name(ref), ClaimStatus.LOST) for ref in claims]


def _live(claims: Sequence[AnyClaim]) -> Steps[set[ClaimName]]:
    rows = yield Statement("claim_status", {"ids": [ref.task_id for ref in claims]})
    return {row[:3] for row in rows}


def refusal(ref: AnyClaim, task: Task | None) -> DibsError:
    """Why a fenced write changed nothing."""
    if task is None:
        return TaskNotFound(ref.task_id)
    if task.token == ref.token and task.worker_id not in (ref.worker_id, None):
        whose = "is held" if task.state is State.CLAIMED else "was last held"
        message = f"Task {task.id} {whose} by {task.worker_id}, not by {ref.worker_id}."
        return NotYourClaim(message, task_id=task.id, token=ref.token)
    where = f"claimed by {task.worker_id} under token {task.token}" if task.state is State.CLAIMED else task.state
    message = f"{ref.worker_id} no longer holds task {task.id} under token {ref.token}: it is {where} now."
    return ClaimLost(message, task_id=task.id, token=ref.token)


def _or_refusals(claims: Sequence[AnyClaim], done: Mapping[ClaimName, T]) -> Steps[list[T | DibsError]]:
    """For each claim what was done, or why nothing was."""
    lost = [ref.task_id for ref in claims if claim_name(ref) not in done]
    tasks = (yield from _read_tasks(lost)) if lost else {}
    return [done[name] if (name := claim_name(ref)) in done else refusal(ref, tasks.get(ref.task_id)) for ref in claims]


def _read_tasks(ids: list[int]) -> Steps[dict[int, Task]]:
    rows = yield Statement("get", {"ids": ids})
    return {row[0]: read_task(row) for row in rows}


def prepare(reports: Sequence[OutcomeReport]) -> Prepared:
    """Check and encode the outcomes, before the transaction, where nobody waits for it."""
    check_reports(reports)
    rows: RowsByStatement = {}
    answers: dict[ClaimName, FinishResult] = {}
    for ref, outcome in reports:
        name, values = _STATEMENTS[type(outcome)]
        try:
            row = {**fence(ref), **values(outcome)}
        except InvalidValue as error:
            answers[claim_name(ref)] = error
        else:
            rows.setdefault(name, []).append(row)
    return {name: _in_order(some) for name, some in rows.items()}, answers


def _portions(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows in portions that one statement can hold: the engines send the rows of a statement as one text, which
    SQLite limits to 1 GB and PostgreSQL to 1 GiB."""
    if len(rows) <= FEW or sum(map(_bytes_of, rows)) <= PORTION:
        if rows:
            yield rows
        return
    half = len(rows) // 2
    yield from _portions(rows[:half])
    yield from _portions(rows[half:])


def _bytes_of(row: Mapping[str, Any]) -> int:
    """Characters of the one long text in a row: the result or the error."""
    return len(row.get("result") or row.get("error") or "")


def _rows_of(statements: RowsByStatement, which: Callable[[ClaimName], bool]) -> RowsByStatement:
    return {name: [row for row in rows if which(_named(row))] for name, rows in statements.items()}


def _is_step(ref: AnyClaim, said: Outcome) -> bool:
    """True where the one who reports knows it to be a step: it holds the whole claim, or adds to the workflow."""
    return (isinstance(ref, Claim) and ref.task.workflow_id is not None) or _grows(said)


def _grows(said: Outcome) -> bool:
    return isinstance(said, Completed) and bool(said.steps)


def checks_of(reports: Sequence[OutcomeReport]) -> Checks | None:
    """The params of the steps that are added; None where there are none."""
    if not _growing(reports):
        return None
    return Checks.of(task for _, said in reports if isinstance(said, Completed) for task in tasks_in(said.steps))


def _growing(reports: Sequence[OutcomeReport]) -> bool:
    return any(_grows(said) for _, said in reports)


def _named(row: Mapping[str, Any]) -> ClaimName:
    """The claim that a row for a statement is about."""
    return row["id"], row["token"], row["worker_id"]


def _claim_in(row: Row) -> ClaimName:
    """The claim that a row of a change is about."""
    return row[0], row[5], row[4]


def fence(ref: AnyClaim) -> dict[str, Any]:
    """What names a claim in a statement."""
    return {"id": ref.task_id, "token": ref.token, "worker_id": ref.worker_id}


def _in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By task: where an engine locks row by row, two that write about the same tasks must not meet half-way."""
    return sorted(rows, key=itemgetter("id"))


def _note(ref: AnyClaim, percent: int, message: str | None) -> dict[str, Any]:
    text = None if message is None else clean_text(message)
    return {**fence(ref), "progress": percent, "progress_message": text}


def _complete(outcome: Completed) -> dict[str, Any]:
    return {"result": None if outcome.result is None else encode(outcome.result, "result")}


def _fail(outcome: Failed) -> dict[str, Any]:
    return {
        "error": encode_failure(outcome.failure, permanent=outcome.permanent),
        "retry_in": None if outcome.retry_in is None else round(outcome.retry_in * 1e6),
        "permanent": outcome.permanent,
        "jitter": jitter(),
    }


def _release(outcome: Released) -> dict[str, Any]:
    return {"delay": round(outcome.delay * 1e6)}


_STATEMENTS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Completed: ("complete", _complete),
    Failed: ("fail", _fail),
    Released: ("release", _release),
    Cancelled: ("stop", lambda outcome: {}),
}
_EVENTS: dict[type, Event] = {
    Completed: Event.COMPLETED,
    Failed: Event.FAILED,
    Released: Event.RELEASED,
    Cancelled: Event.CANCELLED,
}


def encode_failure(failure: Failure, *, permanent: bool = False) -> str:
    """The failure as JSON that any engine stores, without the secrets that can be recognised in it: an exception may
    quote a URL with its password, a traceback a line of code. Every reader of the task and its history sees it. Type
    and message come first: errors are grouped by the beginning of the text."""
    clean: dict[str, Any] = {
        "type": clean_text(failure.type),
        "message": redact(clean_text(failure.message)),
        "traceback": None if failure.traceback is None else redact(clean_text(failure.traceback)),
    }
    if permanent:
        clean["permanent"] = True
    return msgspec.json.encode(clean).decode()


def _finished(row: Row) -> Finished:
    task_id, to_state, attempts, run_at = row[0], row[3], row[WIDTH], row[WIDTH + 1]
    state = STATES[to_state]
    return Finished(task_id, state, attempts, None if state in FINAL else from_micros(run_at))


def _refusal_or_repeat(ref: AnyClaim, outcome: Outcome, tasks: dict[int, Task], told: list[Row]) -> FinishResult:
    # The same outcome again, after its first answer was lost: the answer is the same, and nothing is written.
    task = tasks.get(ref.task_id)
    for task_id, token, event, to_state, worker_id, detail in told:
        same_claim = (task_id, token, worker_id) == claim_name(ref)
        if same_claim and _outcome_of(event, detail) == _EVENTS[type(outcome)]:
            if differs := _difference(ref, outcome, task, detail):
                message = f"Task {task_id} was {differs} under token {token} before. The first outcome is kept."
                return OutcomeConflict(message, task_id=task_id, token=token)
            return _told_again(ref, STATES[to_state], task)
    return refusal(ref, task)


def _difference(ref: AnyClaim, outcome: Outcome, task: Task | None, detail: str | None) -> str | None:
    """How the content of an outcome differs from what is stored; None if it is the same, or if nothing is stored to
    compare with. Delays are not compared: the stored times depend on when the first outcome arrived. Nor are
    tracebacks: the same error has another traceback when it is raised again."""
    if isinstance(outcome, Completed):
        stored = task is not None and (task.state, task.token) == (State.COMPLETED, ref.token)
        if task is not None and stored and not same(task.result, outcome.result):
            return "completed with another result"
    elif isinstance(outcome, Failed) and detail is not None:
        before, failure = decode(detail), outcome.failure
        if (before["type"], before["message"]) != (clean_text(failure.type), clean_text(failure.message)):
            return "failed with another error"
        if before.get("permanent", False) != outcome.permanent:
            return "failed " + ("with a failure that is not permanent" if outcome.permanent else "permanently")
    return None


def _told_again(ref: AnyClaim, state: State, task: Task | None) -> Finished:
    """The state that the outcome led to; when the task went on since, its `run_at` then is no longer known."""
    unmoved = task is not None and (task.state, task.token) == (state, ref.token)
    run_at = task.run_at if task is not None and unmoved and state not in FINAL else None
    return Finished(ref.task_id, state, task.attempts if task else 0, run_at, repeated=True)


def _outcome_of(event: str, detail: str | None) -> str:
    """What the worker said. A task that somebody had asked to stop is cancelled by a failure or a release as well;
    the detail then tells which it was."""
    if event != Event.CANCELLED or detail is None:
        return event
    return Event.RELEASED if "outcome" in decode(detail) else Event.FAILED
