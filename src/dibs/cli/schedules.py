"""`dibs schedules`: tasks that are enqueued by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dibs.cli import text
from dibs.cli.context import opened
from dibs.cli.enqueue import read_params
from dibs.cli.options import Json, Url, complete_queue, complete_schedule, complete_type, given
from dibs.cli.output import Column

if TYPE_CHECKING:
    from dibs.model.schedule import Schedule

app = typer.Typer(help="Look at schedules, change and run them.", no_args_is_help=True, rich_markup_mode=None)

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


Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", autocompletion=complete_schedule)]


@app.command("list")
def list_schedules(ctx: typer.Context, url: Url = None, as_json: Json = False) -> None:
    """List the schedules."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import Schedules

        schedules = client.schedules()
        if output.as_json:
            output.answer(Schedules.from_model(schedules))
        elif schedules:
            output.table(COLUMNS, [_row(each) for each in schedules])
        else:
            output.note("No schedules.")


@app.command("show")
def show(ctx: typer.Context, name: Name, url: Url = None, as_json: Json = False) -> None:
    """Show all there is to know about a schedule."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import OneSchedule

        schedule = client.get_schedule(name)
        output.pairs(_pairs(schedule))
        output.answer(OneSchedule.from_model(schedule))


@app.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    cron: Annotated[str, typer.Argument(metavar="CRON", help='Five fields, such as "*/5 * * * *", or @daily.')],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="What to run.", autocompletion=complete_type)],
    params: Annotated[
        str, typer.Argument(metavar="[PARAMS_JSON]", help="A JSON object; - reads it from stdin.")
    ] = "{}",
    *,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin; default: UTC.")
    ] = None,
    catch_up: Annotated[
        str | None,
        typer.Option(
            "--catch-up", metavar="HOW", help="Ticks that were missed become one task, all, none; default: one."
        ),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="Default: default.", autocompletion=complete_queue)
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher first; default: 0.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", metavar="N", help="Default: 3.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="The longest one attempt may take.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Add a schedule, or change the one of that name."""
    task_options = given(queue=queue, priority=priority, max_attempts=max_attempts, timeout=timeout)
    options = given(timezone=timezone, catch_up=catch_up) | task_options
    read = read_params(params)
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.set_schedule(name, cron, type, read, **options)
        output.say(f"The schedule {text.line(name)} ticks next at {_moment(schedule)}.")
        output.answer(ChangedSchedule.from_model(schedule))


@app.command("enable")
def enable(ctx: typer.Context, name: Name, url: Url = None, as_json: Json = False) -> None:
    """Let a schedule tick again, from now on."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.enable_schedule(name)
        output.say(f"The schedule {text.line(name)} ticks next at {_moment(schedule)}.")
        output.answer(ChangedSchedule.from_model(schedule))


@app.command("disable")
def disable(ctx: typer.Context, name: Name, url: Url = None, as_json: Json = False) -> None:
    """Let a schedule rest until it is enabled."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.disable_schedule(name)
        output.say(f"The schedule {text.line(name)} is disabled.")
        output.answer(ChangedSchedule.from_model(schedule))


@app.command("run")
def run(ctx: typer.Context, name: Name, url: Url = None, as_json: Json = False) -> None:
    """Enqueue the task of a schedule now, beside its ticks."""
    with opened(ctx, url, as_json) as (client, output):
        from dibs.wire.tasks import ChangedTask

        task = client.run_schedule(name)
        output.say(f"Task {task.id} of type {text.line(task.type)} is {task.state}.")
        output.answer(ChangedTask.from_model(task))


@app.command("remove")
def remove(ctx: typer.Context, name: Name, url: Url = None, as_json: Json = False) -> None:
    """Forget a schedule; what it has enqueued stays."""
    with opened(ctx, url, as_json) as (client, output):
        client.remove_schedule(name)
        output.say(f"The schedule {text.line(name)} is removed.")
        output.answer({"success": True, "name": name})


def _row(schedule: Schedule) -> tuple[object, ...]:
    state = "enabled" if schedule.enabled else "disabled"
    when = text.exact(schedule.next_at) if schedule.enabled else "-", text.exact(schedule.last_at)
    error = schedule.last_error or ""
    return schedule.name, state, schedule.cron, schedule.timezone, schedule.type, *when, error


def _moment(schedule: Schedule) -> str:
    return f"{text.exact(schedule.next_at)} UTC ({text.relative(schedule.next_at)})"


def _pairs(schedule: Schedule) -> Iterator[tuple[str, str]]:
    yield "schedule", text.line(schedule.name)
    yield "state", "enabled" if schedule.enabled else "disabled"
    yield "cron", f"{text.line(schedule.cron)} ({text.line(schedule.timezone)})"
    yield "catch up", schedule.catch_up.value
    yield "next", _moment(schedule) if schedule.enabled else "-"
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
    yield "set by", schedule.source
    yield "params", text.pretty(schedule.params)
