"""Retention as JSON: the rules that say how long finished records are kept, and their changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, field

from dibs.model import retention as model_retention
from dibs.model.retention import FINISHED, Records, RetentionTarget
from dibs.wire.fields import (
    Count,
    Keep,
    Name,
    Query,
    RequestBody,
    Timestamp,
    not_both,
    to_datetime,
    to_datetime_or_none,
    to_text,
    to_text_or_none,
)


def _has_no(name: str) -> dict[str, Any]:
    """The rule that history and workers have one retention for the whole store, without this field."""
    whole_store = [records.value for records in Records if records not in FINISHED]
    given = {"records": {"enum": whole_store}, name: {"not": {"type": "null"}}}
    return {"not": {"required": ["records", name], "properties": given}}


class TargetBody(RequestBody, frozen=True, kw_only=True):
    """The target of a rule. Without a queue, task type or workflow it is the default of the store."""

    rules = (
        not_both("queue", "task_type"),
        not_both("queue", "workflow"),
        not_both("task_type", "workflow"),
        *(_has_no(name) for name in ("queue", "task_type", "workflow")),
    )

    records: Annotated[
        Records, Meta(description="What is kept. History and workers have one rule for the whole store.")
    ]
    queue: Annotated[Name, Meta(description="Only records of this queue.")] | None = None
    type: (
        Annotated[Name, Meta(description="Only tasks of this type; takes precedence over a rule for a queue.")] | None
    ) = field(name="task_type", default=None)
    workflow: Annotated[Name, Meta(description="Only workflows of this name, with their steps.")] | None = None

    @classmethod
    def from_model(cls, target: RetentionTarget) -> Self:
        """The target to send."""
        return cls(**_target(target))

    def to_model(self) -> RetentionTarget:
        """What the rule applies to, checked."""
        return RetentionTarget(records=self.records, queue=self.queue, type=self.type, workflow=self.workflow)


def _target(target: RetentionTarget) -> dict[str, Any]:
    return {
        "records": Records(target.records),
        "queue": target.queue,
        "type": target.type,
        "workflow": target.workflow,
    }


class RuleBody(TargetBody, frozen=True, kw_only=True):
    """A retention rule to set. Without a queue, task type or workflow it is the default of the store."""

    keep: Keep | None = field(name="keep_seconds")

    @classmethod
    def of(cls, target: RetentionTarget, keep: float | None) -> Self:
        """The rule to send."""
        return cls(**_target(target), keep=keep)


class RetentionRule(msgspec.Struct, frozen=True):
    """How long some records are kept. `keep_seconds`: null for ever, 0 until the next upkeep. Without a queue, task
    type or workflow it is the default of the store; `changed_at` is null where that was never changed."""

    records: Records
    keep: float | None = field(name="keep_seconds")
    queue: str | None
    type: str | None = field(name="task_type")
    workflow: str | None
    changed_at: Timestamp | None
    changed_by: str | None

    @classmethod
    def from_model(cls, rule: model_retention.RetentionRule) -> Self:
        """The rule as JSON."""
        return cls(
            records=rule.records,
            keep=rule.keep,
            queue=rule.queue,
            type=rule.type,
            workflow=rule.workflow,
            changed_at=to_text_or_none(rule.changed_at),
            changed_by=rule.changed_by,
        )

    def to_model(self) -> model_retention.RetentionRule:
        """The rule."""
        return model_retention.RetentionRule(
            records=self.records,
            keep=self.keep,
            queue=self.queue,
            type=self.type,
            workflow=self.workflow,
            changed_at=to_datetime_or_none(self.changed_at),
            changed_by=self.changed_by,
        )


class RetentionRules(msgspec.Struct, frozen=True):
    """The default for each kind of records, then the rules for types, queues and workflows."""

    rules: list[RetentionRule]

    @classmethod
    def from_model(cls, rules: Sequence[model_retention.RetentionRule]) -> Self:
        """The rules as an answer."""
        return cls(rules=[RetentionRule.from_model(rule) for rule in rules])

    def to_model(self) -> list[model_retention.RetentionRule]:
        """The rules."""
        return [rule.to_model() for rule in self.rules]


class ChangedRule(msgspec.Struct, frozen=True):
    """The rule as it is stored now."""

    success: bool
    rule: RetentionRule

    @classmethod
    def from_model(cls, rule: model_retention.RetentionRule) -> Self:
        """The rule as an answer."""
        return cls(success=True, rule=RetentionRule.from_model(rule))

    def to_model(self) -> model_retention.RetentionRule:
        """The rule."""
        return self.rule.to_model()


class RetentionChange(msgspec.Struct, frozen=True):
    """A change of a retention rule: set to `keep_seconds` (null for ever), or removed."""

    id: int
    at: Timestamp
    by: str | None
    records: Records
    keep: float | None = field(name="keep_seconds")
    removed: bool
    queue: str | None
    type: str | None = field(name="task_type")
    workflow: str | None

    @classmethod
    def from_model(cls, change: model_retention.RetentionChange) -> Self:
        """The change as JSON."""
        return cls(
            id=change.id,
            at=to_text(change.at),
            by=change.by,
            records=change.records,
            keep=change.keep,
            removed=change.removed,
            queue=change.queue,
            type=change.type,
            workflow=change.workflow,
        )

    def to_model(self) -> model_retention.RetentionChange:
        """The change."""
        return model_retention.RetentionChange(
            id=self.id,
            at=to_datetime(self.at),
            by=self.by,
            records=self.records,
            keep=self.keep,
            removed=self.removed,
            queue=self.queue,
            type=self.type,
            workflow=self.workflow,
        )


class RetentionChanges(msgspec.Struct, frozen=True):
    """Changes of retention rules, newest first."""

    changes: list[RetentionChange]

    @classmethod
    def from_model(cls, changes: Sequence[model_retention.RetentionChange]) -> Self:
        """The changes as an answer."""
        return cls(changes=[RetentionChange.from_model(change) for change in changes])

    def to_model(self) -> list[model_retention.RetentionChange]:
        """The changes."""
        return [change.to_model() for change in self.changes]


class ChangesQuery(Query, frozen=True):
    """A page of changes."""

    limit: Count = 100
