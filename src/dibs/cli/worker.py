"""`dibs worker`: run the handlers of a program, in this process or in several processes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from dibs.cli.context import command_context
from dibs.cli.metrics import MetricsAddress, MetricsHostOption, MetricsPortOption
from dibs.cli.options import (
    ORDERS,
    JsonOption,
    LogFormatOption,
    LogLevelOption,
    UrlOption,
    check_level,
    complete_order,
    log_options,
    split_names,
)

STORE = "DIBS_SUPERVISED_STORE"
"""Environment variable with the store of supervised processes. It replaces the store of their program."""


def worker(
    ctx: typer.Context,
    program: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="The module and its Dibs object; :APP defaults to :app.")
    ],
    *,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", help="Number of concurrent tasks in each lane; default: 10."),
    ] = None,
    processes: Annotated[
        int,
        typer.Option("--processes", metavar="N", help="Number of worker processes; one that dies is restarted.", min=1),
    ] = 1,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="Claim only from these queues; default: all queues.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="ORDER",
            help=f"Order of claims: {', '.join(ORDERS)}; default: priority.",
            autocompletion=complete_order,
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            "--lease",
            metavar="SECONDS",
            help="Duration of a lease; tasks of a dead worker are recovered after it; default: 60.",
        ),
    ] = None,
    poll: Annotated[
        float | None,
        typer.Option("--poll", metavar="SECONDS", help="Maximum pause between two polls for tasks; default: 2."),
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="Stop when no task is left to claim.")] = False,
    grace: Annotated[
        float | None,
        typer.Option("--grace", metavar="SECONDS", help="Maximum duration of running tasks after SIGTERM."),
    ] = None,
    worker_id: Annotated[
        str | None,
        typer.Option("--worker-id", metavar="NAME", help="The worker's name; default: HOST-PID-RANDOM."),
    ] = None,
    children: Annotated[
        int | None,
        typer.Option("--children", metavar="N", help="Number of child processes, for handlers of the process lane."),
    ] = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the handlers of a program until SIGTERM or Ctrl-C; running tasks may finish first."""
    from dibs.cli.logs import configure

    check_level(log_level)
    configure(log_level, log_format)
    options = {
        "concurrency": concurrency,
        "queues": queues,
        "order": order,
        "lease": lease,
        "poll": poll,
        "grace": grace,
        "worker_id": worker_id,
        "children": children,
    }
    given = {name: value for name, value in options.items() if value is not None}
    before: str | None = ctx.find_root().params.get("url")
    code = _run(
        program,
        given | {"burst": burst},
        processes,
        metrics=MetricsAddress(metrics_host, metrics_port),
        log=log_options(log_level, log_format),
        url=url or before,
    )
    command_context(ctx, url, as_json).output.print_json({"success": code == 0, "exit_code": code})
    raise typer.Exit(code)


def _run(
    program: str, options: dict[str, Any], processes: int, *, metrics: MetricsAddress, log: list[str], url: str | None
) -> int:
    if processes == 1:
        return _work(program, options, metrics, url)
    from dibs.observe.sharing import read_folder
    from dibs.supervisor import supervise

    commands = [_command(program, options, number, log) for number in range(1, processes + 1)]
    return supervise(
        commands,
        burst=options["burst"],
        environment={}
        if url is None
        else {STORE: url},  # not on the command line: every user of the machine can read that
        beside=lambda folder, health: metrics.serving(lambda: read_folder(folder), health),
    )


def _work(program: str, options: dict[str, Any], metrics: MetricsAddress, url: str | None) -> int:
    """Run the worker in this process."""
    from dibs.cli.load import load
    from dibs.observe.sharing import shared, total
    from dibs.supervisor import end_with_the_supervisor

    end_with_the_supervisor()
    url = url or os.environ.pop(STORE, None)
    if url is not None:
        os.environ["DIBS_URL"] = url  # for a program that opens other apps or reads the variable
    app = load(program)
    if url is not None:
        app.use_url(url)
    if "queues" in options:
        options = options | {"queues": split_names(options["queues"])}
    worker = app.worker(**options)
    with shared(), metrics.serving(total, lambda: _health(worker)):
        return int(worker.run())


def _health(worker: Any) -> tuple[bool, dict[str, Any]]:
    from msgspec import to_builtins

    health = worker.health
    return health.running, to_builtins(health)


def _command(program: str, options: dict[str, Any], number: int, log: list[str]) -> list[str]:
    """Return the command of one of several processes. Each process has its own worker id."""
    command = [sys.executable, "-m", "dibs", "worker", program, "--processes", "1", *log]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "burst":
            command += [flag] if value else []
        else:
            command += [flag, f"{value}-{number}" if name == "worker_id" else str(value)]
    return command
