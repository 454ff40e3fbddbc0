// The types of the HTTP API. Made from its OpenAPI document by `python -m tools.typescript`; do not edit.

/** The server process is running. */
export interface Alive {
  status?: "alive";
}

/** The settings of all queues and task types that have any, by name. */
export interface AllSettings {
  queues: Array<QueueSettings>;
  task_types: Array<TypeSettings>;
}

/** The delay before the next attempt: the base, doubled with every failure, at most the cap. */
export interface Backoff {
  base_seconds: number;
  cap_seconds: number;
}

/** The delay before the next attempt: the base, doubled with every failure, at most the cap (seconds). */
export interface BackoffBody {
  /** The delay after the first failure, unless the cap is shorter. */
  base_seconds?: number;
  /** The longest delay. */
  cap_seconds?: number;
}

/** Tasks to enqueue in one transaction, all or none. */
export interface BatchBody {
  /** The tasks. */
  tasks: Array<NewTaskBody>;
}

/** The attempt stopped because the cancellation of the task was requested. */
export interface CancelledOutcome {
  outcome: "cancelled";
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
}

/** What to do with ticks that were missed because no worker or server was running. */
export type CatchUp = "all" | "none" | "one";

/** New values for a task that has not started. A value that is missing or null stays. */
export interface ChangeBody {
  priority?: number | null;
  delay_seconds?: number | null;
  run_at?: string | null;
  queue?: string | null;
  tags?: Array<string> | null;
  group?: string | null;
  params?: JsonObject | null;
}

/** New values for tasks that have not started. A value that is missing or null stays. */
export interface ChangeForManyBody {
  priority?: number | null;
  delay_seconds?: number | null;
  run_at?: string | null;
  queue?: string | null;
  tags?: Array<string> | null;
  group?: string | null;
}

/** Filters, all of which a task must match, and the new values. At least one filter is required. */
export interface ChangeMatchingBody {
  status?: State | null;
  task_type?: string | null;
  queue?: string | null;
  key?: string | null;
  worker?: string | null;
  since?: string | null;
  until?: string | null;
  text?: string | null;
  tags?: Array<string> | null;
  group?: string | null;
  with_limit?: string | null;
  cursor?: number | null;
  changes: ChangeForManyBody;
}

/** The group as it is now. */
export interface ChangedGroup {
  success: boolean;
  group: Group;
}

/** The limit as it is now. */
export interface ChangedLimit {
  success: boolean;
  limit: Limit;
}

/** The settings of the queue as they are now. */
export interface ChangedQueueSettings {
  settings: QueueSettings;
  success?: boolean;
  next_cursor?: number | null;
}

/** The rule as it is stored now. */
export interface ChangedRule {
  success: boolean;
  rule: RetentionRule;
}

/** The schedule as it is now. */
export interface ChangedSchedule {
  success: boolean;
  schedule: Schedule;
}

/** The task as it is now. */
export interface ChangedTask {
  success: boolean;
  task: Task;
}

/** The limits of the task type as they are now. */
export interface ChangedTypeSettings {
  settings: TypeSettings;
  success?: boolean;
  next_cursor?: number | null;
}

/** The workflow as it is now. */
export interface ChangedWorkflow {
  success: boolean;
  workflow: Workflow;
}

/** A page of changes. */
export interface ChangesQuery {
  limit?: number;
}

/** The result of one check of the doctor. */
export interface Check {
  name: string;
  verdict: Verdict;
  message: string;
  hint: string;
}

/** A value to keep for later attempts. */
export interface CheckpointBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Unique within the task. */
  name: string;
  /** Any JSON value. */
  value: JsonValue;
}

/** The checkpoints of a task, by name. */
export interface Checkpoints {
  checkpoints: JsonObject;
}

/** The results of all checks of the doctor. */
export interface Checks {
  checks: Array<Check>;
}

/** A claim of tasks by a worker. */
export interface ClaimBody {
  order?: Order | null;
  sort_by?: "created_at" | "priority" | "random" | null;
  sort_order?: "asc" | "desc" | null;
  queues?: Array<string> | null;
  task_types?: Array<string> | null;
  max_attempts_remaining?: number | null;
  count?: number | null;
  /** Seconds until the claim ends unless renewed. */
  lease_seconds?: number;
  incarnation?: string | null;
  /** Claim ahead: a task starts with a call of /start, and no attempt is charged before. */
  ahead?: boolean;
  request_id?: string | null;
  /** The name that the worker has chosen. */
  worker_id: string;
  /** Seconds to wait for a task, if there is none. */
  wait_seconds?: number;
}

/** A claim of this task by a worker. */
export interface ClaimByIdBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** Seconds until the claim ends unless renewed. */
  lease_seconds?: number;
  request_id?: string | null;
}

/** The processor that claims the finalization, and the lease of the claim. */
export interface ClaimFinalizationBody {
  /** The name of the processor, unique for each process: a claim under the name of another process extends the claim of that process. */
  processor_id: string;
  /** Seconds until the claim ends unless renewed. */
  timeout_seconds?: number;
}

/** Which tasks to claim, how many, and for how long. */
export interface ClaimOptions {
  order?: Order | null;
  sort_by?: "created_at" | "priority" | "random" | null;
  sort_order?: "asc" | "desc" | null;
  queues?: Array<string> | null;
  task_types?: Array<string> | null;
  max_attempts_remaining?: number | null;
  count?: number | null;
  /** Seconds until the claim ends unless renewed. */
  lease_seconds?: number;
  incarnation?: string | null;
  /** Claim ahead: a task starts with a call of /start, and no attempt is charged before. */
  ahead?: boolean;
  request_id?: string | null;
}

/** The result of an attempt to claim a finalization, for programs, tables and metrics. */
export type ClaimReason = "already_claimed" | "already_complete" | "claimed" | "extended" | "not_claimed" | "not_found" | "not_ready" | "race_condition";

/** The status of a claim. */
export type ClaimStatus = "held" | "lost" | "stopping";

/** The status of each claim, in the order of the request. */
export interface ClaimStatuses {
  standings: Array<ClaimStatus>;
}

/** The first claimed task; with `count` in the request also all claimed tasks, in the order of the claim. */
export interface Claimed {
  success: boolean;
  task: Task;
  message: string;
  tasks?: Array<Task>;
}

/** Claims of one worker. */
export interface ClaimsBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The claims, each by its task and token. */
  claims: Array<OneClaim>;
}

/** The attempt succeeded. */
export interface CompleteBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Any JSON value. */
  result?: JsonValue;
  /** Steps to add to the workflow, named after this step. Its children wait for them as well. */
  steps?: Array<StepBody>;
}

/** The attempt succeeded. */
export interface CompletedOutcome {
  outcome: "completed";
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Any JSON value. If dibs cannot store it (NUL, integers beyond 64 bits), only this outcome fails. */
  result?: null | boolean | number | string | Array<JsonValue> | JsonObject;
  /** Steps to add to the workflow, named after this step. Its children wait for them as well. */
  steps?: Array<StepBody>;
}

/** The request succeeded; the number of changed rows. */
export interface Counted {
  success: boolean;
  count: number;
}

/** The stored task. `deduplicated`: the idempotency key was in use, and this is the task that has it. `replaced`: the request has replaced the content of that task. */
export interface Created {
  success: boolean;
  task: Task;
  deduplicated: boolean;
  replaced: boolean;
}

/** The stored tasks, in the order of the request, and for each whether it is `deduplicated` and `replaced`. */
export interface CreatedBatch {
  success: boolean;
  tasks: Array<Task>;
  deduplicated: Array<boolean>;
  replaced: Array<boolean>;
}

/** Which tasks of the dead letter to list. A task must match all filters. */
export interface DeadQuery {
  queue?: string | null;
  task_type?: string | null;
  error?: string | null;
  tags?: string | null;
  /** Tasks on a page. */
  limit?: number;
  cursor?: number | null;
}

/** What a program declares about limits. */
export interface DeclarationsBody {
  /** Limits. */
  limits?: Array<DeclaredLimit>;
  /** Settings of queues. */
  queues?: Array<DeclaredQueue>;
  /** Limits and groups of task types. */
  task_types?: Array<DeclaredType>;
}

/** A limit that a program declares. `source` is ignored: it is `code`. */
export interface DeclaredLimit {
  max?: number | null;
  rate?: string | null;
  /** How many claims of the rate may start at once. */
  burst?: number;
  /** With `group`, each group of tasks has a limit of its own; null: one for all. */
  per?: "group" | null;
  /** The origin of the values: a command, or the code of a program. */
  source?: "code" | "command";
  /** One line of 1 to 255 characters. */
  name: string;
}

/** The settings of a queue that a program declares. */
export interface DeclaredQueue {
  /** One line of 1 to 255 characters. */
  queue: string;
  fair?: boolean;
  limits?: Array<string>;
}

/** The JSON Schema that a program declares for a task type. null: the program declares none. */
export interface DeclaredSchemaBody {
  /** One line of 1 to 255 characters. */
  task_type: string;
  schema: JsonObject | null;
}

/** The JSON Schemas that a program declares. */
export interface DeclaredSchemasBody {
  /** One for each type. */
  schemas: Array<DeclaredSchemaBody>;
}

