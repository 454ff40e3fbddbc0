"""`dibs retention`: how long finished records are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Json, Url, complete_queue, complete_type
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.retention import RetentionChange, RetentionRule

app = typer.Typer(
    help="Show and change how long finished records are kept.", no_args_is_help=True, rich_markup_mode=None
)

RECORDS = ("completed", "failed", "cancelled", "history", "workers")

COLUMNS = (
    Column("records"),
    Column("applies to", stretch=True),
    Column("keep", right=True),
    Column("changed (UTC)"),
    Column("by"),
)
CHANGE_COLUMNS = (
    Column("at (UTC)"),
    Column("by"),
    Column("records"),
    Column("applies to", stretch=True),
    Column("keep", right=True),
)


def complete_records(incomplete: str) -> list[str]:
    """The kinds of records that have a retention."""
    return [records for records in RECORDS if records.startswith(incomplete)]


RecordsName = Annotated[
    str,
    typer.Argument(metavar="RECORDS", help=f"One of {', '.join(RECORDS)}.", autocompletion=complete_records),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Only records of this queue.", autocompletion=complete_queue),
]
Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only tasks of this type; takes precedence over a rule for a queue.",
        autocompletion=complete_type,
    ),
]
Workflow = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", help="Only workflows of this name, with their steps."),
]


@app.command("list")
def list_rules(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List the retention rules: the defaults, then those for types, queues and workflows."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import RetentionRules

        rules = client.retention()
        if output.as_json:
            output.answer(RetentionRules.from_model(rules))
        else:
            output.table(COLUMNS, [_row(rule) for rule in rules])


@app.command("set")
def set_rule(
    ctx: typer.Context,
    records: RecordsName,
    keep: Annotated[
        str,
        typer.Argument(metavar="TIME", help="Such as 12h, 30d; 0s: until the next upkeep; forever: never deleted."),
    ],
    *,
    queue: Queue = None,
    type: Type = None,
    workflow: Workflow = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Set how long records are kept after they finished; without an option, the default of the store."""
    from dibs.model.retention import describe_keep, read_keep

    seconds = read_keep(keep)
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import ChangedRule

        rule = client.set_retention(records, seconds, queue=queue, type=type, workflow=workflow)
        output.say(f"{text.line(rule.target)}: {describe_keep(rule.keep)}.")
        output.answer(ChangedRule.from_model(rule))


@app.command("remove")
def remove(
    ctx: typer.Context,
    records: RecordsName,
    *,
    queue: Queue = None,
    type: Type = None,
    workflow: Workflow = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Remove a retention rule; without an option, set the default back to its first value."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.model.retention import RetentionTarget

        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        client.remove_retention(records, queue=queue, type=type, workflow=workflow)
        output.say(f"{text.line(target)}: no rule of its own any more.")
        output.answer({"success": True})


@app.command("changes")
def changes(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most N changes (1 to 1000).")] = 100,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List who changed which rule, and when; newest first."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import RetentionChanges

        found = client.retention_changes(limit)
        if output.as_json:
            output.answer(RetentionChanges.from_model(found))
        elif found:
            output.table(CHANGE_COLUMNS, [_change_row(change) for change in found])
        else:
            output.note("No retention rule was ever changed.")


def _row(rule: RetentionRule) -> tuple[object, ...]:
    from dibs.model.retention import write_keep

    return rule.records, _target(rule), write_keep(rule.keep), text.exact(rule.changed_at), rule.changed_by or "-"


def _change_row(change: RetentionChange) -> tuple[object, ...]:
    from dibs.model.retention import write_keep

    kept = "removed" if change.removed else write_keep(change.keep)
    return text.exact(change.at), change.by or "-", change.records, _target(change), kept


def _target(about: RetentionRule | RetentionChange) -> str:
    if about.type is not None:
        return f"type {about.type}"
    if about.queue is not None:
        return f"queue {about.queue}"
    if about.workflow is not None:
        return f"workflow {about.workflow}"
    return "everything else" if about.records in RECORDS[:3] else "everything"
