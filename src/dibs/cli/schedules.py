"""`dibs schedules`: list, change and run schedules, which enqueue tasks by cron expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import open_client
from dibs.cli.enqueue import read_params
from dibs.cli.options import JsonOption, UrlOption, complete_queue, complete_schedule, complete_type, given
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.schedule import Schedule

app = typer.Typer(help="List, change and run schedules.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("schedule"),
    Column("state", by_state=True),
    Column("cron"),
    Column("timezone"),
    Column("type"),
    Column("next (UTC)"),
    Column("last (UTC)"),
    Column("error", stretch=True),
)


ScheduleArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.", autocompletion=complete_schedule)
]


@app.command("list")
def list_schedules(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """List the schedules."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import Schedules

        schedules = client.schedules()
        if output.as_json:
            output.print_json(Schedules.from_model(schedules))
        elif schedules:
            output.print_table(COLUMNS, [_row(each) for each in schedules])
        else:
            output.print_to_stderr("No schedules.")


@app.command("show")
def show(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show all fields of a schedule."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import OneSchedule

        schedule = client.get_schedule(name)
        output.print_fields(_pairs(schedule))
        output.print_json(OneSchedule.from_model(schedule))


@app.command("add")
def add(
    ctx: typer.Context,
    name: ScheduleArgument,
    cron: Annotated[str, typer.Argument(metavar="CRON", help='Five fields, for example "*/5 * * * *", or @daily.')],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The type of the task.", autocompletion=complete_type)],
    params: Annotated[
        str, typer.Argument(metavar="[PARAMS_JSON]", help="A JSON object; - reads it from stdin.")
    ] = "{}",
    *,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="For example Europe/Berlin; default: UTC.")
    ] = None,
    catch_up: Annotated[
        str | None,
        typer.Option("--catch-up", metavar="HOW", help="Tasks for missed ticks: one, all or none; default: one."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Default: default.", autocompletion=complete_queue)
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher first; default: 0.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Default: 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Maximum duration of one attempt.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag of its tasks; up to 20 of them.")
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule, or change the schedule of this name."""
    task_options = given(queue=queue, priority=priority, max_attempts=max_attempts, timeout=timeout, tags=tags or None)
    options = given(timezone=timezone, catch_up=catch_up) | task_options
    read = read_params(params)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.set_schedule(name, cron, type, read, **options)
        output.print(f"Schedule {text.line(name)} ticks next at {_next_tick(schedule)}.")
        output.print_json(ChangedSchedule.from_model(schedule))


@app.command("enable")
def enable(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Enable a schedule: it enqueues tasks again from now on."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.enable_schedule(name)
        output.print(f"Schedule {text.line(name)} ticks next at {_next_tick(schedule)}.")
        output.print_json(ChangedSchedule.from_model(schedule))


@app.command("disable")
def disable(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Disable a schedule: it enqueues nothing until it is enabled."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.disable_schedule(name)
        output.print(f"Schedule {text.line(name)} is disabled.")
        output.print_json(ChangedSchedule.from_model(schedule))


@app.command("run")
def run(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Enqueue the task of a schedule now, in addition to its ticks."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import ChangedTask

        task = client.run_schedule(name)
        output.print(f"Task {task.id} of type {text.line(task.type)} is {task.state}.")
        output.print_json(ChangedTask.from_model(task))


@app.command("remove")
def remove(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Remove a schedule; tasks that it enqueued stay."""
    with open_client(ctx, url, as_json) as (client, output):
        client.remove_schedule(name)
        output.print(f"Schedule {text.line(name)} is removed.")
        output.print_json({"success": True, "name": name})


def _row(schedule: Schedule) -> tuple[object, ...]:
    state = "enabled" if schedule.enabled else "disabled"
    when = text.exact(schedule.next_at) if schedule.enabled else "-", text.exact(schedule.last_at)
    error = schedule.last_error or ""
    return schedule.name, state, schedule.cron, schedule.timezone, schedule.type, *when, error


def _next_tick(schedule: Schedule) -> str:
    return f"{text.exact(schedule.next_at)} UTC ({text.relative(schedule.next_at)})"


def _pairs(schedule: Schedule) -> Iterator[tuple[str, str]]:
    yield "schedule", text.line(schedule.name)
    yield "state", "enabled" if schedule.enabled else "disabled"
    yield "cron", f"{text.line(schedule.cron)} ({text.line(schedule.timezone)})"
    yield "catch up", schedule.catch_up.value
    yield "next", _next_tick(schedule) if schedule.enabled else "-"
    if schedule.last_at:
        last = f"{text.exact(schedule.last_at)} UTC ({text.relative(schedule.last_at)})"
        yield "last", f"{last}, task {schedule.last_task_id}"
    if schedule.last_error:
        yield "error", text.line(schedule.last_error)
    yield "type", text.line(schedule.type)
    yield "queue", text.line(schedule.queue)
    yield "priority", str(schedule.priority)
    yield "attempts", str(schedule.max_attempts)
    if schedule.timeout:
        yield "timeout", f"{schedule.timeout:g} s"
    if schedule.tags:
        yield "tags", text.line(", ".join(schedule.tags))
    yield "set by", "hand, since its declaration in code" if schedule.overridden else schedule.source
    if schedule.overridden:
        yield "declared in code", text.compact(schedule.declared)
    yield "params", text.pretty(schedule.params)