/** The limits of a task type that a program declares. Without any, an earlier declaration is taken back. */
export interface DeclaredType {
  /** One line of 1 to 255 characters. */
  task_type: string;
  limits?: Array<string>;
  group_by?: string | null;
}

/** Which tasks of the dead letter to discard. A task must match all filters. `ids`: only these tasks. */
export interface DiscardBody {
  queue?: string | null;
  task_type?: string | null;
  error?: string | null;
  tags?: Array<string> | null;
  /** The largest number of tasks, the oldest failures first. */
  limit?: number;
  ids?: Array<number> | null;
}

/** The number of discarded tasks. If it equals `limit`, there may be more to discard. */
export interface Discarded {
  success: boolean;
  discarded: number;
}

/** The request succeeded; there is no other result. */
export interface Done {
  success: boolean;
}

/** A due schedule, and the database's time when it was read. */
export interface Due {
  schedule: Schedule;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  now: string;
  /** When the last task of a schedule with the overlap `queue` ended. */
  free_at?: string | null;
}

/** Seconds until a task becomes claimable because its time has come; null if no task has such a time. */
export interface DueIn {
  seconds: number | null;
}

/** The size of the page. */
export interface DueQuery {
  /** The largest number of ids. */
  limit?: number;
}

/** The due schedules. */
export interface DueSchedules {
  due: Array<Due>;
}

/** The ids of workflows that wait for their finalization, the longest wait first. */
export interface DueWorkflows {
  workflows: Array<number>;
}

/** A request body without fields. */
export interface Empty {
}

/** The events of a task. The history has one entry for each. */
export type Event = "cancel_requested" | "cancelled" | "changed" | "claimed" | "completed" | "discarded" | "enqueued" | "expired" | "failed" | "ignored" | "promoted" | "pruned" | "recovered" | "released" | "replaced" | "restored" | "retried";

/** The events to send. */
export interface EventsQuery {
  kinds?: string | null;
  queue?: string | null;
  task_type?: string | null;
  task_id?: number | null;
  after?: number | null;
}

/** The outcomes of the last tasks, and what to claim next. */
export interface ExchangeBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** One outcome for each claim. */
  outcomes: Array<CompletedOutcome | FailedOutcome | ReleasedOutcome | CancelledOutcome>;
  /** What to claim next. */
  claim: ClaimOptions;
}

/** An answer to each outcome, and the next tasks, if there are any. */
export interface Exchanged {
  success: boolean;
  answers: Array<Finished | Refusal>;
  tasks: Array<Task>;
}

/** How the steps of a workflow ended, without its finalizer. */
export interface Execution {
  workflow_id: number;
  name: string;
  /** How the workflow ends, as far as that is decided. */
  status: WorkflowState;
  /** Why no more steps were started: failed, cancelled or deadline. */
  stopping: string | null;
  /** The error of the workflow. */
  error: Failure | null;
  steps: Array<StepEnd>;
}

/** The states of a workflow's steps, and the action that follows from them. The finalizer is not counted. `passed`: the number of steps whose children may start. `failures`: the number of the other steps that have ended. */
export interface ExecutionContext {
  workflow_id: number;
  status: WorkflowState;
  total_steps: number;
  by_state: { [name: string]: number };
  passed: number;
  failures: number;
  completion_percentage: number;
  execution_status: ExecutionStatus;
  recommended_action: FinalizationAction;
}

/** The status of a workflow's steps: the first of these that applies. */
export type ExecutionStatus = "all_complete" | "blocked_by_failures" | "has_ready_steps" | "processing" | "waiting_for_dependencies" | "waiting_for_retry";

/** Why a task is not running, as of now. */
export interface Explanation {
  task_id: number;
  status: State;
  reasons: Array<Reason>;
}

/** The claim, and for how long to extend it. */
export interface ExtendBody {
  /** The name of the processor, unique for each process: a claim under the name of another process extends the claim of that process. */
  processor_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Seconds until the claim ends unless renewed. */
  timeout_seconds?: number;
}

/** The attempt failed. */
export interface FailBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Any text; of a very long text the end is stored. */
  error_message: string;
  /** Any text; of a very long text the end is stored. */
  error_code?: string;
  traceback?: string | null;
  /** False: straight to the dead letter. */
  retryable?: boolean;
  retry_in_seconds?: number | null;
}

/** The attempt failed. */
export interface FailedOutcome {
  outcome: "failed";
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Any text; of a very long text the end is stored. */
  error_message: string;
  /** Any text; of a very long text the end is stored. */
  error_code?: string;
  traceback?: string | null;
  /** False: straight to the dead letter. */
  retryable?: boolean;
  retry_in_seconds?: number | null;
}

/** The error of an attempt. */
export interface Failure {
  type: string;
  message: string;
  traceback: string | null;
  /** No further attempt follows, even if attempts were left. */
  permanent?: boolean;
}

/** The filters of the request. */
export interface Filters {
  task_types: Array<string> | null;
  max_attempts_remaining: number | null;
  queues?: Array<string>;
}

/** The claim of a finalization: its processor, token and lease. `token` grows by one with every claim. */
export interface Finalization {
  token: number;
  processor_id: string | null;
  lease_until: string | null;
}

/** What the holder of the finalization claim should do. */
export type FinalizationAction = "complete_workflow" | "fail_workflow" | "recheck_later";

/** A recorded attempt to claim the finalization of a workflow. */
export interface FinalizationAttempt {
  id: number;
  workflow_id: number;
  processor_id: string;
  claimed: boolean;
  reason: ClaimReason;
  state: string;
  message: string;
  already_claimed_by: string | null;
  token: number | null;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  at: string;
}

/** Every recorded attempt to claim the finalization of a workflow. */
export interface FinalizationAttempts {
  attempts: Array<FinalizationAttempt>;
}

/** The answer to a claim of the finalization. `token` and `lease_until` are set if the claim was granted. */
export interface FinalizationClaim {
  success: boolean;
  workflow_id: number;
  processor_id: string;
  claimed: boolean;
  already_claimed_by: string | null;
  /** The state of the workflow. */
  state: string;
  message: string;
  reason: ClaimReason;
  /** Proves the claim when the workflow is finalized. */
  token: number | null;
  /** When the claim ends unless it is renewed. */
  lease_until: string | null;
}

/** Whether the processor held the claim under the token. If not, nothing changed. */
export interface FinalizationReleased {
  success: boolean;
  released: boolean;
}

/** After which end of the steps a finalizer runs. */
export type FinalizeWhen = "always" | "failure" | "success";

/** The result of a finalization. */
export interface Finalized {
  success: boolean;
  workflow_id: number;
  status: WorkflowState;
  execution_status: ExecutionStatus;
  action: FinalizationAction;
}

/** A task that runs once, after all steps. */
export interface FinalizerBody {
  /** Any JSON object. */
  params?: JsonObject;
  /** The queue of the task. */
  queue?: string;
  /** Higher first. */
  priority?: number;
  /** The number of attempts, after which the task is in the dead letter. */
  max_attempts?: number;
  delay_seconds?: number | null;
  run_at?: string | null;
  timeout_seconds?: number | null;
  backoff?: BackoffBody | null;
  traceparent?: string | null;
  /** Short texts by which tasks are found. */
  tags?: Array<string>;
  expires_in_seconds?: number | null;
  expires_at?: string | null;
  /** Limits of the task, beside those of its queue and type. */
  limits?: Array<string>;
  group?: string | null;
  /** The name by which the handler is found. */
  task_type: string;
}

/** The outcomes of several tasks. */
export interface FinishBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** One outcome for each claim. */
  outcomes: Array<CompletedOutcome | FailedOutcome | ReleasedOutcome | CancelledOutcome>;
}

/** The state of the task after its outcome. `repeated`: the outcome was stored before, and nothing was written. */
export interface Finished {
  success: boolean;
  task_id: number;
  status: State;
  attempts: number;
  will_retry: boolean;
  run_at: string | null;
  repeated: boolean;
  /** Why the failed task is not in the dead letter; left out otherwise. */
  set_aside?: SetAside;
}

/** An answer to each outcome, in the order of the request. */
export interface FinishedAnswers {
  success: boolean;
  answers: Array<Finished | Refusal>;
}

/** The tasks with the given ids that exist, in the order of the ids. */
export interface FoundTasks {
  tasks: Array<Task>;
  /** Ids that were not read, because the tasks before have about 4 MB of content. */
  left: Array<number>;
}

/** The queue, and whether it is paused now. */
export interface Gated {
  success: boolean;
  queue: string;
  paused: boolean;
}

/** The task type, and whether it is paused now. */
export interface GatedType {
  success: boolean;
  task_type: string;
  paused: boolean;
}

/** A group of tasks in a queue. `waiting`: its pending tasks that wait for a limit or for their turn. */
export interface Group {
  queue: string;
  group: string | null;
  weight: number;
  waiting?: number;
}

/** A page of the groups of a queue that have a weight, or tasks that wait for a limit or for their turn. */
export interface Groups {
  groups: Array<Group>;
  next_cursor: string | null;
}

/** A page of groups. `cursor`: the `next_cursor` of the previous page. */
export interface GroupsQuery {
  /** Groups on a page. */
  limit?: number;
  cursor?: string | null;
}

