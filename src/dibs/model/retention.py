"""Retention: how long the store keeps finished tasks, ended workflows, history and workers.

The rules are stored in the database, so that every process prunes by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from zlib import crc32

import msgspec

from dibs.errors import InvalidValue
from dibs.json_values import check_name
from dibs.model.checks import read_duration

DAY = 24 * 3600.0


class Records(StrEnum):
    """The records that a retention rule is about: tasks and workflows in a final state, history, or workers."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HISTORY = "history"
    WORKERS = "workers"


FINISHED = (Records.COMPLETED, Records.CANCELLED, Records.FAILED)
"""The records that have a queue and a type, or a workflow name."""

DEFAULTS: dict[Records, float] = {
    Records.COMPLETED: DAY,
    Records.FAILED: 30 * DAY,
    Records.CANCELLED: DAY,
    Records.HISTORY: 30 * DAY,
    Records.WORKERS: DAY,
}
"""Seconds that records are kept where no rule says otherwise."""


class RuleScope(StrEnum):
    """What a rule applies to, as it is stored."""

    STORE = "store"
    TYPE = "type"
    QUEUE = "queue"
    WORKFLOW = "workflow"


class RetentionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule applies to: records of one queue, one task type, one workflow name, or of the whole store."""

    records: str
    queue: str | None = None
    type: str | None = None
    workflow: str | None = None

    def __post_init__(self) -> None:
        if self.records not in Records.__members__.values():
            hint = f"Use one of: {', '.join(Records)}."
            raise InvalidValue(f"There is no retention for {self.records!r}.", hint=hint)
        named = self._named()
        for scope, name in named:
            check_name(name, f"The {scope} of a retention rule")
        if len(named) > 1:
            hint = "Set one rule for each. A rule for a type takes precedence over a rule for a queue."
            raise InvalidValue("A retention rule applies to a queue, a type or a workflow, not to several.", hint=hint)
        if named and self.records not in FINISHED:
            hint = f"Set the retention of {self.records} without a queue, type or workflow."
            raise InvalidValue(f"The retention of {self.records} applies to the whole store.", hint=hint)

    def _named(self) -> list[tuple[RuleScope, str]]:
        pairs = ((RuleScope.QUEUE, self.queue), (RuleScope.TYPE, self.type), (RuleScope.WORKFLOW, self.workflow))
        return [(scope, name) for scope, name in pairs if name is not None]

    @property
    def scope(self) -> tuple[RuleScope, str]:
        """The scope and the name in it, as they are stored."""
        return next(iter(self._named()), (RuleScope.STORE, ""))

    @classmethod
    def stored(cls, records: str, scope: str, name: str) -> RetentionTarget:
        """The target of a stored rule."""
        return cls(records=records) if scope == RuleScope.STORE else cls(records=records, **{scope: name})

    def __str__(self) -> str:
        scope, name = self.scope
        return self.records if scope is RuleScope.STORE else f"{self.records} of {scope} {name!r}"


class RetentionRule(msgspec.Struct, frozen=True):
    """How long some records are kept. `keep`: seconds after they finished; None for ever, 0 until the next upkeep.

    `changed_at` and `changed_by` are None for a default that was never changed; `changed_by` is also None where the
    client that set the rule was not signed.
    """

    records: Records
    keep: float | None
    queue: str | None = None
    type: str | None = None
    workflow: str | None = None
    changed_at: datetime | None = None
    changed_by: str | None = None

    @property
    def target(self) -> RetentionTarget:
        """What the rule applies to."""
        return RetentionTarget(records=self.records, queue=self.queue, type=self.type, workflow=self.workflow)


class RetentionChange(msgspec.Struct, frozen=True):
    """A change of a rule: set to `keep` seconds (None: for ever), or removed."""

    id: int
    at: datetime
    by: str | None
    records: Records
    keep: float | None
    removed: bool
    queue: str | None = None
    type: str | None = None
    workflow: str | None = None


FOR_EVER = "forever"


def read_keep(text: str) -> float | None:
    """Convert a text such as 30d to seconds; None for `forever`."""
    return None if text == FOR_EVER else read_duration(text)


def write_keep(keep: float | None) -> str:
    """Convert a retention to the text that `read_keep` reads, in the largest exact unit."""
    if keep is None:
        return FOR_EVER
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if keep and keep % seconds == 0:
            return f"{int(keep // seconds)}{unit}"
    return f"{keep:g}s"


def describe_keep(keep: float | None) -> str:
    """Describe a retention, as the end of a sentence."""
    if keep is None:
        return "kept for ever"
    return f"kept for {write_keep(keep)}" if keep else "deleted at the next upkeep"


class Rules:
    """The retention rules of a store, to look up how long a record is kept: in seconds, or None for ever."""

    def __init__(self, rules: Iterable[RetentionRule]) -> None:
        self._keep = {(rule.records, *rule.target.scope): rule.keep for rule in rules}

    def default(self, records: Records) -> float | None:
        """The retention where no rule for a queue, type or workflow applies."""
        return self._keep.get((records, RuleScope.STORE, ""), DEFAULTS[records])

    @property
    def checksum(self) -> int:
        """A checksum of the rules, equal in every process."""
        return crc32(repr(sorted((*map(str, key), str(keep)) for key, keep in self._keep.items())).encode())

    def are_uniform(self, records: Records) -> bool:
        """True where no rule for a type, queue or workflow is set: all these records are kept equally long."""
        return all(of != records or scope is RuleScope.STORE for of, scope, _ in self._keep)

    def shortest(self, records: Records) -> float | None:
        """The shortest retention of any task; None where all are kept for ever."""
        apply = [
            keep
            for (of, scope, _), keep in self._keep.items()
            if of == records and scope in (RuleScope.TYPE, RuleScope.QUEUE)
        ]
        return min((keep for keep in (*apply, self.default(records)) if keep is not None), default=None)

    def of_workflow(self, records: Records, name: str, queues: Sequence[str] | None) -> float | None:
        """The retention of a workflow with its steps: the rule for its name, else the longest that applies in its
        queues. `queues`: None where they are not known: then the longest of any queue."""
        if (records, RuleScope.WORKFLOW, name) in self._keep:
            return self._keep[records, RuleScope.WORKFLOW, name]
        if queues is None:
            apply = [keep for (of, scope, _), keep in self._keep.items() if (of, scope) == (records, RuleScope.QUEUE)]
        else:
            apply = [self._keep.get((records, RuleScope.QUEUE, each), self.default(records)) for each in queues]
        return _longest(apply if queues else [*apply, self.default(records)])


def _longest(apply: Sequence[float | None]) -> float | None:
    finite = [keep for keep in apply if keep is not None]
    return max(finite) if len(finite) == len(apply) else None
