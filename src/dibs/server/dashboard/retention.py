"""The retention page: rules for how long finished records are kept, with a form to set and remove them."""

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
from dibs.server.dashboard.page import PageRequest, PageResult, page
from dibs.wire.errors import status_of

CHANGES = 50
"""Maximum number of changes on the page; `dibs retention changes` lists more."""


class RuleTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule that a form is about."""

    records: Records = Records.COMPLETED
    scope: Literal["store", "type", "queue", "workflow"] = "store"
    name: str = ""

    def target(self) -> RetentionTarget:
        """Return the target of the rule, validated."""
        if self.name and self.scope == "store":
            hint = "Choose type, queue or workflow, or leave the name empty."
            raise InvalidValue("A rule for everything else has no name.", hint=hint)
        return RetentionTarget.stored(self.records, self.scope, self.name)


class RuleForm(RuleTarget, frozen=True, kw_only=True):
    """The form that sets a rule."""

    keep: str = ""


@page("GET", "/retention", Scope.READ)
async def retention(request: PageRequest) -> PageResult:
    """Render the rules and their changes."""
    return await _show(request)


@page("POST", "/retention", Scope.ADMIN, form=RuleForm)
async def set_rule(request: PageRequest) -> PageResult:
    """Set a rule."""
    try:
        target = request.body.target()
        check_change(request.caller, target)
        rule = await request.run(
            request.service.store.retention.set_retention(target, read_keep(request.body.keep.strip()))
        )
    except DibsError as error:
        return await _show(request, given=request.body, problem=error)
    return request.redirect_with_notice("/retention", f"{target}: {describe_keep(rule.keep)}.")


@page("POST", "/retention/remove", Scope.ADMIN, form=RuleTarget)
async def remove_rule(request: PageRequest) -> PageResult:
    """Remove a rule, or reset a default to its initial value."""
    target = request.body.target()
    check_change(request.caller, target)
    await request.run(request.service.store.retention.remove_retention(target))
    return request.redirect_with_notice("/retention", f"The rule for {target} is removed.")


async def _show(request: PageRequest, *, given: RuleForm | None = None, problem: DibsError | None = None) -> PageResult:
    rules = await request.run(request.service.store.retention.retention_rules())
    changes = await request.run(request.service.store.retention.retention_changes(CHANGES))
    return request.render(
        "retention.html",
        200 if problem is None else status_of(problem),
        rules=[_row(rule) for rule in rules if shows(request.caller, rule)],
        changes=[_change(change) for change in changes if shows(request.caller, change)],
        records=list(Records),
        scopes=[scope.value for scope in RuleScope] if request.caller.queues is None else ["queue"],
        given=given or RuleForm(scope="store" if request.caller.queues is None else "queue"),
        problem=problem,
        whole=request.caller.queues is None,
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