/** A heartbeat of a worker. */
export interface HeartbeatBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  incarnation?: string | null;
  queues?: Array<string> | null;
  task_types?: Array<string> | null;
  /** Any data about the worker, for people. */
  metadata?: JsonObject;
  /** True: the worker stops. */
  leaving?: boolean;
}

/** An entry of the history: one transition of a task. */
export interface HistoryEntry {
  id: number;
  task_id: number;
  event: Event;
  from_state: State | null;
  to_state: State;
  worker_id: string | null;
  token: number;
  by: string | null;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  at: string;
  detail: JsonObject | null;
}

/** The page to read. */
export interface HistoryQuery {
  /** The id of the last entry of the page before. */
  after?: number;
  /** Entries on a page. */
  limit?: number;
}

/** The claim: its processor and its token. */
export interface HolderBody {
  /** The name of the processor, unique for each process: a claim under the name of another process extends the claim of that process. */
  processor_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
}

/** Any JSON object, of values as in JsonValue. */
export interface JsonObject { [name: string]: JsonValue }

/** Any text without NUL. */
export type JsonText = string;

/** Any JSON value: texts without NUL, integers of 64 bits, numbers that a double can hold, at most 64 levels of arrays and objects. (A number with a fraction or an exponent may also lie beyond the bounds given here; JSON Schema cannot tell it from an integer.) */
export type JsonValue = null | boolean | number | JsonText | Array<JsonValue> | JsonObject;

/** The value that is kept under the name. */
export interface KeptCheckpoint {
  success: boolean;
  value: JsonValue;
}

/** An API key, without its secret or digest. `queues`: null for all. `rate_limit`: "none" without a limit. */
export interface Key {
  id: string;
  name: string;
  scopes: Array<Scope>;
  queues: Array<string> | null;
  rate_limit: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  created_by: string | null;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
}

/** How long a task has its idempotency key. */
export type KeyScope = "always" | "ended" | "until_finished" | "until_started" | "until_time";

/** All keys. */
export interface Keys {
  keys: Array<Key>;
}

/** A limit with its use. `used`: the live claims that count towards it, of all groups together. `waiting`: the pending tasks to which it applies. `exhausted_since`: since when claims have found the limit used up while tasks wait for it. */
export interface Limit {
  name: string;
  max: number | null;
  rate: string | null;
  burst: number;
  /** With `group`, each group of tasks has a limit of its own; null: one for all. */
  per: "group" | null;
  used: number;
  waiting: number;
  source: "code" | "command";
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  updated_at: string;
  exhausted_since?: string | null;
  declared?: JsonObject | null;
  /** The values were set by hand since their declaration in code. */
  overridden?: boolean;
}

/** The size of a batch. */
export interface LimitBody {
  /** The size of the batch. */
  limit?: number;
}

/** New values for a limit. What is left out stays as it is; a limit that does not exist has its default. Null removes the maximum, the rate, or the division by groups. */
export interface LimitChangeBody {
  max?: number | null;
  rate?: string | null;
  /** How many claims of the rate may start at once. */
  burst?: number;
  /** With `group`, each group of tasks has a limit of its own; null: one for all. */
  per?: "group" | null;
}

/** The use of a limit by one group. `free_at`: when the rate allows the next start, where tasks wait for it. */
export interface LimitGroup {
  group: string | null;
  used: number;
  waiting: number;
  free_at?: string | null;
}

/** A page of the groups of a limit that hold claims or have tasks waiting. */
export interface LimitGroups {
  limit: string;
  groups: Array<LimitGroup>;
  next_cursor: string | null;
}

/** All limits. */
export interface Limits {
  limits: Array<Limit>;
}

/** Which tasks to list. */
export interface ListQuery {
  status?: State | null;
  task_type?: string | null;
  queue?: string | null;
  key?: string | null;
  worker?: string | null;
  since?: string | null;
  until?: string | null;
  text?: string | null;
  tags?: string | null;
  group?: string | null;
  with_limit?: string | null;
  /** Tasks on a page. */
  limit?: number;
  cursor?: number | null;
}

/** The level of a line. Other levels of `logging` are stored as the next lower one of these. */
export type LogLevel = "critical" | "debug" | "error" | "info" | "warning";

/** A line that a handler has logged. `id` is its place among the lines of the task, for `after`. */
export interface LogLine {
  id: string;
  task_id: number;
  token: number;
  attempt: number;
  number: number;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  at: string;
  level: LogLevel;
  logger: string;
  message: string;
}

/** Lines of a task, in order. `ended`: no further lines will come, except for those of the last second. */
export interface LogLines {
  logs: Array<LogLine>;
  ended: boolean;
}

/** Lines of any tasks. */
export interface LogLinesBody {
  /** The lines, in any order. */
  lines: Array<NewLogLine>;
}

/** Which lines to read. */
export interface LogQuery {
  after?: string | null;
  attempt?: number | null;
  level?: LogLevel | null;
  /** Lines on a page. */
  limit?: number;
  /** Seconds to wait for a line, unless the task has ended. */
  wait_seconds?: number;
}

/** Some tasks. */
export interface ManyTasks {
  tasks: Array<Task>;
}

/** Filters, all of which a task must match. At least one filter is required. */
export interface MatchBody {
  status?: State | null;
  task_type?: string | null;
  queue?: string | null;
  key?: string | null;
  worker?: string | null;
  since?: string | null;
  until?: string | null;
  text?: string | null;
  tags?: Array<string> | null;
  group?: string | null;
  with_limit?: string | null;
  cursor?: number | null;
}

/** A new key. `key`: its text, which cannot be read again. */
export interface Minted {
  id: string;
  name: string;
  scopes: Array<Scope>;
  queues: Array<string> | null;
  rate_limit: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  created_by: string | null;
  expires_at: string | null;
  revoked_at: string | null;
  last_used_at: string | null;
  success: boolean;
  key: string;
}

/** Steps to add. */
export interface MoreStepsBody {
  /** Parents can be other new steps, or steps of the workflow. */
  steps: Array<StepBody>;
}

/** The number of changed tasks. `next_cursor`: where to continue; null: all tasks have been searched. */
export interface MovedTasks {
  success: boolean;
  count: number;
  next_cursor: number | null;
}

/** A key to create. */
export interface NewKeyBody {
  /** The owner or the purpose of the key. */
  name: string;
  /** What the key allows; admin allows everything. */
  scopes: Array<Scope>;
  queues?: Array<string> | null;
  /** Requests in a second, minute, hour or day; or "none". */
  rate_limit?: string;
  expires_at?: string | null;
  expires_in_seconds?: number | null;
}

/** A limit to store. What is left out has its default: nothing of a limit that exists is kept. */
export interface NewLimitBody {
  max?: number | null;
  rate?: string | null;
  /** How many claims of the rate may start at once. */
  burst?: number;
  /** With `group`, each group of tasks has a limit of its own; null: one for all. */
  per?: "group" | null;
  /** The origin of the values: a command, or the code of a program. */
  source?: "code" | "command";
}

/** A line to store. */
export interface NewLogLine {
  /** The task. */
  task_id: number;
  /** The token of the claim under which the task runs. */
  token: number;
  /** Which attempt of the task it is, counted from 1. */
  attempt: number;
  /** The number of the line in its attempt, from 1. */
  number: number;
  /** A time with its time zone. */
  at: string;
  /** The text, of one or several lines. */
  message: string;
  /** The level of the line. */
  level?: LogLevel;
  /** The name of the logger, or `stdout`. */
  logger?: string;
}

/** A task to enqueue. */
export interface NewTaskBody {
  /** Any JSON object. */
  params?: JsonObject;
  /** The queue of the task. */
  queue?: string;
  /** Higher first. */
  priority?: number;
  /** The number of attempts, after which the task is in the dead letter. */
  max_attempts?: number;
  delay_seconds?: number | null;
  run_at?: string | null;
  timeout_seconds?: number | null;
  backoff?: BackoffBody | null;
  traceparent?: string | null;
  /** Short texts by which tasks are found. */
  tags?: Array<string>;
  expires_in_seconds?: number | null;
  expires_at?: string | null;
  /** Limits of the task, beside those of its queue and type. */
  limits?: Array<string>;
  group?: string | null;
  /** The name by which the handler is found. */
  task_type: string;
  idempotency_key?: string | null;
  /** How long the task has its key: until it is pruned, until it is finished, or until a worker claims it for the first time. */
  key_scope?: "always" | "until_finished" | "until_started";
  key_for_seconds?: number | null;
  /** If a task has the key: return that task if type and params are equal and refuse otherwise; keep that task whatever its params; refuse; or replace params, priority, due time, expiry, tags, group and limits of a task that has not started. */
  on_conflict?: "keep" | "raise" | "replace" | "return";
  max_delay_seconds?: number | null;
  request_id?: string | null;
}

/** A task type to register. */
export interface NewTypeBody {
  /** One line of 1 to 255 characters. */
  name: string;
  /** A JSON Schema for the params. */
  schema?: JsonObject | boolean | null;
  /** Default values of params. */
  defaults?: JsonObject;
}

/** The answer to a claim if no pending task passes its filters. */
export interface NoneAvailable {
  success: boolean;
  message: string;
  filters: Filters;
}

