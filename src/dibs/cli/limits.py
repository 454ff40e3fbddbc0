"""`dibs limits` and `dibs groups`: limits with their use, and the weights of the groups of a queue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption, complete_group, complete_limit, complete_queue, given
from dibs.cli.output import Column, Output
from dibs.errors import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.limit import Limit, LimitGroup, QueueSettings, TypeSettings

app = typer.Typer(help="List, set and remove limits.", no_args_is_help=True, rich_markup_mode=None)
groups_app = typer.Typer(
    help="List the groups of a queue and set their weights.", no_args_is_help=True, rich_markup_mode=None
)

COLUMNS = (
    Column("limit", stretch=True),
    Column("used", right=True),
    Column("max", right=True),
    Column("rate"),
    Column("burst", right=True),
    Column("per"),
    Column("waiting", right=True),
    Column("set by"),
)
LIMIT_GROUP_COLUMNS = (
    Column("group", stretch=True),
    Column("used", right=True),
    Column("waiting", right=True),
    Column("next start (UTC)"),
)
GROUP_COLUMNS = (Column("group", stretch=True), Column("weight", right=True), Column("waiting", right=True))

AT_ONCE = 1000
"""The largest number of tasks that are compared with those that a limit counts."""

NO_GROUP = "(no group)"

LimitArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the limit.", autocompletion=complete_limit)
]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]
GroupCountOption = Annotated[int, typer.Option("--limit", metavar="N", help="At most this many groups; up to 1000.")]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="GROUP", help="Only groups after this one: the next page.")
]


# Limits


@app.command("list")
def list_limits(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the limits with their live claims and waiting tasks."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import Limits

        limits = client.limits()
        if output.as_json:
            output.print_json(Limits.from_model(limits))
        elif limits:
            output.print_table(COLUMNS, [_row(limit) for limit in limits])
        else:
            output.print_to_stderr("No limits.")


@app.command("show")
def show(
    ctx: typer.Context,
    name: LimitArgument,
    *,
    count: GroupCountOption = 20,
    after: AfterOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a limit, the value that code declares, the queues and types that carry it, and the groups that use it or
    wait for it."""
    with open_client(ctx, url, as_json) as (client, output):
        limit = client.get_limit(name)
        groups, carriers = _groups(client, limit, count, after), _carriers(client, name)
        if output.as_json:
            output.print_json({**_as_json(limit, groups), **carriers})
            return
        output.print_fields([*_pairs(limit), *_next_start(limit, groups), *_carrier_fields(carriers)])
        if groups and limit.per:
            output.print("")
            output.print_table(LIMIT_GROUP_COLUMNS, [_group_row(group) for group in groups])


