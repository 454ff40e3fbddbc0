"""Retention: how long finished records are kept, with a form that sets and removes rules."""

from __future__ import annotations

from typing import Literal

import msgspec

from dibs.errors import DibsError, InvalidValue
from dibs.model.key import Scope
from dibs.model.retention import (
    Records,
    RetentionChange,
    RetentionRule,
    RetentionTarget,
    RuleScope,
    describe_keep,
    read_keep,
    write_keep,
)
from dibs.server.api.retention import check_change, shows
from dibs.server.dashboard.page import Content, Visit, page
from dibs.wire.errors import status_of

CHANGES = 50
"""Changes on the page; `dibs retention changes` lists more."""


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule that a form is about."""

    records: Records = Records.COMPLETED
    scope: Literal["store", "type", "queue", "workflow"] = "store"
    name: str = ""

    def target(self) -> RetentionTarget:
        """What the rule applies to, checked."""
        if self.name and self.scope == "store":
            hint = "Choose type, queue or workflow, or leave the name empty."
            raise InvalidValue("A rule for everything else has no name.", hint=hint)
        return RetentionTarget.stored(self.records, self.scope, self.name)


class Form(Target, frozen=True, kw_only=True):
    """A rule to set, as the form has it."""

    keep: str = ""


@page("GET", "/retention", Scope.READ)
async def retention(visit: Visit) -> Content:
    """The rules, and who changed them."""
    return await _show(visit)


@page("POST", "/retention", Scope.ADMIN, form=Form)
async def set_rule(visit: Visit) -> Content:
    """Set a rule."""
    try:
        target = visit.body.target()
        check_change(visit.caller, target)
        rule = await visit.run(visit.service.store.retention.set_retention(target, read_keep(visit.body.keep.strip())))
    except DibsError as error:
        return await _show(visit, given=visit.body, problem=error)
    return visit.back("/retention", f"{target}: {describe_keep(rule.keep)}.")


@page("POST", "/retention/remove", Scope.ADMIN, form=Target)
async def remove_rule(visit: Visit) -> Content:
    """Remove a rule, or set a default back to its first value."""
    target = visit.body.target()
    check_change(visit.caller, target)
    await visit.run(visit.service.store.retention.remove_retention(target))
    return visit.back("/retention", f"The rule for {target} is removed.")


async def _show(visit: Visit, *, given: Form | None = None, problem: DibsError | None = None) -> Content:
    rules = await visit.run(visit.service.store.retention.retention_rules())
    changes = await visit.run(visit.service.store.retention.retention_changes(CHANGES))
    return visit.render(
        "retention.html",
        200 if problem is None else status_of(problem),
        rules=[_row(rule) for rule in rules if shows(visit.caller, rule)],
        changes=[_change(change) for change in changes if shows(visit.caller, change)],
        records=list(Records),
        scopes=[scope.value for scope in RuleScope] if visit.caller.queues is None else ["queue"],
        given=given or Form(scope="store" if visit.caller.queues is None else "queue"),
        problem=problem,
        whole=visit.caller.queues is None,
    )


def _row(rule: RetentionRule) -> dict[str, object]:
    scope, name = rule.target.scope
    return {
        "rule": rule,
        "scope": scope.value,
        "name": name,
        "keep": write_keep(rule.keep),
        "removable": rule.changed_at is not None,
    }


def _change(change: RetentionChange) -> dict[str, object]:
    named = change.type or change.queue or change.workflow
    kind = "type" if change.type else "queue" if change.queue else "workflow" if change.workflow else ""
    kept = "removed" if change.removed else write_keep(change.keep)
    return {"change": change, "kind": kind, "name": named, "keep": kept}


PAGES = [retention, set_rule, remove_rule]
