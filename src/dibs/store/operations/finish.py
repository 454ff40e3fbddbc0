"""Finish tasks: write outcomes, each fenced by the token of its claim; exchange: claim in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from dibs.encoded import comparable
from dibs.errors import DibsError, InvalidValue, OutcomeConflict
from dibs.json_values import clean_text, decode, encode_result, same
from dibs.model.checks import from_micros
from dibs.model.claim import (
    AnyClaim,
    Cancelled,
    Claim,
    ClaimName,
    ClaimRequest,
    Completed,
    Failed,
    Finished,
    FinishResult,
    Outcome,
    OutcomeReport,
    Released,
    check_reports,
    claim_name,
)
from dibs.model.retry import jitter
from dibs.model.task import FINAL, STATES, Event, Failure, SetAside, State, Task
from dibs.model.workflow import tasks_in
from dibs.redaction import redact
from dibs.store.contract import Observer
from dibs.store.operation import (
    WIDTH,
    BeginTransaction,
    Mode,
    Operation,
    ReleaseSavepoint,
    RollBackToSavepoint,
    Row,
    Rows,
    SetSavepoint,
    Statement,
    Statements,
)
from dibs.store.operations.advance import Advance
from dibs.store.operations.claim import Claims
from dibs.store.operations.graph import AddedSteps, Graph
from dibs.store.operations.leases import ALL_TASKS, by_task, fence, live_claims, read_tasks, refusal
from dibs.store.operations.rows import read_claims
from dibs.store.operations.validation import TaskValidation
from dibs.store.sql import Words

T = TypeVar("T")


RowsByStatement = dict[str, list[dict[str, Any]]]
Prepared = tuple[RowsByStatement, dict[ClaimName, FinishResult]]
"""The rows for each statement, and the errors of outcomes whose result dibs cannot store."""


PORTION = 16 * 1024 * 1024
"""The largest number of characters of results and errors in one statement."""

FEW = 8
"""A number of outcomes that always fits into one statement: each is limited to 1 MiB."""

PLAIN: Words = (("step_condition", "{{not_a_step}}"),)
"""The statement does not change steps of workflows."""


class Finish:
    """Write outcomes, and what follows from them in workflows."""

    def __init__(self, advance: Advance, graph: Graph, claims: Claims, observer: Observer) -> None:
        self._advance = advance
        self._graph = graph
        self._claims = claims
        self._observer = observer

    def finish(self, reports: Sequence[OutcomeReport]) -> Operation[list[FinishResult]]:
        """Write many outcomes at once. Each outcome is fenced and has its own answer: the result, or an error."""
        prepared = prepare(reports)
        validation = validation_of(reports)
        return Operation(
            "finish",
            lambda: self._finish(reports, *prepared, validation),
            wakes=True,
            request=reports,
            validation=validation,
            item_by_item=lambda: self._finish_item_by_item(reports, validation),
        )

    def _finish_item_by_item(
        self, reports: Sequence[OutcomeReport], validation: TaskValidation | None
    ) -> Statements[list[FinishResult]]:
        """Write each outcome in a savepoint of its own. If the database refuses an outcome, its answer is that error.

        Workflows are locked before tasks, and tasks in the order of their ids, as everywhere else.
        """
        yield BeginTransaction()
        step_rows = yield Statement("steps_among", {"ids": [ref.task_id for ref, _ in reports]})
        yield from self._advance.lock_roots(sorted({row[1] for row in step_rows}))
        answers: dict[ClaimName, FinishResult] = {}
        for report in sorted(reports, key=lambda report: report[0].task_id):
            answers[claim_name(report[0])] = yield from self._finish_one(report, validation)
        return [answers[claim_name(ref)] for ref, _ in reports]

    def _finish_one(self, report: OutcomeReport, validation: TaskValidation | None) -> Statements[FinishResult]:
        yield SetSavepoint()
        try:
            [answer] = yield from self._finish([report], *prepare([report]), validation)
        except Exception as error:
            [(refusal,)] = yield RollBackToSavepoint(error)
            return cast(DibsError, refusal)
        yield ReleaseSavepoint()
        return answer

    def _finish(
        self,
        reports: Sequence[OutcomeReport],
        statements: RowsByStatement,
        unstorable: dict[ClaimName, FinishResult],
        validation: TaskValidation | None,
    ) -> Statements[list[FinishResult]]:
        answers, steps = dict(unstorable), {claim_name(ref) for ref, outcome in reports if _is_step(ref, outcome)}
        plain = _rows_of(statements, lambda name: name not in steps) if steps else statements
        done = yield from self._write(plain, PLAIN)
        self._observer.moved(done)
        answers.update((_claim_of_change(row), _finished(row)) for row in done)
        steps |= {
            claim_name(ref) for ref, _ in reports if not isinstance(ref, Claim) and claim_name(ref) not in answers
        }
        if steps:  # also references to claims, which do not show whether their task is a step
            step_reports = [report for report in reports if claim_name(report[0]) in steps]
            yield from self._finish_steps(step_reports, statements, answers, validation)
        refused = [report for report in reports if claim_name(report[0]) not in answers]
        if refused:
            answers.update((yield from self._answer_refused(refused)))
        return [answers[claim_name(ref)] for ref, _ in reports]

    def _write(self, statements: RowsByStatement, words: Words) -> Statements[Rows]:
        """Write the outcomes. Returns a row for each outcome that was written."""
        done: Rows = []
        for name, rows in statements.items():
            for some in _portions(rows):
                done += yield Statement(name, rows=some, words=words, change=True)
        return done

    def _finish_steps(
        self,
        reports: Sequence[OutcomeReport],
        statements: RowsByStatement,
        answers: dict[ClaimName, FinishResult],
        validation: TaskValidation | None,
    ) -> Statements[None]:
        """Write the outcomes of steps and advance their workflows, in one transaction that locks the workflows. Whether
        a task is a step, and of which tree, never changes, so it is read before."""
        step_rows = yield Statement("steps_among", {"ids": [ref.task_id for ref, _ in reports]})
        if not step_rows and not _any_adds_steps(reports):
            return
        yield BeginTransaction()
        yield from self._advance.lock_roots(sorted({row[1] for row in step_rows}))
        added = {} if validation is None else (yield from self._plan_steps(reports, answers, validation))
        unanswered = {claim_name(ref) for ref, _ in reports} - answers.keys()
        done = yield from self._write(_rows_of(statements, unanswered.__contains__), ALL_TASKS)
        answers.update((_claim_of_change(row), _finished(row)) for row in done)
        ended, ignored = [row for row in done if row[3] in FINAL], set[int]()
        if ended:
            yield from self._advance_workflows(ended, added, answers, ignored)
        self._observer.moved(done, ignored)

    def _plan_steps(
        self, reports: Sequence[OutcomeReport], answers: dict[ClaimName, FinishResult], validation: TaskValidation
    ) -> Statements[dict[ClaimName, AddedSteps]]:
        """The steps that these outcomes add to their workflows. An outcome whose steps cannot be added is refused with
        the reason, and its task is not completed; a lost claim is refused as lost, whatever it adds."""
        adding = [(ref, outcome.steps) for ref, outcome in reports if isinstance(outcome, Completed) and outcome.steps]
        live = (yield from live_claims([ref for ref, _ in adding])) if adding else set()
        added: dict[ClaimName, AddedSteps] = {}
        for ref, steps in adding:
            if (name := claim_name(ref)) in live and name not in answers:
                try:
                    added[name] = yield from self._graph.plan_steps(ref.task_id, steps, validation, added.values())
                except InvalidValue as error:
                    answers[name] = error
        return added

    def _advance_workflows(
        self,
        ended: Sequence[Row],
        added: dict[ClaimName, AddedSteps],
        answers: dict[ClaimName, FinishResult],
        ignored: set[int],
    ) -> Statements[None]:
        """Advance the workflows of these steps. The answer to one report of each workflow that now waits for its
        finalization names the workflow. The steps whose failure is ignored are added to `ignored`."""
        for row in ended:
            if row[3] == State.COMPLETED and (planned := added.get(_claim_of_change(row))) is not None:
                yield from self._graph.add_planned_steps(planned)
        due = yield from self._advance.advance([row[0] for row in ended], ignored=ignored)
        finalize = dict(zip(map(_claim_of_change, ended), due, strict=False))  # upkeep finalizes the rest
        for row in ended:
            name, aside = _claim_of_change(row), SetAside.IGNORED if row[0] in ignored else None
            if name in finalize or aside is not None:
                answers[name] = msgspec.structs.replace(_finished(row), finalize=finalize.get(name), set_aside=aside)

    def _answer_refused(self, reports: Sequence[OutcomeReport]) -> Statements[dict[ClaimName, FinishResult]]:
        refs = [ref for ref, _ in reports]
        earlier = yield Statement("claim_outcomes", rows=[{"id": ref.task_id, "token": ref.token} for ref in refs])
        tasks = yield from read_tasks([ref.task_id for ref in refs])
        return {claim_name(ref): _refusal_or_repeat(ref, outcome, tasks, earlier) for ref, outcome in reports}

    # Exchange

    def exchange(
        self, reports: Sequence[OutcomeReport], request: ClaimRequest
    ) -> Operation[tuple[list[FinishResult], list[Claim]]]:
        """Write the outcomes, each fenced and answered on its own, and claim: both or neither."""
        prepared, validation = prepare(reports), validation_of(reports)
        return Operation(
            "exchange",
            lambda: self._exchange(reports, prepared, validation, request),
            wakes=True,
            mode=Mode.TRANSACTION,
            decode=_read_exchange,
            request=(reports, request),
            validation=validation,
            item_by_item=lambda: self._exchange_item_by_item(reports, validation, request),
        )

    def _exchange(
        self,
        reports: Sequence[OutcomeReport],
        prepared: Prepared,
        validation: TaskValidation | None,
        request: ClaimRequest,
    ) -> Statements[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish(reports, *prepared, validation)
        rows = yield from self._claims.claim_rows(request, atomic=True)
        return answers, rows

    def _exchange_item_by_item(
        self, reports: Sequence[OutcomeReport], validation: TaskValidation | None, request: ClaimRequest
    ) -> Statements[tuple[list[FinishResult], Rows]]:
        answers = yield from self._finish_item_by_item(reports, validation)
        rows = yield from self._claims.claim_rows(request, atomic=True)
        return answers, rows


def prepare(reports: Sequence[OutcomeReport]) -> Prepared:
    """Check and encode the outcomes, before the transaction."""
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
    return {name: by_task(some) for name, some in rows.items()}, answers


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
    return {name: [row for row in rows if which(_claim_of_params(row))] for name, rows in statements.items()}


def _is_step(ref: AnyClaim, outcome: Outcome) -> bool:
    """True if the report shows that the task is a step: it has the whole claim, or adds steps."""
    return (isinstance(ref, Claim) and ref.task.workflow_id is not None) or _adds_steps(outcome)


def _adds_steps(outcome: Outcome) -> bool:
    return isinstance(outcome, Completed) and bool(outcome.steps)


def validation_of(reports: Sequence[OutcomeReport]) -> TaskValidation | None:
    """The validation of the steps that these outcomes add; None if they add none."""
    if not _any_adds_steps(reports):
        return None
    return TaskValidation.of(
        task for _, outcome in reports if isinstance(outcome, Completed) for task in tasks_in(outcome.steps)
    )


def _any_adds_steps(reports: Sequence[OutcomeReport]) -> bool:
    return any(_adds_steps(outcome) for _, outcome in reports)


def _claim_of_params(row: Mapping[str, Any]) -> ClaimName:
    """The claim that a row for a statement is about."""
    return row["id"], row["token"], row["worker_id"]


def _claim_of_change(row: Row) -> ClaimName:
    """The claim that a row of a change is about."""
    return row[0], row[5], row[4]


def _complete(outcome: Completed) -> dict[str, Any]:
    return {"result": None if outcome.result is None else encode_result(outcome.result)}


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


def _refusal_or_repeat(ref: AnyClaim, outcome: Outcome, tasks: dict[int, Task], earlier: list[Row]) -> FinishResult:
    # The same outcome again, after its first answer was lost: the answer is the same, and nothing is written.
    task = tasks.get(ref.task_id)
    for task_id, token, event, to_state, worker_id, detail in earlier:
        same_claim = (task_id, token, worker_id) == claim_name(ref)
        if same_claim and _outcome_of(event, detail) == _EVENTS[type(outcome)]:
            if differs := _difference(ref, outcome, task, detail):
                message = f"Task {task_id} was {differs} under token {token} before. The first outcome is kept."
                return OutcomeConflict(message, task_id=task_id, token=token)
            return _repeated(ref, STATES[to_state], task)
    return refusal(ref, task)


def _difference(ref: AnyClaim, outcome: Outcome, task: Task | None, detail: str | None) -> str | None:
    """How the content of an outcome differs from what is stored; None if it is the same, or if nothing is stored to
    compare with. Delays are not compared: the stored times depend on when the first outcome arrived. Nor are
    tracebacks: the same error has another traceback when it is raised again."""
    if isinstance(outcome, Completed):
        stored = task is not None and (task.state, task.token) == (State.COMPLETED, ref.token)
        if task is not None and stored and not same(comparable(task.result), comparable(outcome.result)):
            return "completed with another result"
    elif isinstance(outcome, Failed) and detail is not None:
        before, failure = decode(detail), outcome.failure
        if (before["type"], before["message"]) != (clean_text(failure.type), clean_text(failure.message)):
            return "failed with another error"
        if before.get("permanent", False) != outcome.permanent:
            return "failed " + ("with a failure that is not permanent" if outcome.permanent else "permanently")
    return None


def _repeated(ref: AnyClaim, state: State, task: Task | None) -> Finished:
    """The state that the outcome led to. If the task has changed since, the `run_at` of that time is unknown."""
    unmoved = task is not None and (task.state, task.token) == (state, ref.token)
    run_at = task.run_at if task is not None and unmoved and state not in FINAL else None
    aside = task.set_aside if task is not None and unmoved else None
    return Finished(ref.task_id, state, task.attempts if task else 0, run_at, repeated=True, set_aside=aside)


def _outcome_of(event: str, detail: str | None) -> str:
    """The outcome that the worker reported. If the cancellation of a task was requested, a failure or a release cancels
    the task as well; then the detail of the entry shows which of them it was."""
    if event != Event.CANCELLED or detail is None:
        return event
    return Event.RELEASED if "outcome" in decode(detail) else Event.FAILED


def _read_exchange(done: tuple[list[FinishResult], Rows]) -> tuple[list[FinishResult], list[Claim]]:
    answers, rows = done
    return answers, read_claims(rows)