@app.command("set")
def set_limit(
    ctx: typer.Context,
    name: LimitArgument,
    *,
    max: Annotated[
        int | None, typer.Option("--max", metavar="N", help="How many claims may be live at once; 1 is a lock.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="How many claims may start, for example 100/minute.")
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option("--burst", metavar="N", help="How many claims of the rate may start at once; initially 1."),
    ] = None,
    per: Annotated[
        str | None, typer.Option("--per", metavar="WHAT", help="group: a limit of its own for each group.")
    ] = None,
    no_max: Annotated[bool, typer.Option("--no-max", help="Remove the maximum.")] = False,
    no_rate: Annotated[bool, typer.Option("--no-rate", help="Remove the rate and its burst.")] = False,
    no_per: Annotated[bool, typer.Option("--no-per", help="One limit for all tasks together.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a limit, or change the limit of this name. Options that are left out stay as they are.

    The next claims obey the limit; running tasks are not stopped. The limit overrides the one that code declares, until
    that declaration changes.
    """
    changes = given(max=max, rate=rate, burst=burst, per=per)
    for option, removed in (("max", no_max), ("rate", no_rate), ("per", no_per)):
        if removed and option in changes:
            raise InvalidValue(f"--{option} and --no-{option} exclude each other.", hint="Give one of them.")
        changes |= {option: None} if removed else {}
    if not changes:
        raise InvalidValue(
            "No value is given.", hint="Give --max, --rate, --burst, --per, or --no-max, --no-rate, --no-per."
        )
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import ChangedLimit

        limit = client.set_limit(name, **changes)
        output.print(f"Limit {text.line(name)}: {limit.rule}.")
        output.print_json(ChangedLimit.from_model(limit))


@app.command("remove")
def remove(ctx: typer.Context, name: LimitArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Remove a limit: the tasks that have it run without it."""
    with open_client(ctx, url, as_json) as (client, output):
        client.remove_limit(name)
        output.print(f"Limit {text.line(name)} is removed.")
        output.print_json({"success": True, "name": name})


def _row(limit: Limit) -> tuple[object, ...]:
    burst = "" if limit.rate is None else limit.burst
    maximum = "" if limit.max is None else limit.max
    return (
        limit.name, limit.used, maximum, limit.rate or "", burst, limit.per or "", limit.waiting, _set_by(limit),
    )  # fmt: skip


def _set_by(about: Limit | QueueSettings | TypeSettings) -> str:
    """Describe the source of the values: code, a person, or nothing."""
    if about.source is None:
        return "nothing: these are the defaults"
    by_hand = "hand, since its declaration in code" if about.overridden else "hand"
    return "code" if about.source == "code" else by_hand


def carried(settings: QueueSettings | TypeSettings) -> str:
    """Describe the limits that a queue or type carries."""
    names = [f"{name} (removed)" if name in settings.removed_limits else name for name in settings.limits]
    return text.line(", ".join(names)) or "none"


def note_uncounted(
    client: Dibs, output: Output, limits: Sequence[str], *, queue: str | None = None, type: str | None = None
) -> None:
    """Print a note if tasks of this queue or type run that do not count towards one of these limits, because they were
    claimed before the queue or type carried it."""
    if output.as_json or not limits:
        return
    with contextlib.suppress(NotAllowed):
        running = {task.id for task in client.list_tasks(state="claimed", limit=AT_ONCE, queue=queue, type=type)}
        uncounted: set[int] = set()
        for name in limits if running else ():
            counted = client.list_tasks(state="claimed", with_limit=name, limit=AT_ONCE, queue=queue, type=type)
            uncounted |= running - {task.id for task in counted}
        if uncounted:
            at_least = "At least " if len(running) == AT_ONCE else ""
            tasks = f"{at_least}{text.count(len(uncounted), 'running task')}"
            are = "is" if len(uncounted) == 1 else "are"
            output.print_to_stderr(f"note: {tasks} {are} not counted, because a worker claimed them before.")


def origin(about: Limit | QueueSettings | TypeSettings) -> Iterator[tuple[str, str]]:
    """Describe what set the values, and the declared values where they differ from the values in force."""
    yield "set by", _set_by(about)
    if about.overridden:
        yield "declared in code", text.compact(about.declared)


def _pairs(limit: Limit) -> Iterator[tuple[str, str]]:
    yield "limit", text.line(limit.name)
    yield "allows", limit.rule
    yield "used", f"{limit.used:,}{' by all groups' if limit.per else ''}"
    yield "waiting", f"{limit.waiting:,}"
    yield from origin(limit)
    yield "changed", f"{text.exact(limit.updated_at)} UTC ({text.relative(limit.updated_at)})"


def _next_start(limit: Limit, groups: list[LimitGroup]) -> Iterator[tuple[str, str]]:
    """The next start of a rate that is one for all tasks; those of the groups are in their table."""
    for group in groups:
        if not limit.per and group.free_at is not None:
            yield "next start", f"{text.exact(group.free_at)} UTC"


def _carriers(client: Dibs, name: str) -> dict[str, list[str]]:
    """Return the queues and the task types whose tasks all have the limit."""
    return {
        "queues": [each.queue for each in client.queue_settings() if name in each.limits],
        "task_types": [each.type for each in client.type_settings() if name in each.limits],
    }


def _carrier_fields(carriers: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    if not any(carriers.values()):
        yield "carried by", "no queue or type: it applies to tasks that name it"
    for kind, names in carriers.items():
        if names:
            yield kind.replace("task_", ""), text.line(", ".join(names))


def _groups(client: Dibs, limit: Limit, count: int, after: str | None) -> list[LimitGroup]:
    """Return the groups of the limit; none if the API key is limited to queues."""
    with contextlib.suppress(NotAllowed):
        return client.limit_groups(limit.name, count, after=after)
    return []


def _as_json(limit: Limit, groups: list[LimitGroup]) -> dict[str, Any]:
    from dibs.wire.limits import Limit as WireLimit
    from dibs.wire.limits import LimitGroup as WireGroup

    return {"limit": WireLimit.from_model(limit), "groups": [WireGroup.from_model(group) for group in groups]}


def _group_row(group: LimitGroup) -> tuple[object, ...]:
    return group.group or NO_GROUP, group.used, group.waiting, text.exact(group.free_at)


# Groups of a queue


@groups_app.command("list")
def list_groups(
    ctx: typer.Context,
    queue: QueueArgument,
    *,
    count: GroupCountOption = 100,
    after: AfterOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the groups of a queue that have a weight, or tasks that wait for a limit or for their turn."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import Groups

        groups = client.groups(queue, count, after=after)
        if output.as_json:
            output.print_json(Groups.from_model(groups, count))
        elif groups:
            rows = [(each.group or NO_GROUP, f"{each.weight:g}", each.waiting) for each in groups]
            output.print_table(GROUP_COLUMNS, rows)
        else:
            output.print_to_stderr("No groups.")


@groups_app.command("set")
def set_group(
    ctx: typer.Context,
    queue: QueueArgument,
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP]", help="The group; default: the tasks without a group.", autocompletion=complete_group
        ),
    ] = None,
    *,
    weight: Annotated[float, typer.Option("--weight", metavar="N", help="Its share of the claims; initially 1.")],
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the weight of a group: its share of the claims where the queue is fair."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.limits import ChangedGroup

        stored = client.set_group(queue, group, weight=weight)
        whose = "The tasks without a group" if group is None else f"Group {text.line(group)}"
        verb = "have" if group is None else "has"
        output.print(f"{whose} of queue {text.line(queue)} {verb} the weight {stored.weight:g}.")
        output.print_json(ChangedGroup.from_model(stored))
