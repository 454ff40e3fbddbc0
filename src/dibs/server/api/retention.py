"""Retention: the rules for how long finished records are kept.

A key that is limited to queues sees the defaults and the rules of its queues, and changes only the latter.
"""

from __future__ import annotations

from dibs.model.key import Scope
from dibs.model.retention import RetentionChange, RetentionRule, RetentionTarget, RuleScope
from dibs.server.auth import Caller
from dibs.server.endpoint import Answer, Call, endpoint
from dibs.wire.fields import Done
from dibs.wire.retention import ChangedRule, ChangesQuery, RetentionChanges, RetentionRules, RuleBody, TargetBody

TAG = "retention"


@endpoint("GET", "/api/retention", Scope.READ, tag=TAG, answers={200: (RetentionRules, "The rules.")})
async def list_rules(call: Call) -> Answer:
    """List the rules for how long finished tasks, ended workflows, history and workers are kept."""
    rules = await call.run(call.service.store.retention.retention_rules())
    return Answer(RetentionRules.from_model([rule for rule in rules if shows(call.caller, rule)]))


@endpoint(
    "POST",
    "/api/retention",
    Scope.ADMIN,
    tag=TAG,
    body=RuleBody,
    answers={200: (ChangedRule, "The rule is stored.")},
    examples={
        "keep forever": {"records": "completed", "task_type": "invoice", "keep_seconds": None},
        "keep for a week": {"records": "completed", "keep_seconds": 604800},
    },
)
async def set_rule(call: Call) -> Answer:
    """Set a rule, or change the one for the same records and queue, task type or workflow.

    Every worker and server applies the rule from its next upkeep on.
    """
    target = call.body.to_model()
    check_change(call.caller, target)
    rule = await call.run(call.service.store.retention.set_retention(target, call.body.keep))
    return Answer(ChangedRule.from_model(rule))


@endpoint(
    "POST",
    "/api/retention/remove",
    Scope.ADMIN,
    tag=TAG,
    body=TargetBody,
    examples={"back to the default": {"records": "completed", "task_type": "invoice"}},
    answers={200: (Done, "The rule was removed.")},
    refuses={404: "No rule is set for this queue, task type or workflow."},
)
async def remove_rule(call: Call) -> Answer:
    """Remove a rule. Without a queue, task type or workflow, the default is reset to its initial value."""
    target = call.body.to_model()
    check_change(call.caller, target)
    await call.run(call.service.store.retention.remove_retention(target))
    return Answer(Done.from_model())


@endpoint(
    "GET",
    "/api/retention/changes",
    Scope.READ,
    tag=TAG,
    query=ChangesQuery,
    answers={200: (RetentionChanges, "The changes, newest first.")},
)
async def list_changes(call: Call) -> Answer:
    """List the changes of the rules, with their time and caller."""
    changes = await call.run(call.service.store.retention.retention_changes(call.query.limit))
    return Answer(RetentionChanges.from_model([each for each in changes if shows(call.caller, each)]))


def shows(caller: Caller, about: RetentionRule | RetentionChange) -> bool:
    """Return True if the caller may see the rule: a limited key sees the defaults and the rules of its queues."""
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
