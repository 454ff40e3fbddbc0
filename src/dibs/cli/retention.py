"""`dibs retention`: show and change how long finished records are kept.

The JSON has the shapes of the HTTP API (`dibs.wire.retention`). RECORDS repeats `model.retention.Records`, because
`--help` must not import the model; a test compares the two.
"""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption, complete_queue, complete_type
from dibs.cli.output import Column
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs
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
    """Complete a kind of records."""
    return [records for records in RECORDS if records.startswith(incomplete)]


RecordsArgument = Annotated[
    str,
    typer.Argument(metavar="RECORDS", help=f"One of {', '.join(RECORDS)}.", autocompletion=complete_records),
]
RuleQueueOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Only records of this queue.", autocompletion=complete_queue),
]
RuleTypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only tasks of this type; takes precedence over a rule for a queue.",
        autocompletion=complete_type,
    ),
]
RuleWorkflowOption = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", help="Only workflows of this name, with their steps."),
]


@app.command("list")
def list_rules(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the retention rules: the defaults, then the rules for types, queues and workflows."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import RetentionRules

        rules = client.retention()
        if output.as_json:
            output.print_json(RetentionRules.from_model(rules))
        else:
            output.print_table(COLUMNS, [_row(rule) for rule in rules])


@app.command("set")
def set_rule(
    ctx: typer.Context,
    records: RecordsArgument,
    keep: Annotated[
        str,
        typer.Argument(metavar="TIME", help="For example 12h, 30d; 0s: until the next upkeep; forever: never deleted."),
    ],
    *,
    queue: RuleQueueOption = None,
    type: RuleTypeOption = None,
    workflow: RuleWorkflowOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set how long records are kept after they finished; without an option, set the default of the store."""
    from dibs.model.retention import describe_keep, read_keep

    seconds = read_keep(keep)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import ChangedRule

        rule = _signed(client).set_retention(records, seconds, queue=queue, type=type, workflow=workflow)
        output.print(f"{text.line(rule.target)}: {describe_keep(rule.keep)}.")
        output.print_json(ChangedRule.from_model(rule))


@app.command("remove")
def remove(
    ctx: typer.Context,
    records: RecordsArgument,
    *,
    queue: RuleQueueOption = None,
    type: RuleTypeOption = None,
    workflow: RuleWorkflowOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a retention rule; without an option, reset the default to its initial value."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.model.retention import RetentionTarget

        target = RetentionTarget(records=records, queue=queue, type=type, workflow=workflow)
        _signed(client).remove_retention(records, queue=queue, type=type, workflow=workflow)
        output.print(f"{text.line(target)}: the rule is removed.")
        output.print_json({"success": True})


def _signed(client: Dibs) -> Dibs:
    """Return the client with the user of the system as the author of its changes, if the user has a usable name.

    A rule deletes data later, so its author must be known. Over HTTP the server records the API key as well.
    """
    try:
        return client.signed(getpass.getuser())
    except (InvalidValue, KeyError, OSError):  # a container may run as a user without an entry in passwd
        return client


@app.command("changes")
def changes(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="Maximum number of changes (1 to 1000).")] = 100,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the changes of retention rules, newest first."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.retention import RetentionChanges

        found = client.retention_changes(limit)
        if output.as_json:
            output.print_json(RetentionChanges.from_model(found))
        elif found:
            output.print_table(CHANGE_COLUMNS, [_change_row(change) for change in found])
        else:
            output.print_to_stderr("No retention rule was changed.")


def _row(rule: RetentionRule) -> tuple[object, ...]:
    from dibs.model.retention import write_keep

    return rule.records, _target(rule), write_keep(rule.keep), text.exact(rule.changed_at), rule.changed_by or "-"


def _change_row(change: RetentionChange) -> tuple[object, ...]:
    from dibs.model.retention import write_keep

    kept = "removed" if change.removed else write_keep(change.keep)
    return text.exact(change.at), change.by or "-", change.records, _target(change), kept


def _target(rule: RetentionRule | RetentionChange) -> str:
    if rule.type is not None:
        return f"type {rule.type}"
    if rule.queue is not None:
        return f"queue {rule.queue}"
    if rule.workflow is not None:
        return f"workflow {rule.workflow}"
    return "everything else" if rule.records in RECORDS[:3] else "everything"