/** The answer to a claim of the finalization that was not granted. */
export interface NotClaimed {
  success: boolean;
  workflow_id: number;
  processor_id: string;
  claimed: boolean;
  already_claimed_by: string | null;
  /** The state of the workflow. */
  state: string;
  message: string;
  reason: ClaimReason;
  /** Proves the claim when the workflow is finalized. */
  token: number | null;
  /** When the claim ends unless it is renewed. */
  lease_until: string | null;
}

/** What the failure of a step does to its workflow. */
export type OnFailure = "continue" | "fail" | "ignore";

/** A claim by task and token. */
export interface OneClaim {
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
}

/** The execution context of a workflow. */
export interface OneContext {
  context: ExecutionContext;
}

/** The execution of one workflow. */
export interface OneExecution {
  execution: Execution;
}

/** Why a task is not running. */
export interface OneExplanation {
  explanation: Explanation;
}

/** The history of a task, in order. */
export interface OneHistory {
  history: Array<HistoryEntry>;
}

/** A limit. */
export interface OneLimit {
  limit: Limit;
}

/** The settings of a queue. */
export interface OneQueueSettings {
  settings: QueueSettings;
}

/** A schedule and its next runs. */
export interface OneSchedule {
  schedule: Schedule;
  /** When its next tasks are enqueued; fewer if it ends, none if it is disabled. */
  next_runs?: Array<string>;
}

/** Statistics of the store. */
export interface OneStats {
  stats: Stats;
}

/** A task. */
export interface OneTask {
  task: Task;
}

/** One version of a task type. */
export interface OneType {
  task_type: TaskType;
}

/** The limits of a task type. */
export interface OneTypeSettings {
  settings: TypeSettings;
}

/** A workflow. */
export interface OneWorkflow {
  workflow: Workflow;
}

/** Which pending task a claim takes first. */
export type Order = "fifo" | "lifo" | "priority" | "priority_asc" | "priority_lifo" | "random" | "weighted";

/** What to do at a tick while a task of the schedule has not ended: it waits, runs, or is tried again later. */
export type Overlap = "allow" | "queue" | "skip";

/** A page of a list; `next_cursor` is null on the last page. */
export interface Page {
  tasks: Array<Task>;
  next_cursor: number | null;
}

/** A paused task type, registered or not. */
export interface PausedType {
  name: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  paused_at: string;
}

/** The paused task types by name. */
export interface PausedTypes {
  task_types: Array<PausedType>;
}

/** Which pending tasks to read, and in which order. */
export interface PeekBody {
  order?: Order | null;
  sort_by?: "created_at" | "priority" | "random" | null;
  sort_order?: "asc" | "desc" | null;
  queues?: Array<string> | null;
  task_types?: Array<string> | null;
  max_attempts_remaining?: number | null;
  /** The largest number of tasks. */
  count?: number;
}

/** Percentiles in seconds; null while no task has completed. */
export interface Percentiles {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

/** The progress of the task. */
export interface ProgressBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** The progress in percent. */
  progress: number;
  message?: string | null;
}

/** The progress of several tasks. */
export interface ProgressManyBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The progress of each task. */
  notes: Array<TaskProgress>;
}

/** The progress was stored; whether the cancellation of the task was requested. */
export interface ProgressSaved {
  success: boolean;
  task_id: number;
  cancel_requested: boolean;
}

/** An answer to each progress report. */
export interface ProgressSavedAnswers {
  success: boolean;
  answers: Array<ProgressSaved | Refusal>;
}

/** The size of a batch of pruning, and its position. */
export interface PruneBody {
  /** The size of the batch. */
  limit?: number;
  after?: string | null;
}

/** The result of one batch of pruning. */
export interface PrunedAnswer {
  success: boolean;
  /** Rows deleted. */
  count: number;
  next: string | null;
}

/** A queue, and the number of its tasks in each state. */
export interface Queue {
  name: string;
  paused: boolean;
  paused_at: string | null;
  depth: { [name: string]: number };
  parked?: number;
}

/** The settings of a queue. `source`: null for a queue that has no settings. */
export interface QueueSettings {
  queue: string;
  fair: boolean;
  limits: Array<string>;
  source?: "code" | "command" | null;
  updated_at?: string | null;
  declared?: JsonObject | null;
  /** The values were set by hand since their declaration in code. */
  overridden?: boolean;
  /** Those of the limits that were removed: the tasks run without them until they are set again. */
  removed_limits?: Array<string>;
}

/** Settings of a queue. What is left out stays as it is. */
export interface QueueSettingsBody {
  fair?: boolean | null;
  limits?: Array<string> | null;
  /** The origin of the values: a command, or the code of a program. */
  source?: "code" | "command";
  /** Bring the tasks that wait in line with the change, for about a second; see `next_cursor`. */
  settle?: boolean;
}

/** Every queue that has tasks or was paused. */
export interface Queues {
  queues: Array<Queue>;
}

/** The tasks to read. */
export interface ReadManyBody {
  /** The tasks. */
  ids: Array<number>;
}

/** The server process is running, and its database answers. */
export interface Ready {
  status?: "ready";
}

/** One reason why a task is not running; `code` is for programs. */
export interface Reason {
  code: string;
  message: string;
}

/** The records that a retention rule is about: tasks and workflows in a final state, history, or workers. */
export type Records = "cancelled" | "completed" | "failed" | "history" | "workers";

/** Which tasks of the dead letter to retry. A task must match all filters. */
export interface RedriveBody {
  queue?: string | null;
  task_type?: string | null;
  error?: string | null;
  tags?: Array<string> | null;
  /** The largest number of tasks, the oldest failures first. */
  limit?: number;
}

/** The number of retried tasks. If it equals `limit`, there may be more to retry. */
export interface Redriven {
  success: boolean;
  redriven: number;
}

/** The error of a request. `code`: a stable name for programs. `hint`: what to do. Unless the code is outcome_unknown, the write that failed has changed nothing. */
export interface Refusal {
  success?: boolean;
  error: string;
  code: string;
  hint?: string;
  message?: string;
  task_id?: number;
  token?: number;
  workflow_id?: number;
  status?: "blocked" | "cancelled" | "claimed" | "completed" | "failed" | "finalizing" | "pending" | "running" | "scheduled";
  worker_id?: string | null;
  key?: string;
  name?: string;
  after?: number;
  pruned_to?: number;
}

/** A declaration that was not stored, and why. */
export interface RefusedDeclaration {
  /** What the declaration is about. */
  kind: "limit" | "queue" | "schema" | "type";
  name: string;
  refusal: Refusal;
}

/** The registered version of the task type. */
export interface RegisteredType {
  success: boolean;
  task_type: TaskType;
}

/** The task goes back to its queue without spending an attempt. */
export interface ReleaseBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Seconds until the task can be claimed again. */
  delay_seconds?: number;
}

/** The task goes back to its queue without spending an attempt. */
export interface ReleasedOutcome {
  outcome: "released";
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Seconds until the task can be claimed again. */
  delay_seconds?: number;
}

/** Prolong the lease. */
export interface RenewBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** Seconds until the claim ends unless renewed. */
  lease_seconds?: number;
}

/** Leases to prolong. */
export interface RenewManyBody {
  /** The name that the worker has chosen. */
  worker_id: string;
  /** The claims, each by its task and token. */
  claims: Array<OneClaim>;
  /** Seconds until the claim ends unless renewed. */
  lease_seconds?: number;
}

/** The new end of the lease, and whether the cancellation of the task was requested. */
export interface Renewed {
  success: boolean;
  task_id: number;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  lease_until: string;
  cancel_requested: boolean;
}

/** An answer to each claim. */
export interface RenewedAnswers {
  success: boolean;
  answers: Array<Renewed | Refusal>;
}

/** The results of the parents of a step. */
export interface Results {
  results: Array<StepResult>;
}

/** A change of a retention rule: set to `keep_seconds` (null for ever), or removed. */
export interface RetentionChange {
  id: number;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  at: string;
  by: string | null;
  records: Records;
  keep_seconds: number | null;
  removed: boolean;
  queue: string | null;
  task_type: string | null;
  workflow: string | null;
}

/** Changes of retention rules, newest first. */
export interface RetentionChanges {
  changes: Array<RetentionChange>;
}

/** How long some records are kept. `keep_seconds`: null for ever, 0 until the next upkeep. Without a queue, task type or workflow it is the default of the store; `changed_at` is null where that was never changed. */
export interface RetentionRule {
  records: Records;
  keep_seconds: number | null;
  queue: string | null;
  task_type: string | null;
  workflow: string | null;
  changed_at: string | null;
  changed_by: string | null;
}

/** The default for each kind of records, then the rules for types, queues and workflows. */
export interface RetentionRules {
  rules: Array<RetentionRule>;
}

/** The revoked key, and the time of its revocation. */
export interface Revoked {
  success: boolean;
  id: string;
  revoked_at: string | null;
}

/** A retention rule to set. Without a queue, task type or workflow it is the default of the store. */
export interface RuleBody {
  /** What is kept. History and workers have one rule for the whole store. */
  records: Records;
  queue?: string | null;
  task_type?: string | null;
  workflow?: string | null;
  keep_seconds: number | null;
}

