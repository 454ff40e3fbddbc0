"""The options that several commands share, their shell completion, and the functions that read their values.

Every command imports this module, so the module imports nothing that starts slowly: LEVELS, STATES and ORDERS repeat
the values of `dibs.model`, and a test compares them. The names of options are public. Completion runs while the user
types: it reads a bounded number of tasks and prints no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.context import command_context
from dibs.errors import DibsError, InvalidValue

if TYPE_CHECKING:
    from dibs.client import Dibs

LEVELS = ("debug", "info", "warning", "error")
"""The levels of the log."""

STATES = ("scheduled", "blocked", "pending", "claimed", "completed", "failed", "cancelled")
"""The states of a task: the values of `dibs.model.task.State`."""

ORDERS = ("priority", "priority_lifo", "priority_asc", "fifo", "lifo", "random", "weighted")
"""The orders of a claim: the values of `dibs.model.claim.Order`."""

COMPLETION_SAMPLE = 200
"""The number of newest tasks from which completion reads the names of queues and types: reading all tasks could take
long."""


def given(**options: Any) -> dict[str, Any]:
    """Return the options that are not None. The client has the defaults of the options that are left out."""
    return {name: value for name, value in options.items() if value is not None}


def limit_names(names: list[str] | None, none: bool) -> list[str] | None:
    """Return the limits of --limit and --no-limits; None for neither: they stay as they are."""
    if names and none:
        raise InvalidValue("--limit and --no-limits exclude each other.", hint="Give one of them.")
    return [] if none else names or None


def filters(**options: Any) -> dict[str, Any]:
    """Return the filters that are not None, with times converted to datetime."""
    times = {name: read_time(options[name]) for name in ("since", "until") if options.get(name) is not None}
    return given(**{**options, **times})


def read_time(text: str) -> datetime:
    """Read a time: a date, a date with a time of day (in UTC unless a zone is given), or a duration before now, such as
    2h."""
    if duration := _DURATION_BEFORE_NOW.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(seconds=int(duration[1]) * _UNIT_SECONDS[duration[2]])
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        hint = "Write 2030-01-31, 2030-01-31T08:00Z, or 2h for two hours ago (s, m, h, d, w)."
        raise InvalidValue(f"{text!r} is not a valid time.", hint=hint) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


_DURATION_BEFORE_NOW = re.compile(r"([0-9]{1,9})(s|m|h|d|w)(?: ago)?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def split_names(names: str) -> list[str]:
    """Split names that commas separate."""
    return [name.strip() for name in names.split(",")]


def split_queues(queues: str) -> list[str] | dict[str, int | None]:
    """Split the names of queues that commas separate; a mapping if a queue has a bound: `mail=2,default`."""
    entries = [_queue_and_bound(entry.strip()) for entry in queues.split(",")]
    names = [name for name, _ in entries]
    if all(bound is None for _, bound in entries):
        return names
    if twice := [name for name in names if names.count(name) > 1]:
        raise InvalidValue(f"The queue {twice[0]!r} is given twice.", hint="Give each queue once, with one bound.")
    return dict(entries)


def _queue_and_bound(entry: str) -> tuple[str, int | None]:
    name, sign, bound = entry.rpartition("=")
    if not sign:
        return entry, None
    if not re.fullmatch(r"[0-9]{1,9}", bound):
        hint = "Write mail=2 for at most two tasks of the queue mail at once, or mail for no bound."
        raise InvalidValue(f"{entry!r} does not end with a number.", hint=hint)
    return name, int(bound)


def check_level(log_level: str) -> None:
    """Raise InvalidValue if the log level does not exist."""
    if log_level.lower() not in LEVELS:
        raise InvalidValue(f"{log_level!r} is not a log level.", hint=f"Use one of: {', '.join(LEVELS)}.")


def log_options(log_level: str, log_format: str) -> list[str]:
    """Return the log options to pass on to a supervised process."""
    return ["--log-level", log_level, "--log-format", log_format]


def complete_state(incomplete: str) -> list[str]:
    """Complete the state of a task."""
    return [state for state in STATES if state.startswith(incomplete)]


def complete_order(incomplete: str) -> list[str]:
    """Complete the order of claims."""
    return [order for order in ORDERS if order.startswith(incomplete)]


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a queue from the newest tasks."""
    return _names_starting_with(
        ctx, incomplete, lambda client: {task.queue for task in client.list_tasks(limit=COMPLETION_SAMPLE)}
    )


