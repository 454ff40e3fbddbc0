"""The options that several commands share, and what the shell completes them with."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.context import begin
from dibs.errors import DibsError, InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs

LEVELS = ("debug", "info", "warning", "error")
STATES = ("scheduled", "blocked", "pending", "claimed", "completed", "failed", "cancelled")

ORDERS = ("priority", "priority_lifo", "priority_asc", "fifo", "lifo", "random", "weighted")

LOOKED_AT = 200
"""Tasks that completing a name looks at: the newest ones, because counting all of them could take long."""


def given(**options: Any) -> dict[str, Any]:
    """Those options that were given: the defaults stay with the verbs."""
    return {name: value for name, value in options.items() if value is not None}


def filters(**options: Any) -> dict[str, Any]:
    """The filters that were given; times are read."""
    times = {name: read_time(options[name]) for name in ("since", "until") if options.get(name) is not None}
    return given(**{**options, **times})


def read_time(written: str) -> datetime:
    """A time: a date, a date with a time (in UTC unless it names a zone), or a duration before now, such as 2h."""
    if found := _AGO.fullmatch(written.strip()):
        return datetime.now(UTC) - timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    try:
        time = datetime.fromisoformat(written.strip())
    except ValueError:
        hint = "Write 2030-01-31, 2030-01-31T08:00Z, or 2h for two hours ago (s, m, h, d, w)."
        raise InvalidValue(f"{written!r} is not a valid time.", hint=hint) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


_AGO = re.compile(r"([0-9]{1,9})(s|m|h|d|w)(?: ago)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def split_names(listed: str) -> list[str]:
    """The names in a text like `a,b`."""
    return [name.strip() for name in listed.split(",")]


def check_level(log_level: str) -> None:
    """Refuse a log level that there is not."""
    if log_level.lower() not in LEVELS:
        raise InvalidValue(f"There is no log level {log_level!r}.", hint=f"Use one of: {', '.join(LEVELS)}.")


def log_options(log_level: str, log_format: str) -> list[str]:
    """The same options, for the processes that a supervisor starts."""
    return ["--log-level", log_level, "--log-format", log_format]


def complete_state(incomplete: str) -> list[str]:
    """The states a task can be in."""
    return [state for state in STATES if state.startswith(incomplete)]


def complete_order(incomplete: str) -> list[str]:
    """The orders of claiming."""
    return [order for order in ORDERS if order.startswith(incomplete)]


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queues of the newest tasks."""
    return _completed(ctx, incomplete, lambda client: {task.queue for task in client.list_tasks(limit=LOOKED_AT)})


def complete_type(ctx: typer.Context, incomplete: str) -> list[str]:
    """The types of the newest tasks."""
    return _completed(ctx, incomplete, lambda client: {task.type for task in client.list_tasks(limit=LOOKED_AT)})


def complete_worker(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids of the workers."""
    return _completed(ctx, incomplete, lambda client: {worker.id for worker in client.workers()})


def complete_schedule(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the schedules."""
    return _completed(ctx, incomplete, lambda client: {schedule.name for schedule in client.schedules()})


def _completed(ctx: typer.Context, incomplete: str, look: Callable[[Dibs], set[str]]) -> list[str]:
    try:
        with begin(ctx, ctx.params.get("url"), False).open() as client:
            return sorted(name for name in look(client) if name.startswith(incomplete))
    except DibsError:  # a shell that completes is no place for an error message
        return []


Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The store; otherwise DIBS_URL, otherwise sqlite:///dibs.db."),
]
Json = Annotated[bool, typer.Option("--json", help="Answer with JSON, for scripts.")]
LogLevel = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")]
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        envvar="DIBS_LOG_FORMAT",
        help="human, json, or auto: human on a terminal, JSON lines elsewhere.",
    ),
]
State = Annotated[
    str | None,
    typer.Option("--state", metavar="STATE", help=f"One of {', '.join(STATES)}.", autocompletion=complete_state),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Only this queue.", autocompletion=complete_queue),
]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Only this type of task.", autocompletion=complete_type),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only the task with this idempotency key.")]
Worker = Annotated[
    str | None,
    typer.Option(
        "--worker",
        metavar="NAME",
        help="Only tasks that this worker holds or held last.",
        autocompletion=complete_worker,
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only tasks created since: 2030-01-31, 2030-01-31T08:00Z, or 2h ago."),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only tasks created before this time, written the same way."),
]
Text = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="Only tasks with this text in their params or error.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="At most so many (1 to 1000).")]
Cursor = Annotated[int | None, typer.Option("--cursor", metavar="ID", help="Go on after the task with this id.")]
TaskId = Annotated[int, typer.Argument(metavar="ID", help="The id of the task.")]
TaskIds = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", help="The ids of one or more tasks.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="All tasks that match the other options.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
