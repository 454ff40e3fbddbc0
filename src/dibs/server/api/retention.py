"""Retention: the rules in the store that say how long finished records are kept.

A key that is limited to queues sees the defaults and the rules of its queues, and changes only the latter.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dibs import shape
from dibs.body.fields import Body, Count, Keep, Name, not_both
from dibs.model.key import Scope
from dibs.model.retention import FINISHED, Records, RetentionChange, RetentionRule, RetentionTarget, RuleScope
from dibs.server.api.answers import Done
from dibs.server.auth import Caller
from dibs.server.endpoint import Answer, Call, endpoint

TAG = "retention"

Queue = Annotated[Name, Meta(description="Only records of this queue.")]
TaskType = Annotated[Name, Meta(description="Only tasks of this type; takes precedence over a rule for a queue.")]
Workflow = Annotated[Name, Meta(description="Only workflows of this name, with their steps.")]
ONE_TARGET = (not_both("queue", "task_type"), not_both("queue", "workflow"), not_both("task_type", "workflow"))


def _has_no(name: str) -> dict[str, Any]:
    """The rule that history and workers have one retention for the whole store, without this field."""
    whole_store = [records.value for records in Records if records not in FINISHED]
    given = {"records": {"enum": whole_store}, name: {"not": {"type": "null"}}}
    return {"not": {"required": ["records", name], "properties": given}}


WHOLE_STORE = tuple(_has_no(name) for name in ("queue", "task_type", "workflow"))


class TargetBody(Body, frozen=True, kw_only=True):
    """The rule that is meant. Without a queue, task type or workflow it is the default of the store."""

    rules = ONE_TARGET + WHOLE_STORE

    records: Annotated[
        Records, Meta(description="What is kept. History and workers have one rule for the whole store.")
    ]
    queue: Queue | None = None
    task_type: TaskType | None = None
    workflow: Workflow | None = None

    def target(self) -> RetentionTarget:
        """What the rule applies to, checked."""
        return RetentionTarget(records=self.records, queue=self.queue, type=self.task_type, workflow=self.workflow)


class RuleBody(TargetBody, frozen=True, kw_only=True):
    """A retention rule to set. Without a queue, task type or workflow it is the default of the store."""

    keep_seconds: Keep | None


class ChangesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of changes."""

    limit: Count = 100


class RetentionRules(msgspec.Struct, frozen=True):
    """The default for each kind of records, then the rules for types, queues and workflows."""

    rules: list[shape.RetentionRuleShape]


class ChangedRule(msgspec.Struct, frozen=True):
    """The rule as it is stored now."""

    success: bool
    rule: shape.RetentionRuleShape


class RetentionChanges(msgspec.Struct, frozen=True):
    """Changes of retention rules, newest first."""

    changes: list[shape.RetentionChangeShape]


@endpoint("GET", "/api/retention", Scope.READ, tag=TAG, answers={200: (RetentionRules, "The rules.")})
async def list_rules(call: Call) -> Answer:
    """How long finished tasks, ended workflows, history and workers are kept."""
    rules = await call.run(call.service.store.retention.retention_rules())
    return Answer(RetentionRules([shape.rule(rule) for rule in rules if shows(call.caller, rule)]))


@endpoint(
    "POST",
    "/api/retention",
    Scope.ADMIN,
    tag=TAG,
    body=RuleBody,
    answers={200: (ChangedRule, "Stored.")},
    examples={
        "keep for ever": {"records": "completed", "task_type": "invoice", "keep_seconds": None},
        "keep for a week": {"records": "completed", "keep_seconds": 604800},
    },
)
async def set_rule(call: Call) -> Answer:
    """Set a rule, or change the one for the same records and queue, task type or workflow.

    Every worker and server obeys it from its next upkeep on.
    """
    target = call.body.target()
    check_change(call.caller, target)
    rule = await call.run(call.service.store.retention.set_retention(target, call.body.keep_seconds))
    return Answer(ChangedRule(True, shape.rule(rule)))


@endpoint(
    "POST",
    "/api/retention/remove",
    Scope.ADMIN,
    tag=TAG,
    body=TargetBody,
    examples={"back to the default": {"records": "completed", "task_type": "invoice"}},
    answers={200: (Done, "Removed.")},
    refuses={404: "No rule is set for this queue, task type or workflow."},
)
async def remove_rule(call: Call) -> Answer:
    """Remove a rule. Without a queue, task type or workflow the default goes back to its first value."""
    target = call.body.target()
    check_change(call.caller, target)
    await call.run(call.service.store.retention.remove_retention(target))
    return Answer(Done(True))


@endpoint(
    "GET",
    "/api/retention/changes",
    Scope.READ,
    tag=TAG,
    query=ChangesQuery,
    answers={200: (RetentionChanges, "Newest first.")},
)
async def list_changes(call: Call) -> Answer:
    """Who changed which rule, and when."""
    changes = await call.run(call.service.store.retention.retention_changes(call.query.limit))
    return Answer(RetentionChanges([shape.rule_change(each) for each in changes if shows(call.caller, each)]))


def shows(caller: Caller, about: RetentionRule | RetentionChange) -> bool:
    """True if the caller may see the rule: a key limited to queues sees the defaults and the rules of its queues."""
    if caller.queues is None or (about.queue is None and about.type is None and about.workflow is None):
        return True
    return about.queue is not None and caller.serves(about.queue)


def check_change(caller: Caller, target: RetentionTarget) -> None:
    """Refuse a change that concerns records outside of the caller's queues."""
    scope, name = target.scope
    if scope is RuleScope.QUEUE:
        caller.check_queue(name)
    else:
        caller.check_whole_store()


ENDPOINTS = [list_rules, set_rule, remove_rule, list_changes]
