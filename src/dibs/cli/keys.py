"""`dibs keys`: who may use the server's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.options import Json, Url, given, split_names
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.key import ApiKey

app = typer.Typer(help="Make API keys, list and revoke them.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("id"),
    Column("state", by_state=True),
    Column("name", stretch=True),
    Column("scopes"),
    Column("queues"),
    Column("rate limit"),
    Column("expires (UTC)"),
    Column("last used (UTC)"),
)


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for.")],
    *,
    scopes: Annotated[
        str, typer.Option("--scopes", metavar="A,B", help="Some of enqueue, work, read, admin (everything).")
    ],
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="Only for these queues; default: for all.")
    ] = None,
    rate_limit: Annotated[
        str | None,
        typer.Option("--rate-limit", metavar="N/UNIT", help="Such as 600/minute, or none; default: 100/minute."),
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="Such as 90d, 12h, 30m; default: never.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make an API key, and show it this once."""
    from dibs.model.checks import read_duration

    options = given(
        queues=None if queues is None else split_names(queues),
        rate_limit=rate_limit,
        expires_in=None if expires_in is None else read_duration(expires_in),
    )
    with opened(ctx, url, as_json, create=True) as (client, output):
        minted = client.create_key(name, split_names(scopes), **options)
        if not output.as_json:
            output.note(f"The key {minted.about.id} for {text.line(name)}. Keep it now: it is shown only this once.")
            if rate_limit is None and "work" in split_names(scopes):
                output.note("It may ask 100 times a minute; for a busy worker make one with --rate-limit none.")
        output.say(minted.key)  # alone on standard output, for KEY=$(dibs keys create …)
        output.answer({"success": True, "key": minted.key, **_shape(minted.about)})


@app.command("list")
def list_keys(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List the API keys, also those that expired or were revoked."""
    with opened(ctx, url, as_json) as (client, output):
        keys = client.keys()
        if output.as_json:
            output.answer({"keys": [_shape(each) for each in keys]})
        elif keys:
            output.table(COLUMNS, [_row(each) for each in keys])
        else:
            output.note("No keys.")


@app.command("revoke")
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, not the key.")],
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Let nobody use an API key from now on."""
    with opened(ctx, url, as_json) as (client, output):
        revoked = client.revoke_key(key_id)
        output.say(f"The key {revoked.id} for {text.line(revoked.name)} is revoked.")
        output.answer({"success": True, **_shape(revoked)})


def _row(key: ApiKey) -> tuple[object, ...]:
    from dibs.model.key import write_limit

    state = "revoked" if key.revoked_at else "expired" if key.expired else "active"
    queues = "all" if key.queues is None else ",".join(key.queues)
    limits = ",".join(key.scopes), queues, write_limit(key.rate_limit)
    return key.id, state, key.name, *limits, text.exact(key.expires_at), text.exact(key.last_used_at)


def _shape(key: ApiKey) -> dict[str, Any]:
    from msgspec import to_builtins

    from dibs.wire.keys import Key

    flat: dict[str, Any] = to_builtins(Key.from_model(key))
    return flat
