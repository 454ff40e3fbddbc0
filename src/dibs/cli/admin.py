"""`dibs migrate` and `dibs doctor`: bring the database up to date, and look whether it can be trusted."""

from __future__ import annotations

import typer

from dibs.cli import text
from dibs.cli.context import begin, opened
from dibs.cli.options import Json, Url
from dibs.cli.output import Column
from dibs.exit_codes import REFUSED

CHECKS = (Column("verdict", by_state=True), Column("check"), Column("found", stretch=True))


def migrate(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Bring the schema of the database up to date."""
    session = begin(ctx, url, as_json)
    output = session.output
    with session.open(create=True) as client:
        applied = client.migrate(lambda name: output.say(f"applying {name}"))
    done = f"Applied {text.count(len(applied), 'migration')}" if applied else "Nothing to do"
    output.say(f"{done}: the database is up to date.")
    output.answer({"success": True, "applied": applied})


def doctor(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Check the database for damage and for settings that would cost a guarantee."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.model.upkeep import Verdict
        from dibs.wire.admin import Check

        checks = client.doctor()
        healthy = all(check.verdict is not Verdict.FAIL for check in checks)
        if output.as_json:
            output.answer({"success": healthy, "checks": [Check.from_model(check) for check in checks]})
        else:
            output.table(CHECKS, [(check.verdict.value, check.name, check.message) for check in checks])
        for check in checks:
            if check.hint:
                output.say(f"hint: {check.name}: {check.hint}")
    if not healthy:
        raise typer.Exit(REFUSED)


def upkeep(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Do one round of upkeep: tick schedules, promote due tasks, recover lost ones, finalize workflows, prune."""
    with opened(ctx, url, as_json) as (client, output):
        from msgspec import to_builtins

        done = to_builtins(client.upkeep())
        said = [f"{name.replace('_', ' ')}: {count}" for name, count in done.items() if count]
        output.say("\n".join(said) or "Nothing to do.")
        output.answer({"success": True, **done})
