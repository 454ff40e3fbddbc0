"""`dibs schedules`: list, change, run and preview schedules, which enqueue tasks at their ticks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import text
from dibs.cli.context import command_context, open_client
from dibs.cli.enqueue import read_params, read_time
from dibs.cli.options import (
    JsonOption,
    UrlOption,
    complete_group,
    complete_limit,
    complete_queue,
    complete_schedule,
    complete_type,
    given,
)
from dibs.cli.output import Column

if TYPE_CHECKING:
    from datetime import datetime

    from dibs.model.schedule import Schedule

app = typer.Typer(help="List, change and run schedules.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    Column("schedule"),
    Column("state", by_state=True),
    Column("ticks"),
    Column("timezone"),
    Column("type"),
    Column("next (UTC)"),
    Column("last (UTC)"),
    Column("error", stretch=True),
)


ScheduleArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.", autocompletion=complete_schedule)
]


TIME_HELP = "For example 2030-01-31T08:00:00Z."

TimezoneOption = Annotated[
    str | None, typer.Option("--timezone", metavar="ZONE", help="For example Europe/Berlin; default: UTC.")
]
EveryOption = Annotated[
    str | None, typer.Option("--every", metavar="DURATION", help="Tick at this interval, such as 30s or 2h.")
]
AtOption = Annotated[str | None, typer.Option("--at", metavar="TIME", help=f"Tick once, at this time. {TIME_HELP}")]
JitterOption = Annotated[
    str | None, typer.Option("--jitter", metavar="DURATION", help="Delay each tick by up to this time.")
]
StartOption = Annotated[str | None, typer.Option("--start", metavar="TIME", help=f"No tick before. {TIME_HELP}")]
EndOption = Annotated[str | None, typer.Option("--end", metavar="TIME", help=f"No tick after. {TIME_HELP}")]


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
    """Show all fields of a schedule, and its next five runs."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.model.schedule import next_runs
        from dibs.wire.schedules import OneSchedule

        schedule = client.get_schedule(name)
        output.print_fields(_pairs(schedule))
        output.print_json(OneSchedule.from_model(schedule, next_runs(schedule)))


@app.command("preview")
def preview(
    ctx: typer.Context,
    cron: Annotated[
        str | None, typer.Argument(metavar="[CRON]", help='Five or six fields, for example "*/5 * * * *", or @daily.')
    ] = None,
    *,
    timezone: TimezoneOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    jitter: JitterOption = None,
    start: StartOption = None,
    end: EndOption = None,
    count: Annotated[int, typer.Option("--count", metavar="N", help="Number of runs.", min=1, max=1000)] = 5,
    as_json: JsonOption = False,
) -> None:
    """Show a schedule in words and its next runs, without storing it. Jitter depends on the name of a schedule, so
    that of a stored schedule differs."""
    output = command_context(ctx, None, as_json).output
    from datetime import UTC, datetime

    from dibs.model.schedule import NewSchedule
    from dibs.wire.fields import to_text

    options = _timing_options(timezone=timezone, every=every, at=at, jitter=jitter, start=start, end=end)
    timing = NewSchedule(name="preview", cron=cron, type="preview", **options).timing
    runs = timing.next_runs(timing.next_after(datetime.now(UTC)), count)
    output.print(timing.words)
    for run in runs:
        output.print(_run(run, timing.timezone))
    output.print_json({"description": timing.words, "next_runs": [to_text(run) for run in runs]})


