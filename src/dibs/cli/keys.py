"""`dibs keys`: create, list and revoke the API keys of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption, given, split_names
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.key import ApiKey

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)

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
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person or program that uses the key.")],
    *,
    scopes: Annotated[
        str, typer.Option("--scopes", metavar="A,B", help="One or more of enqueue, work, read, admin (everything).")
    ],
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="Limit the key to these queues; default: all queues.")
    ] = None,
    rate_limit: Annotated[
        str | None,
        typer.Option("--rate-limit", metavar="N/UNIT", help="For example 600/minute, or none; default: 100/minute."),
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="For example 90d, 12h, 30m; default: never.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it. It cannot be shown again."""
    from dibs.model.checks import read_duration

    options = given(
        queues=None if queues is None else split_names(queues),
        rate_limit=rate_limit,
        expires_in=None if expires_in is None else read_duration(expires_in),
    )
    with open_client(ctx, url, as_json, create=True) as (client, output):
        minted = client.create_key(name, split_names(scopes), **options)
        if not output.as_json:
            output.print_to_stderr(
                f"Key {minted.about.id} for {text.line(name)} is created. Save it now: it is not shown again."
            )
            if rate_limit is None and "work" in split_names(scopes):
                output.print_to_stderr(
                    "The key allows 100 requests a minute. For a busy worker, create it with --rate-limit none."
                )
        output.print(minted.key)  # nothing else on standard output, for KEY=$(dibs keys create …)
        output.print_json({"success": True, "key": minted.key, **_to_json(minted.about)})


@app.command("list")
def list_keys(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List all API keys, including expired and revoked ones."""
    with open_client(ctx, url, as_json) as (client, output):
        keys = client.keys()
        if output.as_json:
            output.print_json({"keys": [_to_json(each) for each in keys]})
        elif keys:
            output.print_table(COLUMNS, [_row(each) for each in keys])
        else:
            output.print_to_stderr("No keys.")


@app.command("revoke")
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, not the key itself.")],
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an API key. The server refuses it from now on."""
    with open_client(ctx, url, as_json) as (client, output):
        revoked = client.revoke_key(key_id)
        output.print(f"Key {revoked.id} for {text.line(revoked.name)} is revoked.")
        output.print_json({"success": True, **_to_json(revoked)})


def _row(key: ApiKey) -> tuple[object, ...]:
    from dibs.model.key import write_limit

    state = "revoked" if key.revoked_at else "expired" if key.expired else "active"
    queues = "all" if key.queues is None else ",".join(key.queues)
    limits = ",".join(key.scopes), queues, write_limit(key.rate_limit)
    return key.id, state, key.name, *limits, text.exact(key.expires_at), text.exact(key.last_used_at)


def _to_json(key: ApiKey) -> dict[str, Any]:
    from msgspec import to_builtins

    from dibs.wire.keys import Key

    flat: dict[str, Any] = to_builtins(Key.from_model(key))
    return flat
