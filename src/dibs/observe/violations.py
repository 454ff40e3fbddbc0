"""The rules that the checker of histories knows by name, and a violation of one."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Code(StrEnum):
    """Which rule was broken."""

    NO_BEGINNING = "no_beginning"  # the first entry is not `enqueued`
    OUT_OF_ORDER = "out_of_order"  # the ids of a task's entries do not grow
    MOVE_NOT_ALLOWED = "move_not_allowed"  # not in MOVES
    BROKEN_CHAIN = "broken_chain"  # the old state of an entry is not the new state of the entry before
    LIFE_AFTER_END = "life_after_end"
    LIFE_AFTER_PRUNING = "life_after_pruning"
    DOUBLE_CLAIM = "double_claim"  # claimed while claimed, or a token issued twice
    SKIPPED_TOKEN = "skipped_token"
    STALE_TOKEN = "stale_token_honoured"
    FOREIGN_WORKER = "foreign_worker_honoured"
    WRONG_TOKEN = "wrong_token"  # an entry that needs no claim has another token than the task
    LOST_TASK = "lost_task"
    UNRECORDED_TASK = "unrecorded_task"
    STATE_DIFFERS = "state_differs"  # the state in the store is not the last state of the history
    TOKEN_DIFFERS = "token_differs"
    NOT_RECORDED = "acknowledged_not_recorded"
    DOUBLED_COMPLETION = "doubled_completion"
    LIMIT_EXCEEDED = "limit_exceeded"  # more live claims than the maximum of a limit, or of a group of a limit
    RATE_EXCEEDED = "rate_exceeded"  # more claims in a time than burst + rate x time
    PERMIT_LOST = "permit_lost"  # the store counts more live claims of a limit than there are
    PERMIT_NOT_COUNTED = "permit_not_counted"  # the store counts fewer live claims of a limit than there are
    STRANDED_TASK = "stranded_task"  # it waits at the end, though every limit of it has room
    STARVED_GROUP = "starved_group"  # a group of a fair queue waited, and others got its turns


class Violation(msgspec.Struct, frozen=True):
    """A broken rule, and the task and entry that broke it (None if no single one did)."""

    code: Code
    task_id: int | None
    message: str
    entry_id: int | None = None

    def __str__(self) -> str:
        task = "" if self.task_id is None else f"task {self.task_id}"
        entry = "" if self.entry_id is None else f"entry {self.entry_id}"
        place = ", ".join(part for part in (task, entry) if part)
        return f"{place}: {self.code}: {self.message}" if place else f"{self.code}: {self.message}"