/** A schedule, its next tick, and the result of its last tick. */
export interface Schedule {
  name: string;
  cron: string | null;
  timezone: string;
  catch_up: CatchUp;
  enabled: boolean;
  task_type: string;
  params: JsonObject;
  queue: string;
  priority: number;
  max_attempts: number;
  timeout_seconds: number | null;
  backoff: Backoff;
  tags: Array<string>;
  source: "code" | "command";
  /** The next tick; null if the schedule has ended. */
  next_at: string | null;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  updated_at: string;
  last_at: string | null;
  last_task_id: number | null;
  last_error: string | null;
  /** What the code of a program declares; null if no code declares it. */
  declared?: JsonObject | null;
  /** The schedule was set by hand since its declaration in code. */
  overridden?: boolean;
  /** Seconds from the enqueue after which a task is cancelled if it was not started. */
  expires_in_seconds?: number | null;
  /** Limits of its tasks, beside those of their queue and type. */
  limits?: Array<string>;
  /** The group of its tasks. */
  group?: string | null;
  /** Seconds between two ticks. */
  every_seconds?: number | null;
  /** The time of the only tick. */
  at?: string | null;
  /** The largest delay of a tick. */
  jitter_seconds?: number;
  start_at?: string | null;
  end_at?: string | null;
  /** What a tick does while a task of the schedule has not ended. */
  overlap?: Overlap;
  /** When the task of the next tick is enqueued, with the jitter of the tick. */
  due_at?: string | null;
  /** The number of skipped ticks. */
  skipped?: number;
  last_skipped_at?: string | null;
  /** A task of the schedule that has not ended; null if its tasks may overlap. */
  unfinished_task_id?: number | null;
  /** When the schedule ticks, in words. */
  description?: string;
}

/** A schedule to store. A schedule of the same name is changed. */
export interface ScheduleBody {
  /** One line of 1 to 225 characters. */
  name: string;
  /** One line of 1 to 255 characters. */
  task_type: string;
  cron?: string | null;
  /** Any JSON object. */
  params?: JsonObject;
  /** The name of a time zone. */
  timezone?: string;
  every_seconds?: number | null;
  at?: string | null;
  /** The largest delay of a tick, in seconds. */
  jitter_seconds?: number;
  start_at?: string | null;
  end_at?: string | null;
  /** What a tick does while a task of the schedule has not ended. */
  overlap?: Overlap;
  /** What to do about missed ticks. */
  catch_up?: CatchUp;
  enabled?: boolean | null;
  /** One line of 1 to 255 characters. */
  queue?: string;
  /** Higher first. */
  priority?: number;
  /** The number of attempts, after which the task is in the dead letter. */
  max_attempts?: number;
  timeout_seconds?: number | null;
  backoff?: BackoffBody | null;
  /** The tags of its tasks. */
  tags?: Array<string>;
  expires_in_seconds?: number | null;
  /** Limits of its tasks. */
  limits?: Array<string>;
  group?: string | null;
  /** The origin of the schedule: a command, or the code of a program. */
  source?: "code" | "command";
}

/** All schedules. */
export interface Schedules {
  schedules: Array<Schedule>;
}

/** What a key allows. */
export type Scope = "admin" | "enqueue" | "read" | "work";

/** Why a failed task is not in the dead letter. */
export type SetAside = "discarded" | "ignored";

/** A batch of tasks to bring in line with the settings. */
export interface SettleBody {
  /** `next_cursor` of the answer before. */
  after?: number;
  /** The size of the batch. */
  limit?: number;
  /** `change` of the answer before. */
  change?: number;
}

/** How many tasks were brought in line. `next_cursor`: where the next batch begins; null if no task is left. `change`: the change of settings that all tasks obey after the last batch. */
export interface Settled {
  success: boolean;
  count: number;
  next_cursor: number | null;
  change?: number;
}

/** The task that was claimed ahead has started. */
export interface Started {
  success: boolean;
  task_id: number;
}

/** An answer to each claim. */
export interface StartedAnswers {
  success: boolean;
  answers: Array<Started | Refusal>;
}

/** The stored workflow. `deduplicated`: the idempotency key was used before, and this is the workflow that has it. */
export interface StartedWorkflow {
  success: boolean;
  workflow: Workflow;
  deduplicated: boolean;
}

/** The state of a task. */
export type State = "blocked" | "cancelled" | "claimed" | "completed" | "failed" | "pending" | "scheduled";

/** The tasks whose states to read. */
export interface StatesBody {
  /** The tasks. */
  ids: Array<number>;
}

/** Statistics of the store. Percentiles are those of the last 1,000 completed tasks. */
export interface Stats {
  depth: { [name: string]: number };
  by_queue: { [name: string]: { [name: string]: number } };
  by_type: { [name: string]: { [name: string]: number } };
  oldest_pending_age_seconds: number | null;
  finished_last_minute: { [name: string]: number };
  finished_last_hour: { [name: string]: number };
  wait_seconds: Percentiles;
  run_seconds: Percentiles;
  /** Failed tasks that are neither ignored nor discarded. */
  dead_letter: number;
}

/** A step of a workflow: the fields of its task that the workflow needs. */
export interface Step {
  task_id: number;
  name: string;
  kind: StepKind;
  task_type: string;
  queue: string;
  status: State;
  attempts: number;
  max_attempts: number;
  /** The task ids of its parents. */
  after: Array<number>;
  /** The number of parents that it still waits for. */
  waits: number;
  on_failure: OnFailure;
  /** Whether its children can start; null until the step has ended. */
  passed: boolean | null;
  worker_id: string | null;
  claimed_at: string | null;
  finished_at: string | null;
  error: Failure | null;
  /** The sub-workflow that the step represents, if it does. */
  workflow_id: number | null;
}

/** A step: a task or a sub-workflow that begins when its parents are completed. */
export interface StepBody {
  /** Any JSON object. */
  params?: JsonObject;
  /** The queue of the task. */
  queue?: string;
  /** Higher first. */
  priority?: number;
  /** The number of attempts, after which the task is in the dead letter. */
  max_attempts?: number;
  delay_seconds?: number | null;
  run_at?: string | null;
  timeout_seconds?: number | null;
  backoff?: BackoffBody | null;
  traceparent?: string | null;
  /** Short texts by which tasks are found. */
  tags?: Array<string>;
  expires_in_seconds?: number | null;
  expires_at?: string | null;
  /** Limits of the task, beside those of its queue and type. */
  limits?: Array<string>;
  group?: string | null;
  task_type?: string | null;
  workflow?: SubWorkflowBody | null;
  name?: string | null;
  /** The names of its parents, each once. */
  after?: Array<string>;
  on_failure?: OnFailure | null;
}

/** The end of one step. */
export interface StepEnd {
  task_id: number;
  name: string;
  status: State;
  /** It did not complete, and its children have run all the same. */
  ignored: boolean;
  /** A worker has claimed it. */
  started: boolean;
  error: Failure | null;
}

/** The kind of a step. */
export type StepKind = "finalizer" | "task" | "workflow";

/** The outcome of a parent: its result, or its error if its failure is ignored. */
export interface StepResult {
  task_id: number;
  name: string;
  task_type: string;
  status: State;
  result: JsonValue;
  error: Failure | null;
}

/** The steps of a workflow. */
export interface Steps {
  steps: Array<Step>;
}

/** The result of storing declarations. `removed`: the limits that are not set, because they were removed by hand since the same declaration. `unsettled`: tasks that wait may not obey the settings before `/api/upkeep/settle`. */
export interface StoredDeclarations {
  success: boolean;
  refused: Array<RefusedDeclaration>;
  removed: Array<string>;
  unsettled: boolean;
}

/** The result of storing schemas. */
export interface StoredSchemas {
  success: boolean;
  refused: Array<RefusedDeclaration>;
}

/** A named graph of steps. */
export interface SubWorkflowBody {
  /** The name of the workflow; it need not be unique. */
  name: string;
  /** Its steps, in any order. */
  steps: Array<StepBody>;
  finalizer?: FinalizerBody | null;
  /** success: the finalizer runs if all steps have passed; failure: if a step failed, or the workflow was cancelled or passed its deadline; always: in both cases. */
  finalize_when?: FinalizeWhen;
  /** fail: start no more steps; continue: independent steps still run; ignore: as if completed. */
  on_failure?: OnFailure;
  deadline_seconds?: number | null;
  deadline_at?: string | null;
}

/** The target of a rule. Without a queue, task type or workflow it is the default of the store. */
export interface TargetBody {
  /** What is kept. History and workers have one rule for the whole store. */
  records: Records;
  queue?: string | null;
  task_type?: string | null;
  workflow?: string | null;
}

