"""`dibs migrate`, `dibs doctor`, `dibs upkeep`: migrate the schema, check the database, run one round of upkeep."""

from __future__ import annotations

import typer

from dibs.cli import text
from dibs.cli.context import command_context, open_client
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Column
from dibs.exit_codes import REFUSED

CHECKS = (Column("verdict", by_state=True), Column("check"), Column("found", stretch=True))


def migrate(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Apply the missing migrations to the database."""
    context = command_context(ctx, url, as_json)
    context.refuse_to_migrate()
    output = context.output
    with context.open(create=True) as client:
        applied = client.migrate(lambda name: output.print(f"applying {name}"))
    summary = f"Applied {text.count(len(applied), 'migration')}" if applied else "Nothing to do"
    output.print(f"{summary}: the database is up to date.")
    output.print_json({"success": True, "applied": applied})


def doctor(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Check the database for damage and for settings that break a guarantee."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.model.upkeep import Verdict
        from dibs.wire.admin import Check

        checks = client.doctor()
        healthy = all(check.verdict is not Verdict.FAIL for check in checks)
        if output.as_json:
            output.print_json({"success": healthy, "checks": [Check.from_model(check) for check in checks]})
        else:
            output.print_table(CHECKS, [(check.verdict.value, check.name, check.message) for check in checks])
        for check in checks:
            if check.hint:
                output.print(f"hint: {check.name}: {check.hint}")
    if not healthy:
        raise typer.Exit(REFUSED)


def upkeep(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Run one round of upkeep: tick schedules, promote due tasks, recover lost tasks, expire tasks, finalize workflows,
    prune."""
    with open_client(ctx, url, as_json) as (client, output):
        from msgspec import to_builtins

        done = to_builtins(client.upkeep())
        lines = [f"{name.replace('_', ' ')}: {count}" for name, count in done.items() if count]
        output.print("\n".join(lines) or "Nothing to do.")
        output.print_json({"success": True, **done})
