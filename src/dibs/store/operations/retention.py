"""Retention rules: set, remove and list them; and the record of their changes.

The rules are applied in `upkeep.py` and `retention.sql`, which prune. A rule and the record of its change are written
in one transaction. A new kind of records needs an entry in `Records` and `DEFAULTS` (`model/retention.py`).
"""

from __future__ import annotations

from dibs.errors import RetentionNotFound
from dibs.model.checks import check_integer, check_seconds, from_micros
from dibs.model.retention import DEFAULTS, Records, RetentionChange, RetentionRule, RetentionTarget, Rules, RuleScope
from dibs.store.operation import Mode, Operation, Row, Statement, Statements, limited
from dibs.store.operations.rows import moment

CHANGES = 1000
"""The largest number of changes of retention rules in one answer."""


class Retention:
    """The rules about how long finished records are kept."""

    def set_retention(self, target: RetentionTarget, keep: float | None) -> Operation[RetentionRule]:
        """Keep these records for `keep` seconds; None: for ever. The same value again changes nothing."""
        kept = None if keep is None else check_seconds(keep, "keep")
        return Operation("set_retention", lambda: _set(target, kept), mode=Mode.TRANSACTION)

    def remove_retention(self, target: RetentionTarget) -> Operation[None]:
        """Remove a rule. The default of the whole store returns to its first value. RetentionNotFound if no rule is set
        for that queue, type or workflow."""
        return Operation("remove_retention", lambda: _remove(target), mode=Mode.TRANSACTION)

    def retention_rules(self) -> Operation[list[RetentionRule]]:
        """The default for each kind of records, and then the rules for types, queues and workflows."""
        return Operation("retention_rules", _list, mode=Mode.READ)

    def retention_changes(self, limit: int = CHANGES) -> Operation[list[RetentionChange]]:
        """The newest changes of retention rules, newest first."""
        check_integer(limit, "limit", 1, CHANGES)
        return Operation("retention_changes", lambda: _changes(limit), mode=Mode.READ)


def read_rules() -> Statements[Rules]:
    """The rules, for operations that prune."""
    rows = yield Statement("retention")
    return Rules(_read(row) for row in rows)


def _set(target: RetentionTarget, kept: int | None) -> Statements[RetentionRule]:
    given = {**_params(target), "kept": kept}
    changed = yield Statement("set_retention", given)
    if changed:
        yield Statement("record_retention_change", {**given, "removed": False})
    rules = yield from _list()
    return next(rule for rule in rules if rule.target == target)


def _remove(target: RetentionTarget) -> Statements[None]:
    given = _params(target)
    removed = yield Statement("remove_retention", given)
    if removed:
        yield Statement("record_retention_change", {**given, "kept": None, "removed": True})
    elif given["scope"] != RuleScope.STORE:
        raise RetentionNotFound(f"No retention rule is set for {target}.")


def _list() -> Statements[list[RetentionRule]]:
    rows = yield Statement("retention")
    stored = {(rule.records, *rule.target.scope): rule for rule in map(_read, rows)}
    defaults = {(records, RuleScope.STORE, ""): RetentionRule(records, kept) for records, kept in DEFAULTS.items()}
    return sorted((defaults | stored).values(), key=_sort_key)


def _sort_key(rule: RetentionRule) -> tuple[int, str, int]:
    """The sort key of a list of rules: the defaults first, then by scope and name."""
    scope, name = rule.target.scope
    return list(RuleScope).index(scope), name, list(Records).index(rule.records)


def _changes(limit: int) -> Statements[list[RetentionChange]]:
    rows = yield Statement("retention_changes", words=limited(limit))
    return [_read_change(row) for row in rows]


def _params(target: RetentionTarget) -> dict[str, str]:
    scope, name = target.scope
    return {"records": str(target.records), "scope": scope.value, "name": name}


def _read(row: Row) -> RetentionRule:
    records, scope, name, kept, changed_at, changed_by = row
    on = RetentionTarget.stored(records, scope, name)
    return RetentionRule(
        records=Records(records),
        keep=_seconds(kept),
        queue=on.queue,
        type=on.type,
        workflow=on.workflow,
        changed_at=moment(changed_at),
        changed_by=changed_by,
    )


def _read_change(row: Row) -> RetentionChange:
    change_id, at, by, records, scope, name, kept, removed = row
    on = RetentionTarget.stored(records, scope, name)
    keep = _seconds(kept)
    return RetentionChange(
        id=change_id,
        at=from_micros(at),
        by=by,
        records=Records(records),
        keep=keep,
        removed=bool(removed),
        queue=on.queue,
        type=on.type,
        workflow=on.workflow,
    )


def _seconds(kept: int | None) -> float | None:
    return None if kept is None else kept / 1e6
