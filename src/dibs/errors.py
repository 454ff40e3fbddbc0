"""The exceptions of dibs. Each says what happened and what to do."""

from __future__ import annotations


class DibsError(Exception):
    """The base class of all exceptions of dibs.

    `code`: a stable identifier for programs; `hint`: what to do; `str()` shows the message and the hint.
    """

    code = "error"
    default_hint = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class InvalidValue(DibsError, ValueError):
    """An invalid value, refused before anything was written."""

    code = "invalid_value"


class SchemaViolation(InvalidValue):
    """Params that do not match the JSON Schema of their task type."""

    code = "schema_violation"


class ValidationTooSlow(InvalidValue):
    """Params whose validation against the JSON Schema of their task type takes more time or memory than dibs allows.
    Nothing was written."""

    code = "validation_too_slow"
    default_hint = (
        "Send params that are smaller or less deeply nested, or register a schema with fewer alternatives: "
        "in a recursive schema or one with nested references, the work may double with each level."
    )


class InvalidGraph(InvalidValue):
    """A workflow that cannot run to its end: a step waits for itself, or for a step that does not exist."""

    code = "invalid_graph"


class WorkflowNotFound(DibsError, LookupError):
    """No workflow has this id: it never existed, or it was pruned after its retention."""

    code = "workflow_not_found"

    def __init__(self, workflow_id: int) -> None:
        super().__init__(
            f"There is no workflow {workflow_id}.", hint="Ended workflows are pruned after their retention."
        )
        self.workflow_id = workflow_id