/** A task. `status` and `task_type` are its state and its type. */
export interface Task {
  id: number;
  /** The name by which its handler is found. */
  task_type: string;
  status: State;
  params: JsonObject;
  /** Higher first. */
  priority: number;
  /** Attempts that have ended, including lost attempts. */
  attempts: number;
  /** After this number of failed attempts the task is in the dead letter. */
  max_attempts: number;
  /** The worker that holds the task, or held it last. */
  worker_id: string | null;
  /** The time of the last claim. */
  claimed_at: string | null;
  /** The time of the enqueue. */
  created_at: string;
  queue: string;
  /** Grows by one with every claim, and fences the writes of its worker. */
  token: number;
  /** The time at which the claim ends unless it is renewed. */
  lease_until: string | null;
  /** The task is not claimed before this time. */
  run_at: string;
  /** The time at which the task was completed, failed or cancelled. */
  finished_at: string | null;
  /** The largest number of seconds of one attempt. */
  timeout_seconds: number | null;
  idempotency_key: string | null;
  /** The version of its type against which its params were validated. */
  type_version: number | null;
  /** How often a worker that had claimed the task ahead was lost before it started the task. */
  dropped: number;
  /** The cancellation of the running task was requested. */
  cancel_requested: boolean;
  /** In percent, as its worker reported. */
  progress: number | null;
  progress_message: string | null;
  /** The result of the handler; null unless completed. */
  result: JsonValue;
  /** The error of the last failed attempt. */
  error: Failure | null;
  /** The workflow of which the task is a step. */
  workflow_id: number | null;
  /** The tags of the task, in the order of the enqueue. */
  tags?: Array<string>;
  /** The span of the enqueue, if the client uses tracing. */
  traceparent?: string;
  /** Why the failed task is not in the dead letter; left out otherwise. */
  set_aside?: SetAside;
  /** The task is cancelled if it was not started by this time; left out if it does not expire. */
  expires_at?: string;
  /** How long the task has its key; left out for a task without a key. */
  key_scope?: KeyScope;
  /** The end of a key with the scope until_time; left out otherwise. */
  key_until?: string;
  /** The limits that the task itself names, beside those of its queue and type. */
  limits?: Array<string>;
  /** The group of the task, for limits per group and for fair queues; left out if it has none. */
  group?: string;
  /** True in the answer to a claim that counts towards a limit; left out otherwise. */
  limited?: boolean;
}

/** The progress of one task. */
export interface TaskProgress {
  /** The task. */
  task_id: number;
  /** The token of the claim; a stale token is refused with 409. */
  token: number;
  /** The progress in percent. */
  progress: number;
  message?: string | null;
}

/** The states of tasks: the ids of the tasks in each state. A task that does not exist is in none. */
export interface TaskStates {
  states: { [name: string]: Array<number> };
}

/** One version of a registered task type. */
export interface TaskType {
  name: string;
  version: number;
  schema: JsonObject | boolean | null;
  defaults: JsonObject;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  paused_at?: string | null;
  source?: "code" | "command";
}

/** All versions of all task types. */
export interface TaskTypes {
  task_types: Array<TaskType>;
}

/** The due tick that was read with the schedule. If the schedule has changed since, nothing happens. */
export interface TickBody {
  /** A time with its time zone. */
  next_at: string;
  /** A time with its time zone. */
  now: string;
  cron?: string | null;
  /** The name of a time zone. */
  timezone?: string;
  every_seconds?: number | null;
}

/** The version to read. */
export interface TypeQuery {
  version?: number | null;
}

/** The limits of a task type. `group_by`: the parameter that names the group of a task that names none. `source`: null for a type that has no settings. */
export interface TypeSettings {
  task_type: string;
  limits: Array<string>;
  group_by: string | null;
  source?: "code" | "command" | null;
  updated_at?: string | null;
  declared?: JsonObject | null;
  /** The values were set by hand since their declaration in code. */
  overridden?: boolean;
  /** Those of the limits that were removed: the tasks run without them until they are set again. */
  removed_limits?: Array<string>;
}

/** Limits of a task type. What is left out stays as it is. */
export interface TypeSettingsBody {
  limits?: Array<string> | null;
  group_by?: string | null;
  /** The origin of the values: a command, or the code of a program. */
  source?: "code" | "command";
  /** Bring the tasks that wait in line with the change, for about a second; see `next_cursor`. */
  settle?: boolean;
}

/** The answer to a claim of the finalization of a workflow that does not exist. */
export interface UnknownWorkflow {
  success: boolean;
  workflow_id: number;
  processor_id: string;
  claimed: boolean;
  already_claimed_by: string | null;
  /** The state of the workflow. */
  state: string;
  message: string;
  reason: ClaimReason;
  /** Proves the claim when the workflow is finalized. */
  token: number | null;
  /** When the claim ends unless it is renewed. */
  lease_until: string | null;
}

/** The result of a check. */
export type Verdict = "fail" | "ok" | "warn";

/** The last generation that the client knows, and the seconds to wait for a newer one. */
export interface WakeupsQuery {
  process?: string | null;
  /** `generation` of the last answer. */
  generation?: number;
  /** Seconds to wait for a change. */
  wait_seconds?: number;
}

/** The weight of a group. */
export interface WeightBody {
  /** The share of the claims where the queue is fair. */
  weight: number;
}

/** A page of the history of all tasks. */
export interface WholeHistory {
  history: Array<HistoryEntry>;
}

/** The number of changes that this server process has noticed. Each process counts from 0. */
export interface Woken {
  process: string;
  generation: number;
}

/** A worker and the ids of the tasks it holds. */
export interface Worker {
  id: string;
  incarnation: string;
  state: WorkerState;
  queues: Array<string> | null;
  task_types: Array<string> | null;
  metadata: JsonObject;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  started_at: string;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  heartbeat_at: string;
  stopped_at: string | null;
  holds: Array<number>;
}

/** The state of a worker. */
export type WorkerState = "active" | "gone" | "stale";

/** Every registered worker. */
export interface Workers {
  workers: Array<Worker>;
}

/** A workflow. */
export interface Workflow {
  id: number;
  name: string;
  status: WorkflowState;
  /** The number of steps, without the finalizer. */
  steps: number;
  /** The number of steps that run or can run. */
  active: number;
  /** The number of steps that are completed, failed or cancelled. */
  ended: number;
  /** The number of steps that failed or were cancelled and are not ignored. */
  failures: number;
  /** The percentage of steps that have passed. */
  completion_percentage: number;
  /** A time in UTC, always with microseconds, so that texts sort like times. */
  created_at: string;
  finished_at: string | null;
  /** The time at which the remaining steps are stopped and the workflow fails. */
  deadline: string | null;
  idempotency_key: string | null;
  /** The policy after the failure of a step. */
  on_failure: OnFailure;
  /** Why no more steps are started: failed, cancelled or deadline. */
  stopping: string | null;
  /** The error of a failed workflow. */
  error: Failure | null;
  /** The queues of its tasks. */
  queues: Array<string>;
  /** The step that represents the workflow in its outer workflow. */
  step_of: number | null;
  /** The outermost workflow; its own id without an outer workflow. */
  root_id: number;
  /** The task that runs once, after all steps. */
  finalizer_id: number | null;
  /** success: the finalizer runs if all steps have passed; failure: if a step failed, or the workflow was cancelled or passed its deadline; always: in both cases. */
  finalize_when: FinalizeWhen;
  finalization: Finalization;
}

/** A workflow to start. */
export interface WorkflowBody {
  /** The name of the workflow; it need not be unique. */
  name: string;
  /** Its steps, in any order. */
  steps: Array<StepBody>;
  finalizer?: FinalizerBody | null;
  /** success: the finalizer runs if all steps have passed; failure: if a step failed, or the workflow was cancelled or passed its deadline; always: in both cases. */
  finalize_when?: FinalizeWhen;
  /** fail: start no more steps; continue: independent steps still run; ignore: as if completed. */
  on_failure?: OnFailure;
  deadline_seconds?: number | null;
  deadline_at?: string | null;
  idempotency_key?: string | null;
}

/** A page of a list; `next_cursor` is null on the last page. */
export interface WorkflowPage {
  workflows: Array<Workflow>;
  next_cursor: number | null;
}

/** The state of a workflow. */
export type WorkflowState = "cancelled" | "completed" | "failed" | "finalizing" | "running";

/** Which workflows to list. */
export interface WorkflowsQuery {
  status?: WorkflowState | null;
  name?: string | null;
  /** Workflows on a page. */
  limit?: number;
  cursor?: number | null;
}