def complete_type(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a task type from the newest tasks."""
    return _names_starting_with(
        ctx, incomplete, lambda client: {task.type for task in client.list_tasks(limit=COMPLETION_SAMPLE)}
    )


def complete_worker(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a worker."""
    return _names_starting_with(ctx, incomplete, lambda client: {worker.id for worker in client.workers()})


def complete_schedule(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a schedule."""
    return _names_starting_with(ctx, incomplete, lambda client: {schedule.name for schedule in client.schedules()})


def complete_limit(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a limit."""
    return _names_starting_with(ctx, incomplete, lambda client: {limit.name for limit in client.limits()})


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a group of the queue that is already on the command line."""
    queue = ctx.params.get("queue") or "default"
    return _names_starting_with(ctx, incomplete, lambda client: {each.group or "" for each in client.groups(queue)})


def _names_starting_with(ctx: typer.Context, incomplete: str, read_names: Callable[[Dibs], set[str]]) -> list[str]:
    """Return the names in the store that begin with the incomplete word; none if the store cannot be read."""
    try:
        with command_context(ctx, ctx.params.get("url"), False).open() as client:
            return sorted(name for name in read_names(client) if name.startswith(incomplete))
    except DibsError:  # an error message would break the command line that the shell completes
        return []


UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="URL of the store; default: DIBS_URL, then sqlite:///dibs.db."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LogLevelOption = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help=f"One of {', '.join(LEVELS)}.")]
LogFormatOption = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        envvar="DIBS_LOG_FORMAT",
        help="human, json, or auto: human on a terminal, JSON lines elsewhere.",
    ),
]
StateOption = Annotated[
    str | None,
    typer.Option("--state", metavar="STATE", help=f"One of {', '.join(STATES)}.", autocompletion=complete_state),
]
QueueOption = Annotated[
    str | None,
    typer.Option("--queue", metavar="QUEUE", help="Only this queue.", autocompletion=complete_queue),
]
LimitNamesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME", help="A limit of all its tasks; replaces the list.", autocompletion=complete_limit
    ),
]
NoLimitsOption = Annotated[bool, typer.Option("--no-limits", help="Remove its limits.")]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Only this type of task.", autocompletion=complete_type),
]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only the task with this idempotency key.")]
WorkerOption = Annotated[
    str | None,
    typer.Option(
        "--worker",
        metavar="NAME",
        help="Only tasks that this worker holds or held last.",
        autocompletion=complete_worker,
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only tasks with this tag; several: tasks with all of them."),
]
GroupFilterOption = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", help="Only tasks of this group.", autocompletion=complete_group),
]
WithLimitOption = Annotated[
    str | None,
    typer.Option(
        "--with-limit",
        metavar="NAME",
        help="Only tasks with this limit; of claimed tasks, those that count towards it.",
        autocompletion=complete_limit,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only tasks created since this time: 2030-01-31, 2030-01-31T08:00Z, or 2h (ago).",
    ),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Only tasks created before this time, in the same formats."),
]
TextOption = Annotated[
    str | None, typer.Option("--text", metavar="TEXT", help="Only tasks with this text in their params or error.")
]
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", help="Maximum number of entries (1 to 1000).")]
CursorOption = Annotated[
    int | None, typer.Option("--cursor", metavar="ID", help="Continue after the task with this id.")
]
TaskIdArgument = Annotated[int, typer.Argument(metavar="ID", help="The id of the task.")]
TaskIdsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="[ID]...", help="The ids of one or more tasks.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All tasks that match the other options.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print the number of tasks.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