class WrongWorkflowState(DibsError):
    """An operation that is not allowed in the state of the workflow (cancel a completed one, retry a running one)."""

    code = "workflow_state"

    def __init__(self, message: str, *, workflow_id: int, state: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.workflow_id = workflow_id
        self.state = state


class FinalizationLost(DibsError):
    """A finalization claim that is no longer valid: its lease expired. The call changed nothing."""

    code = "finalization_lost"
    default_hint = "Stop: another processor finalizes this workflow, or has done so."

    def __init__(self, message: str, *, workflow_id: int, token: int) -> None:
        super().__init__(message)
        self.workflow_id = workflow_id
        self.token = token


class TaskNotFound(DibsError, LookupError):
    """No task has this id: it never existed, or it was pruned after its retention."""

    code = "task_not_found"

    def __init__(self, task_id: int) -> None:
        super().__init__(
            f"There is no task {task_id}.", hint="Finished tasks are pruned after their retention; their history stays."
        )
        self.task_id = task_id


class TaskTypeNotFound(DibsError, LookupError):
    """No task type is registered under this name (and version)."""

    code = "task_type_not_found"


class LimitNotFound(DibsError, LookupError):
    """No limit has this name."""

    code = "limit_not_found"
    default_hint = "limits() lists all limits; set_limit() creates one."

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no limit {name!r}.")
        self.name = name


class LimitUnknown(InvalidValue):
    """A task names a limit that does not exist. Nothing was written."""

    code = "limit_unknown"
    default_hint = "Create the limit first, with set_limit(), `dibs limits set` or a worker that declares it."

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no limit {name!r}.")
        self.name = name


class LimitReached(DibsError):
    """A task that cannot be claimed by its id now, because one of its limits is reached."""

    code = "limit_reached"
    default_hint = "Claim it when a task with the same limit has ended, or let `claim` choose."

    def __init__(self, message: str, *, task_id: int, name: str) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.name = name


class EventsPruned(DibsError, LookupError):
    """Events that a consumer has not read yet were deleted by the retention of the history: `events(after=…)` names an
    entry before them, or the consumer is slower than the retention. `after`: the last entry that the consumer has;
    `pruned_to`: entries up to this one may be missing."""

    code = "events_pruned"

    def __init__(self, after: int, pruned_to: int) -> None:
        super().__init__(
            f"Events after entry {after} of the history were pruned, up to entry {pruned_to}.",
            hint=f"Read the current state, then continue with after={pruned_to}, or keep the history for longer.",
        )
        self.after = after
        self.pruned_to = pruned_to


class ScheduleNotFound(DibsError, LookupError):
    """No schedule has this name."""

    code = "schedule_not_found"
    default_hint = "schedules() lists all schedules; set_schedule() creates one."

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no schedule {name!r}.")
        self.name = name


class RetentionNotFound(DibsError, LookupError):
    """No retention rule applies to exactly this queue, type or workflow."""

    code = "retention_not_found"
    default_hint = "retention() lists the rules that are set."


class KeyNotFound(DibsError, LookupError):
    """No API key has this id."""

    code = "key_not_found"
    default_hint = "keys() lists all keys; the id of a key is the part between its two underscores."

    def __init__(self, message: str, *, key_id: str | None = None) -> None:
        super().__init__(message)
        self.key_id = key_id


class KeyConflict(DibsError):
    """The idempotency key already belongs to a task of the same queue that has another type or other params, or
    `on_conflict` is "raise"."""

    code = "key_conflict"
    default_hint = "Use a new key for new work; in a queue, the same key must always have the same type and params."

    def __init__(
        self,
        key: str,
        task_id: int | None = None,
        workflow_id: int | None = None,
        *,
        message: str | None = None,
        hint: str | None = None,
    ) -> None:
        owner = "another task of this batch" if task_id is None else f"task {task_id}"
        default_message = f"The key {key!r} already belongs to {owner}, which has another type or other params."
        if workflow_id is not None:
            default_message = f"The key {key!r} already belongs to workflow {workflow_id}, which is another graph."
        super().__init__(default_message if message is None else message, hint=hint)
        self.key = key
        self.task_id = task_id
        self.workflow_id = workflow_id


class ClaimLost(DibsError):
    """A write under a claim that is no longer valid. It changed nothing."""

    code = "claim_lost"
    default_hint = "Stop working on this task: its lease expired or it was recovered, and another worker may run it."

    def __init__(self, message: str, *, task_id: int, token: int) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.token = token


class NotYourClaim(ClaimLost):
    """A write to a task that another worker holds. It changed nothing."""

    code = "not_your_claim"
    default_hint = "Only the worker that claimed a task may write to it; check the worker id."


class TaskExpired(DibsError):
    """The start of a task that was claimed ahead, after its expiry. It changed nothing: the claim is still held."""

    code = "task_expired"
    default_hint = "Do not run the task; release it, and it is cancelled."

    def __init__(self, message: str, *, task_id: int, token: int) -> None:
        super().__init__(message)
        self.task_id = task_id
        self.token = token


class OutcomeConflict(ClaimLost):
    """A second outcome for an ended claim, with another result or another error. It changed nothing."""

    code = "outcome_conflict"
    default_hint = "Repeat a call only with the same content; new work needs a new claim."


class NotClaimable(DibsError):
    """A claim by id of a task that is not pending, or whose queue or type is paused."""

    code = "not_claimable"

    def __init__(self, message: str, *, task_id: int, state: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.task_id = task_id
        self.state = state


class AlreadyClaimed(NotClaimable):
    """A claim by id of a task that a worker holds. `token`: of the claim, if the same worker holds the task."""

    code = "already_claimed"
    default_hint = "Claim another task, or wait: the task is recovered if its worker dies."

    def __init__(self, message: str, *, task_id: int, worker_id: str | None, token: int | None = None) -> None:
        hint = (
            "Use the claim that you have, and renew it. If another process has the same worker id, rename one of them."
        )
        super().__init__(message, task_id=task_id, state="claimed", hint=None if token is None else hint)
        self.worker_id = worker_id
        self.token = token


class WrongState(DibsError):
    """An operation that is not allowed in the state of the task (cancel a completed task, retry a running one)."""

    code = "wrong_state"

    def __init__(self, message: str, *, task_id: int, state: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.task_id = task_id
        self.state = state


class AlreadyStarted(WrongState):
    """A change of a task that a worker has claimed: the claim came first. Nothing was changed."""

    code = "already_started"
    default_hint = (
        "Only tasks that no worker holds can be changed. Cancel the task and enqueue another one, or let it run."
    )


class WaitTimeout(DibsError, TimeoutError):
    """The task or workflow did not finish within the timeout. It continues."""

    code = "wait_timeout"


class LifespanFailed(DibsError):
    """The lifespan of an app could not be started, so its worker has not started either and has claimed nothing."""

    code = "lifespan_failed"
    default_hint = "The log has the traceback. Correct what the lifespan opens, and start the worker again."


class ResultMissing(DibsError):
    """The result of a task that is not completed was read."""

    code = "result_missing"

    def __init__(self, message: str, *, task_id: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.task_id = task_id


class ResultMismatch(DibsError, ValueError):
    """The stored result of a task does not fit the return type of its handler. `Task.raw_result` is the stored JSON."""

    code = "result_mismatch"

    def __init__(self, message: str, *, task_id: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.task_id = task_id


class CodecFailed(DibsError):
    """A codec of the user has failed, or has the wrong key. Neither the message nor the traceback shows any data."""

    code = "codec_failed"
    default_hint = (
        "Check the key and the codec: decode must accept what encode has returned under the same name. The stored value"
        " is unchanged: after the repair, retry the task."
    )


class CodecMissing(InvalidValue):
    """A stored value is encoded, and the program has no codec of this name where it needs one."""

    code = "codec_missing"

    def __init__(self, what: str, name: str, known: tuple[str, ...] = ()) -> None:
        others = f" Declared: {', '.join(map(repr, known))}." if known else ""
        super().__init__(
            f"No codec {name!r} is declared here to decode {what}.{others}",
            hint="Declare the handler with the codec: @app.task(codec=…). Beside a new codec keep the old one: "
            "codec=[new, old].",
        )


class StoreError(DibsError):
    """The store cannot be opened or reached, or its data cannot be used."""

    code = "store_error"


class StoreBusy(StoreError):
    """The database stayed locked for longer than dibs waits. Nothing was written; a retry is safe."""

    code = "store_busy"
    default_hint = (
        "Look for a program that holds a write transaction open. If it is your own transaction, let the call join it"
        " with on(connection). A retry is safe."
    )


class RateLimited(StoreBusy):
    """The rate limit of the key is exceeded for longer than dibs waits. Nothing was written."""

    code = "rate_limited"
    default_hint = "Send fewer requests, or give the key a higher rate limit; a retry is safe."


class StoreUnavailable(StoreError):
    """The database or the server cannot be reached, or stops. The transaction that failed has written nothing."""

    code = "store_unavailable"
    default_hint = "Check that the database runs and that the URL is right; a retry with a key or token is safe."


class OutcomeUnknown(StoreError):
    """The connection broke while the write was being committed: it may or may not be stored."""

    code = "outcome_unknown"
    default_hint = "Repeat the call with the same key or token: dibs recognises what is already stored."


class StoreRefused(StoreError):
    """The database refused this write: it cannot store a value, or a rule of the database forbids the write.

    Nothing was written. The same write would be refused again.
    """

    code = "store_refused"
    default_hint = "Change the value, or the rule of the database; the message shows what the database reported."


class NotAllowed(StoreError):
    """The server does not know the API key, or the key does not allow the request. Nothing was written.

    `code` is "unauthorized" for a key that is missing, wrong, expired or revoked; otherwise it names what the key
    lacks.
    """

    code = "unauthorized"

    def __init__(self, message: str, *, code: str = "unauthorized", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class SchemaTooNew(StoreError):
    """The database was migrated by a newer version of dibs."""

    code = "schema_too_new"
    default_hint = "Upgrade dibs on this machine; nothing was changed."


class SchemaMissing(StoreError):
    """The database has no dibs tables, or older ones, and automatic migration is switched off."""

    code = "schema_missing"
    default_hint = "Migrate the database first, or open it with migrate=True."