/** Each operation by its method and path: its query, its body, and its answer if it is not refused. */
export interface Operations {
  /** Enqueue a task. */
  "POST /api/tasks": {
    query: undefined;
    body: NewTaskBody;
    answer: Created;
  };
  /** List tasks, newest first, page by page. */
  "GET /api/tasks": {
    query: { status?: State; task_type?: string; queue?: string; key?: string; worker?: string; since?: string; until?: string; text?: string; tags?: string; group?: string; with_limit?: string; limit?: number; cursor?: number; };
    body: undefined;
    answer: Page;
  };
  /** Read a task. */
  "GET /api/tasks/{id}": {
    query: undefined;
    body: undefined;
    answer: OneTask;
  };
  /** Change a task that has not started: its priority, due time, queue, params, tags or group. */
  "PATCH /api/tasks/{id}": {
    query: undefined;
    body: ChangeBody;
    answer: ChangedTask;
  };
  /** Enqueue up to 1000 tasks in one transaction, all or none. */
  "POST /api/tasks/batch": {
    query: undefined;
    body: BatchBody;
    answer: CreatedBatch;
  };
  /** Read up to 1000 tasks by their ids. */
  "POST /api/tasks/read": {
    query: undefined;
    body: ReadManyBody;
    answer: FoundTasks;
  };
  /** Read the states of up to 10,000 tasks, to wait for all of them with few requests. */
  "POST /api/tasks/states": {
    query: undefined;
    body: StatesBody;
    answer: TaskStates;
  };
  /** Read the history of a task. */
  "GET /api/tasks/{id}/history": {
    query: undefined;
    body: undefined;
    answer: OneHistory;
  };
  /** Explain why a task is not running. */
  "GET /api/tasks/{id}/explain": {
    query: undefined;
    body: undefined;
    answer: OneExplanation;
  };
  /** Cancel a task. */
  "POST /api/tasks/{id}/cancel": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedTask;
  };
  /** Retry a failed, cancelled or scheduled task: it can be claimed now. */
  "POST /api/tasks/{id}/retry": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedTask;
  };
  /** Change all tasks that match and have not started, newest first: priority, due time, queue, tags or group. */
  "POST /api/tasks/change": {
    query: undefined;
    body: ChangeMatchingBody;
    answer: MovedTasks;
  };
  /** Cancel all tasks that match, newest first. */
  "POST /api/tasks/cancel": {
    query: undefined;
    body: MatchBody;
    answer: MovedTasks;
  };
  /** Retry all tasks that match and are failed, cancelled or scheduled, newest first, with all their attempts. */
  "POST /api/tasks/retry": {
    query: undefined;
    body: MatchBody;
    answer: MovedTasks;
  };
  /** Read the tasks that a claim would take next, without claiming them: about 4 MB of params at most. */
  "POST /api/tasks/peek": {
    query: undefined;
    body: PeekBody;
    answer: ManyTasks;
  };
  /** Finish tasks and claim the next ones, in one request and one transaction. */
  "POST /api/tasks/exchange": {
    query: undefined;
    body: ExchangeBody;
    answer: Exchanged;
  };
  /** Finish many tasks in one transaction, each fenced by its token. */
  "POST /api/tasks/finish": {
    query: undefined;
    body: FinishBody;
    answer: FinishedAnswers;
  };
  /** Complete a task. */
  "POST /api/tasks/{id}/complete": {
    query: undefined;
    body: CompleteBody;
    answer: Finished;
  };
  /** Report that an attempt failed. */
  "POST /api/tasks/{id}/fail": {
    query: undefined;
    body: FailBody;
    answer: Finished;
  };
  /** Release a task: give it back without spending an attempt. */
  "POST /api/tasks/{id}/release": {
    query: undefined;
    body: ReleaseBody;
    answer: Finished;
  };
  /** Claim the next task, or up to `count` tasks. */
  "POST /api/tasks/claim": {
    query: undefined;
    body: ClaimBody;
    answer: Claimed;
  };
  /** Claim one task by its id. */
  "POST /api/tasks/{id}/claim": {
    query: undefined;
    body: ClaimByIdBody;
    answer: Claimed;
  };
  /** Renew the lease of a claim. */
  "POST /api/tasks/{id}/renew": {
    query: undefined;
    body: RenewBody;
    answer: Renewed;
  };
  /** Renew the leases of many claims. */
  "POST /api/tasks/renew": {
    query: undefined;
    body: RenewManyBody;
    answer: RenewedAnswers;
  };
  /** Report the progress of a task. */
  "POST /api/tasks/{id}/progress": {
    query: undefined;
    body: ProgressBody;
    answer: ProgressSaved;
  };
  /** Report the progress of many tasks. */
  "POST /api/tasks/progress": {
    query: undefined;
    body: ProgressManyBody;
    answer: ProgressSavedAnswers;
  };
  /** Start tasks that were claimed ahead. */
  "POST /api/tasks/start": {
    query: undefined;
    body: ClaimsBody;
    answer: StartedAnswers;
  };
  /** Read the status of claims: held, asked to stop, or lost. */
  "POST /api/tasks/standing": {
    query: undefined;
    body: ClaimsBody;
    answer: ClaimStatuses;
  };
  /** Return when the next task becomes claimable by time alone: a delay or lease that ends, a tick of a schedule. */
  "GET /api/tasks/next-due": {
    query: undefined;
    body: undefined;
    answer: DueIn;
  };
  /** Read the results of a step's parents. */
  "GET /api/tasks/{id}/results": {
    query: undefined;
    body: undefined;
    answer: Results;
  };
  /** Read how the steps of a task's workflow ended: what a finalizer is given. */
  "GET /api/tasks/{id}/execution": {
    query: undefined;
    body: undefined;
    answer: OneExecution;
  };
  /** Read the checkpoints that attempts of this task have stored. */
  "GET /api/tasks/{id}/checkpoints": {
    query: undefined;
    body: undefined;
    answer: Checkpoints;
  };
  /** Store a checkpoint: a value that later attempts read instead of repeating the work. */
  "POST /api/tasks/{id}/checkpoints": {
    query: undefined;
    body: CheckpointBody;
    answer: KeptCheckpoint;
  };
  /** Read the history of all tasks, in order, page by page. */
  "GET /api/history": {
    query: { after?: number; limit?: number; };
    body: undefined;
    answer: WholeHistory;
  };
  /** Wait until the store changes. */
  "GET /api/wakeups": {
    query: { process?: string; generation?: number; wait_seconds?: number; };
    body: undefined;
    answer: Woken;
  };
  /** Store lines that handlers have logged, each under its task and token. */
  "POST /api/tasks/logs": {
    query: undefined;
    body: LogLinesBody;
    answer: Counted;
  };
  /** Read what the handlers of a task have logged. */
  "GET /api/tasks/{id}/logs": {
    query: { after?: string; attempt?: number; level?: LogLevel; limit?: number; wait_seconds?: number; };
    body: undefined;
    answer: LogLines;
  };
  /** List the queues with their depth by state. */
  "GET /api/queues": {
    query: undefined;
    body: undefined;
    answer: Queues;
  };
  /** Pause a queue: no tasks are claimed until it is resumed. */
  "POST /api/queues/{name}/pause": {
    query: undefined;
    body: Empty | undefined;
    answer: Gated;
  };
  /** Resume a queue: tasks can be claimed from it again. */
  "POST /api/queues/{name}/resume": {
    query: undefined;
    body: Empty | undefined;
    answer: Gated;
  };
  /** Register a worker, or report that it still runs. */
  "POST /api/workers/heartbeat": {
    query: undefined;
    body: HeartbeatBody;
    answer: Done;
  };
  /** List all known workers with the ids of the tasks that they hold. */
  "GET /api/workers": {
    query: undefined;
    body: undefined;
    answer: Workers;
  };
  /** Register a new version of a task type. */
  "POST /api/task-types": {
    query: undefined;
    body: NewTypeBody;
    answer: RegisteredType;
  };
  /** List all versions of all task types. */
  "GET /api/task-types": {
    query: undefined;
    body: undefined;
    answer: TaskTypes;
  };
  /** Store the JSON Schemas that a program declares for the params of its task types, as workers do when they start. */
  "POST /api/declarations/schemas": {
    query: undefined;
    body: DeclaredSchemasBody;
    answer: StoredSchemas;
  };
  /** Read a task type, in its newest version or in `version`. */
  "GET /api/task-types/{name}": {
    query: { version?: number; };
    body: undefined;
    answer: OneType;
  };
  /** Pause a task type: its tasks are not claimed until it is resumed, in any queue. */
  "POST /api/task-types/{name}/pause": {
    query: undefined;
    body: Empty | undefined;
    answer: GatedType;
  };
  /** Resume a task type: its tasks can be claimed again, except from paused queues. */
  "POST /api/task-types/{name}/resume": {
    query: undefined;
    body: Empty | undefined;
    answer: GatedType;
  };
  /** List the paused task types. */
  "GET /api/paused-task-types": {
    query: undefined;
    body: undefined;
    answer: PausedTypes;
  };
  /** Create a key. */
  "POST /api/keys": {
    query: undefined;
    body: NewKeyBody;
    answer: Minted;
  };
  /** List all keys, including expired and revoked ones, without their text. */
  "GET /api/keys": {
    query: undefined;
    body: undefined;
    answer: Keys;
  };
  /** Revoke a key. */
  "DELETE /api/keys/{id}": {
    query: undefined;
    body: undefined;
    answer: Revoked;
  };
  /** Check that the process is alive. */
  "GET /health": {
    query: undefined;
    body: undefined;
    answer: Alive;
  };
  /** Check that the server can answer requests now, including the database. */
  "GET /ready": {
    query: undefined;
    body: undefined;
    answer: Ready;
  };
  /** List the schedules with their next tick and the result of their last tick. */
  "GET /api/schedules": {
    query: undefined;
    body: undefined;
    answer: Schedules;
  };
  /** Create a schedule, or replace the schedule with this name. */
  "POST /api/schedules": {
    query: undefined;
    body: ScheduleBody;
    answer: ChangedSchedule;
  };
  /** Read a schedule, with its next five runs. */
  "GET /api/schedules/{name}": {
    query: undefined;
    body: undefined;
    answer: OneSchedule;
  };
  /** Remove a schedule. */
  "DELETE /api/schedules/{name}": {
    query: undefined;
    body: undefined;
    answer: Done;
  };
  /** Enable a schedule. */
  "POST /api/schedules/{name}/enable": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedSchedule;
  };
  /** Disable a schedule. */
  "POST /api/schedules/{name}/disable": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedSchedule;
  };
  /** Enqueue the task of a schedule now, in addition to its ticks. */
  "POST /api/schedules/{name}/run": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedTask;
  };
  /** List the schedules whose next tick is due. */
  "GET /api/upkeep/due-schedules": {
    query: undefined;
    body: undefined;
    answer: DueSchedules;
  };
  /** Enqueue the due tasks of a schedule, unless another process did. */
  "POST /api/schedules/{name}/tick": {
    query: undefined;
    body: TickBody;
    answer: Counted;
  };
  /** Start a workflow: store a graph of steps, all or none. */
  "POST /api/workflows": {
    query: undefined;
    body: WorkflowBody;
    answer: StartedWorkflow;
  };
  /** List workflows, newest first, page by page, without sub-workflows. */
  "GET /api/workflows": {
    query: { status?: WorkflowState; name?: string; limit?: number; cursor?: number; };
    body: undefined;
    answer: WorkflowPage;
  };
  /** Read a workflow. */
  "GET /api/workflows/{id}": {
    query: undefined;
    body: undefined;
    answer: OneWorkflow;
  };
  /** List the steps of a workflow with their states. */
  "GET /api/workflows/{id}/steps": {
    query: undefined;
    body: undefined;
    answer: Steps;
  };
  /** Add steps to a running workflow, all or none. */
  "POST /api/workflows/{id}/steps": {
    query: undefined;
    body: MoreStepsBody;
    answer: ChangedWorkflow;
  };
  /** Cancel a workflow. */
  "POST /api/workflows/{id}/cancel": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedWorkflow;
  };
  /** Retry a failed or cancelled workflow. */
  "POST /api/workflows/{id}/retry": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedWorkflow;
  };
  /** Claim the finalization of a workflow. */
  "POST /api/workflows/{id}/finalization/claim": {
    query: undefined;
    body: ClaimFinalizationBody;
    answer: FinalizationClaim;
  };
  /** Renew the finalization claim that this processor holds under this token. */
  "POST /api/workflows/{id}/finalization/renew": {
    query: undefined;
    body: ExtendBody;
    answer: FinalizationClaim;
  };
  /** Release the finalization claim that this processor holds under this token. */
  "POST /api/workflows/{id}/finalization/release": {
    query: undefined;
    body: HolderBody;
    answer: FinalizationReleased;
  };
  /** Finalize a workflow, as the holder of its finalization, in one transaction. */
  "POST /api/workflows/{id}/finalize": {
    query: undefined;
    body: HolderBody;
    answer: Finalized;
  };
  /** Read how many steps of a workflow are in each state, and which action follows from that. */
  "GET /api/workflows/{id}/context": {
    query: undefined;
    body: undefined;
    answer: OneContext;
  };
  /** List all recorded attempts to claim the finalization of a workflow, including refused ones. */
  "GET /api/workflows/{id}/attempts": {
    query: undefined;
    body: undefined;
    answer: FinalizationAttempts;
  };
  /** List the workflows whose finalization is due and not claimed. */
  "GET /api/finalizations/due": {
    query: { limit?: number; };
    body: undefined;
    answer: DueWorkflows;
  };
  /** Make due tasks pending. */
  "POST /api/upkeep/promote": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Recover tasks whose lease ended. */
  "POST /api/upkeep/recover": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Delete finished tasks past their retention: one batch, up to `limit` tasks of each state. */
  "POST /api/upkeep/prune": {
    query: undefined;
    body: PruneBody | undefined;
    answer: PrunedAnswer;
  };
  /** Delete entries of the history past their retention, oldest first. */
  "POST /api/upkeep/prune-history": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Delete workers whose last heartbeat is past their retention. */
  "POST /api/upkeep/prune-workers": {
    query: undefined;
    body: Empty | undefined;
    answer: Counted;
  };
  /** Cancel waiting tasks that were not started by their expiry. */
  "POST /api/upkeep/expire-tasks": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Stop workflows past their deadline. */
  "POST /api/upkeep/expire-workflows": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Repair workflows whose steps ended without an update of the workflow, for example by an older program. */
  "POST /api/upkeep/mend-workflows": {
    query: undefined;
    body: LimitBody | undefined;
    answer: Counted;
  };
  /** Check the database for damage, and for settings that break a guarantee. */
  "GET /api/doctor": {
    query: undefined;
    body: undefined;
    answer: Checks;
  };
  /** Read the depth by state, queue and type, the age of the oldest pending task, throughput and latency. */
  "GET /api/stats": {
    query: undefined;
    body: undefined;
    answer: OneStats;
  };
  /** List the rules for how long finished tasks, ended workflows, history and workers are kept. */
  "GET /api/retention": {
    query: undefined;
    body: undefined;
    answer: RetentionRules;
  };
  /** Set a rule, or change the one for the same records and queue, task type or workflow. */
  "POST /api/retention": {
    query: undefined;
    body: RuleBody;
    answer: ChangedRule;
  };
  /** Remove a rule. */
  "POST /api/retention/remove": {
    query: undefined;
    body: TargetBody;
    answer: Done;
  };
  /** List the changes of the rules, with their time and caller. */
  "GET /api/retention/changes": {
    query: { limit?: number; };
    body: undefined;
    answer: RetentionChanges;
  };
  /** List the limits with their live claims and waiting tasks. */
  "GET /api/limits": {
    query: undefined;
    body: undefined;
    answer: Limits;
  };
  /** Read a limit with its live claims and waiting tasks. */
  "GET /api/limits/{name}": {
    query: undefined;
    body: undefined;
    answer: OneLimit;
  };
  /** Create a limit, or replace the limit with this name. */
  "PUT /api/limits/{name}": {
    query: undefined;
    body: NewLimitBody;
    answer: ChangedLimit;
  };
  /** Change a limit, or create it. */
  "PATCH /api/limits/{name}": {
    query: undefined;
    body: LimitChangeBody;
    answer: ChangedLimit;
  };
  /** Remove a limit. */
  "DELETE /api/limits/{name}": {
    query: undefined;
    body: undefined;
    answer: Done;
  };
  /** List the groups of a limit that hold claims or have tasks waiting. */
  "GET /api/limits/{name}/groups": {
    query: { limit?: number; cursor?: string; };
    body: undefined;
    answer: LimitGroups;
  };
  /** List the settings of all queues and task types that have any: limits and fair share. */
  "GET /api/settings": {
    query: undefined;
    body: undefined;
    answer: AllSettings;
  };
  /** Read the settings of a queue: whether its groups take turns, and the limits of its tasks. */
  "GET /api/queues/{name}/settings": {
    query: undefined;
    body: undefined;
    answer: OneQueueSettings;
  };
  /** Change settings of a queue. */
  "PATCH /api/queues/{name}/settings": {
    query: undefined;
    body: QueueSettingsBody;
    answer: ChangedQueueSettings;
  };
  /** Read the limits of a task type, and the parameter that names the group of its tasks. */
  "GET /api/task-types/{name}/settings": {
    query: undefined;
    body: undefined;
    answer: OneTypeSettings;
  };
  /** Change the limits of a task type, and the parameter that names the group of its tasks. */
  "PATCH /api/task-types/{name}/settings": {
    query: undefined;
    body: TypeSettingsBody;
    answer: ChangedTypeSettings;
  };
  /** Bring tasks that were enqueued before a change of settings in line with them: one batch of all tasks. */
  "POST /api/upkeep/settle": {
    query: undefined;
    body: SettleBody | undefined;
    answer: Settled;
  };
  /** Store what a program declares in its code about limits, queues and task types, as workers do when they start. */
  "POST /api/declarations": {
    query: undefined;
    body: DeclarationsBody;
    answer: StoredDeclarations;
  };
  /** List the groups of a queue that have a weight, or tasks that wait for a limit or for their turn. */
  "GET /api/queues/{name}/groups": {
    query: { limit?: number; cursor?: string; };
    body: undefined;
    answer: Groups;
  };
  /** Set the weight of the tasks without a group, which are one group. */
  "PUT /api/queues/{name}/groups": {
    query: undefined;
    body: WeightBody;
    answer: ChangedGroup;
  };
  /** Set the weight of a group: its share of the claims where the queue is fair. */
  "PUT /api/queues/{name}/groups/{group}": {
    query: undefined;
    body: WeightBody;
    answer: ChangedGroup;
  };
  /** List the tasks of the dead letter, newest first, page by page: continue with `next_cursor` until it is null. */
  "GET /api/dead-letter": {
    query: { queue?: string; task_type?: string; error?: string; tags?: string; limit?: number; cursor?: number; };
    body: undefined;
    answer: Page;
  };
  /** Retry the tasks of the dead letter that match, batch by batch. */
  "POST /api/dead-letter/redrive": {
    query: undefined;
    body: RedriveBody | undefined;
    answer: Redriven;
  };
  /** Discard tasks of the dead letter, batch by batch: the tasks in `ids`, or all tasks that match. */
  "POST /api/dead-letter/discard": {
    query: undefined;
    body: DiscardBody | undefined;
    answer: Discarded;
  };
  /** Discard one task of the dead letter. */
  "POST /api/tasks/{id}/discard": {
    query: undefined;
    body: Empty | undefined;
    answer: ChangedTask;
  };
  /** Read the OpenAPI 3.1 document of this API. */
  "GET /api/openapi.json": {
    query: undefined;
    body: undefined;
    answer: JsonObject;
  };
}
