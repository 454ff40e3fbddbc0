"""`dibs upkeep`: one round of what workers and servers do by themselves."""

from __future__ import annotations

import typer

from dibs.cli.options import Json, Url
from dibs.cli.session import opened


def upkeep(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """Do one round of upkeep: tick schedules, promote due tasks, recover lost ones, finalize workflows, prune."""
    with opened(ctx, url, as_json) as (client, output):
        from msgspec import to_builtins

        done = to_builtins(client.upkeep())
        said = [f"{name.replace('_', ' ')}: {count}" for name, count in done.items() if count]
        output.say("\n".join(said) or "Nothing to do.")
        output.answer({"success": True, **done})
