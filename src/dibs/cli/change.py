"""`dibs tasks set`: change the priority, due time, queue, params, tags or group of tasks that have not started."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli import bulk, text
from dibs.cli.context import open_client
from dibs.cli.enqueue import read_params, read_time
from dibs.cli.options import (
    AllOption,
    DryRunOption,
    JsonOption,
    KeyOption,
    SinceOption,
    StateOption,
    TaskIdsArgument,
    TextOption,
    TypeOption,
    UntilOption,
    UrlOption,
    WithLimitOption,
    YesOption,
    complete_group,
    complete_queue,
    filters,
    given,
)
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.model.task import Task


def set_values(
    ctx: typer.Context,
    task_ids: TaskIdsArgument = None,
    *,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher first.")] = None,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Time from now until the task can be claimed.")
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option("--run-at", metavar="TIME", help="Time from which the task can be claimed: 2030-01-31T08:00:00Z."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="QUEUE", help="The new queue.", autocompletion=complete_queue)
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", metavar="JSON", help="All params, an object; - reads it from stdin.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; replaces all tags, up to 20 of them.")
    ] = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Remove all tags.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="GROUP",
            help="The new group, for limits per group and fair queues.",
            autocompletion=complete_group,
        ),
    ] = None,
    no_group: Annotated[
        bool, typer.Option("--no-group", help="Remove the group, unless the params name it (group_by).")
    ] = False,
    every: AllOption = False,
    state: StateOption = None,
    type: TypeOption = None,
    from_queue: Annotated[
        str | None,
        typer.Option("--from-queue", metavar="QUEUE", help="Only this queue.", autocompletion=complete_queue),
    ] = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    content: TextOption = None,
    with_tags: Annotated[
        list[str] | None,
        typer.Option("--with-tag", metavar="TAG", help="Only tasks with this tag; several: tasks with all of them."),
    ] = None,
    with_group: Annotated[
        str | None, typer.Option("--with-group", metavar="GROUP", help="Only tasks of this group.")
    ] = None,
    with_limit: WithLimitOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change tasks that have not started, by id, or all that match: priority, due time, queue, params, tags, group."""
    if tags and no_tags:
        raise InvalidValue("--tag and --no-tags exclude each other.", hint="Use one of them.")
    if group is not None and no_group:
        raise InvalidValue("--group and --no-group exclude each other.", hint="Use one of them.")
    changes = given(
        priority=priority,
        delay=delay,
        run_at=None if run_at is None else read_time(run_at),
        queue=queue,
        params=None if params is None else read_params(params),
        tags=[] if no_tags else tags or None,
        group="" if no_group else group,
    )
    criteria = filters(
        state=state,
        type=type,
        queue=from_queue,
        key=key,
        since=since,
        until=until,
        text=content,
        tags=with_tags or None,
        group=with_group,
        with_limit=with_limit,
    )
    bulk.check(task_ids or [], every, criteria, dry_run=dry_run, yes=yes)
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.model.change import TaskChange, check_for_many
        from dibs.model.task import WAITING

        change = TaskChange(**changes)
        if every:
            act = partial(client.change_matching, check_for_many(change))
            action = bulk.BulkAction(act, WAITING, "Change", "Changing", "changed")
            bulk.run(client, output, action, criteria, dry_run=dry_run, yes=yes)
        else:
            bulk.each(output, task_ids or [], lambda task_id: client.change(task_id, **changes), _changed)


def _changed(task: Task) -> str:
    """Describe a task after its change."""
    about: dict[str, Any] = {"priority": task.priority, "queue": text.line(task.queue), "due": text.exact(task.run_at)}
    if task.tags:
        about["tags"] = text.line(", ".join(task.tags))
    if task.group is not None:
        about["group"] = text.line(task.group)
    return f"Task {task.id} is {task.state}: {', '.join(f'{name} {value}' for name, value in about.items())}."