@app.command("add")
def add(
    ctx: typer.Context,
    name: ScheduleArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[CRON] TYPE [PARAMS_JSON]",
            help="The cron expression (five fields, or @daily), unless --every or --at is given; the type of the task; "
            "its params as a JSON object, or - to read them from stdin.",
            autocompletion=complete_type,
        ),
    ],
    *,
    timezone: TimezoneOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    jitter: JitterOption = None,
    start: StartOption = None,
    end: EndOption = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            metavar="HOW",
            help="What a tick does while a task of the schedule has not ended: allow, skip or queue; default: allow.",
        ),
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
    expires_in: Annotated[
        float | None,
        typer.Option("--expires-in", metavar="SECONDS", help="Cancel a task that was not started after this time."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit", metavar="NAME", help="A limit of its tasks; up to 8 of them.", autocompletion=complete_limit
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="GROUP", help="The group of its tasks.", autocompletion=complete_group),
    ] = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule, or change the schedule of this name."""
    cron, type, params = _cron_type_params(words, has_cron=every is None and at is None)
    task_options = given(queue=queue, priority=priority, max_attempts=max_attempts, timeout=timeout, tags=tags or None)
    options = given(catch_up=catch_up, overlap=overlap, expires_in=expires_in, limits=limits or None, group=group)
    options |= task_options | _timing_options(
        timezone=timezone, every=every, at=at, jitter=jitter, start=start, end=end
    )
    content = read_params(params)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.set_schedule(name, cron, type, content, **options)
        output.print(f"Schedule {text.line(name)} ticks {schedule.words}; {_next_tick(schedule)}.")
        output.print_json(ChangedSchedule.from_model(schedule))


def _cron_type_params(words: list[str], *, has_cron: bool) -> tuple[str | None, str, str]:
    expected = "CRON TYPE [PARAMS_JSON]" if has_cron else "TYPE [PARAMS_JSON], because --every and --at replace CRON"
    rest = words[1:] if has_cron else words
    if not 1 <= len(rest) <= 2:
        raise typer.BadParameter(f"after NAME come {expected}")
    return words[0] if has_cron else None, rest[0], rest[1] if len(rest) == 2 else "{}"


def _seconds(written: str) -> float:
    from dibs.model.checks import read_seconds

    return read_seconds(written)


TIMING_READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "timezone": ("timezone", str),
    "every": ("every", _seconds),
    "at": ("at", read_time),
    "jitter": ("jitter", _seconds),
    "start": ("start_at", read_time),
    "end": ("end_at", read_time),
}
"""The options about the timing: the name of each in Python, and the function that reads it."""


def _timing_options(**written: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for option, value in written.items():
        name, read = TIMING_READERS[option]
        if value is not None:
            options[name] = read(value)
    return options


@app.command("enable")
def enable(ctx: typer.Context, name: ScheduleArgument, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Enable a schedule: it enqueues tasks again from now on."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.wire.schedules import ChangedSchedule

        schedule = client.enable_schedule(name)
        output.print(f"Schedule {text.line(name)} is enabled; {_next_tick(schedule)}.")
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
    runs = schedule.enabled and not schedule.ended
    when = text.exact(schedule.due_at) if runs else "-", text.exact(schedule.last_at)
    error = schedule.last_error or ""
    zone = "-" if schedule.cron is None else schedule.timezone
    return schedule.name, schedule.state, _expression(schedule), zone, schedule.type, *when, error


def _expression(schedule: Schedule) -> str:
    """The cron expression, or the interval or time that replaces it."""
    if schedule.cron is not None:
        return schedule.cron
    return f"every {schedule.every:g} s" if schedule.every else f"at {text.exact(schedule.at)}"


def _next_tick(schedule: Schedule) -> str:
    if schedule.due_at is None:
        return "it has ended: no tick comes any more"
    return f"next {text.exact(schedule.due_at)} UTC ({text.relative(schedule.due_at)})"


def _run(run: datetime, timezone: str) -> str:
    from dibs.model.timing import local

    return f"{local(run, timezone):%a %Y-%m-%d %H:%M:%S} {timezone}, {text.relative(run)}"


def _pairs(schedule: Schedule) -> Iterator[tuple[str, str]]:
    yield "schedule", text.line(schedule.name)
    yield "state", schedule.state
    yield "ticks", text.line(schedule.words)
    if schedule.cron:
        yield "cron", f"{text.line(schedule.cron)} ({text.line(schedule.timezone)})"
    yield "catch up", schedule.catch_up.value
    yield from _runs(schedule)
    yield from _results(schedule)
    yield "type", text.line(schedule.type)
    yield "queue", text.line(schedule.queue)
    yield "priority", str(schedule.priority)
    yield "attempts", str(schedule.max_attempts)
    if schedule.timeout:
        yield "timeout", f"{schedule.timeout:g} s"
    if schedule.expires_in:
        yield "expires", f"{schedule.expires_in:g} s after the enqueue, unless started"
    yield from _labels(schedule)
    yield "set by", "hand, since its declaration in code" if schedule.overridden else schedule.source
    if schedule.overridden:
        yield "declared in code", text.compact(schedule.declared)
    yield "params", text.pretty(schedule.params)


def _runs(schedule: Schedule) -> Iterator[tuple[str, str]]:
    from dibs.model.schedule import next_runs

    runs = next_runs(schedule)
    yield "next", "\n".join(_run(run, schedule.timezone) for run in runs) or "-"
    yield "overlap", schedule.overlap.value
    if schedule.unfinished_task_id is not None:
        verb = {"skip": "is skipped", "queue": "waits"}[schedule.overlap.value]
        yield "unfinished", f"task {schedule.unfinished_task_id}: until it has ended, a tick {verb}"


def _results(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """The results of the last ticks."""
    if schedule.last_at:
        last = f"{text.exact(schedule.last_at)} UTC ({text.relative(schedule.last_at)})"
        yield "last", f"{last}, task {schedule.last_task_id}"
    if schedule.last_skipped_at:
        ticks = f"{schedule.skipped:,} tick{'' if schedule.skipped == 1 else 's'}"
        yield "skipped", f"{ticks}, the last {text.exact(schedule.last_skipped_at)} UTC, for a task that had not ended"
    if schedule.last_error:
        yield "error", text.line(schedule.last_error)


def _labels(schedule: Schedule) -> Iterator[tuple[str, str]]:
    if schedule.limits:
        yield "limits", text.line(", ".join(schedule.limits))
    if schedule.group is not None:
        yield "group", text.line(schedule.group)
    if schedule.tags:
        yield "tags", text.line(", ".join(schedule.tags))
