"""`dibs worker`: run the handlers of a program, in this process or in several processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    split_queues,
)
from dibs.errors import InvalidValue

if TYPE_CHECKING:
    from dibs.cli.watching import LogChoice, ProcessesWatch
    from dibs.supervisor import HealthCheck
    from dibs.worker.report import ReportFile, WorkerAbout
    from dibs.worker.worker import Worker

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
        str | None,
        typer.Option(
            "--queues",
            metavar="A,B=N",
            help="Claim only from these queues; default: all queues. B=N: at most N tasks of B at once, per process.",
        ),
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
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when the code of the program changes; for development.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")] = False,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the handlers of a program until SIGTERM or Ctrl-C; running tasks may finish first."""
    check_level(log_level)
    if reload and burst:
        raise InvalidValue(
            "--reload and --burst exclude each other.", hint="A burst ends by itself: leave out --reload."
        )
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
    url_before_command: str | None = ctx.find_root().params.get("url")
    run = _WorkerRun(
        program,
        given | {"burst": burst},
        MetricsAddress(metrics_host, metrics_port),
        "warning" if quiet and log_level.lower() in ("debug", "info") else log_level,
        log_format,
        url or url_before_command,
    )
    code = run.supervise(processes, reload) if processes > 1 or reload else run.work()
    command_context(ctx, url, as_json).output.print_json({"success": code == 0, "exit_code": code})
    raise typer.Exit(code)


@dataclass(frozen=True)
class _WorkerRun:
    """One run of the command. `options`: those of the worker."""

    program: str
    options: dict[str, Any]
    metrics: MetricsAddress
    log_level: str
    log_format: str
    url: str | None

    @property
    def log(self) -> LogChoice:
        """How the run logs."""
        from dibs.cli.watching import LogChoice

        return LogChoice(self.log_level, self.log_format)

    def supervise(self, processes: int, reload: bool) -> int:
        """Run the worker in processes of their own."""
        from dibs.cli.watching import CodeReloader
        from dibs.supervisor import supervise
        from dibs.worker.report import RELOAD

        self.log.configure(supervised=False)
        watched = _SupervisedRun(self, processes, reload)
        # The URL is not on the command line: every user of the machine can read that.
        named = {**({} if self.url is None else {STORE: self.url}), **({RELOAD: "1"} if reload else {})}
        return supervise(
            [self._command(number if processes > 1 else None) for number in range(1, processes + 1)],
            burst=self.options["burst"],
            environment=named,
            stopping=watched.log_signal,
            beside=watched.beside,
            reloading=CodeReloader if reload else None,
        )

    def work(self) -> int:
        """Run the worker in this process."""
        from dibs.cli.watching import watching
        from dibs.observe.sharing import shared, total
        from dibs.supervisor import end_with_the_supervisor
        from dibs.worker.report import ReportFile

        end_with_the_supervisor()
        report = ReportFile.of_environment()
        self.log.configure(supervised=report is not None)
        app = self._load(report)
        options = dict(self.options)
        if "queues" in options:
            options["queues"] = split_queues(options["queues"])
        worker = app.worker(**options)
        with (
            shared(),
            self.metrics.serving(total, lambda: _health(worker)),
            watching(worker, _about(self.program, app, worker), self.log, report),
        ):
            return int(worker.run())

    def _load(self, report: ReportFile | None) -> Any:
        """Import the program. A failure is reported with the files whose change may mend it."""
        from dibs.cli.load import load

        url = self.url or os.environ.pop(STORE, None)
        if url is not None:
            os.environ["DIBS_URL"] = url  # for a program that opens other apps or reads the variable
        try:
            app = load(self.program)
        except InvalidValue as error:
            if report is not None:
                _report_failure(report, error)
            raise
        if url is not None:
            app.use_url(url)
        return app

    def _command(self, number: int | None) -> list[str]:
        """Return the command of a process. Each of several has its own worker id."""
        command = [sys.executable, "-m", "dibs", "worker", self.program, "--processes", "1"]
        command += log_options(self.log_level, self.log_format)
        for name, value in self.options.items():
            flag = f"--{name.replace('_', '-')}"
            if name == "burst":
                command += [flag] if value else []
            else:
                command += [flag, f"{value}-{number}" if name == "worker_id" and number else str(value)]
        return command


class _SupervisedRun:
    """What runs beside the processes of a supervisor: their metrics and their totals."""

    def __init__(self, run: _WorkerRun, processes: int, reload: bool) -> None:
        self._run, self._processes, self._reload = run, processes, reload
        self._watch: ProcessesWatch | None = None

    @contextmanager
    def beside(self, folder: Path, health: HealthCheck) -> Iterator[None]:
        """Serve the metrics of all processes, and log their totals."""
        from dibs.cli.watching import ProcessesWatch, repeating
        from dibs.observe.sharing import read_folder

        self._watch = ProcessesWatch(folder, self._processes, self._run.log, reload=self._reload)
        with (
            self._run.metrics.serving(lambda: read_folder(folder), health),
            repeating(self._watch.step, "dibs-watch") if self._run.log.summaries else nullcontext(),
        ):
            yield

    def log_signal(self, signals: int, interrupted: bool) -> None:
        """Log what happens to running tasks."""
        if self._watch is not None:
            self._watch.log_signal(signals, interrupted)


def _about(program: str, app: Any, worker: Worker) -> WorkerAbout:
    from dibs.cli import text
    from dibs.worker.report import WorkerAbout

    return WorkerAbout(
        worker_id=worker.worker_id,
        store=text.public_url(app.url),  # the report is a file
        program=program,
        handlers=worker.handler_names,
        queues=worker.queues_with_bounds,
        lanes={lane.value: places for lane, places in worker.places.items()},
        grace=worker.config.grace,
    )


def _report_failure(report: ReportFile, error: InvalidValue) -> None:
    from dibs.source_files import files_after_failure, states_of
    from dibs.worker.report import ProcessReport

    report.write(ProcessReport(files=states_of(files_after_failure(error)), figures=report.read().figures))


def _health(worker: Any) -> tuple[bool, dict[str, Any]]:
    from msgspec import to_builtins

    health = worker.health
    return health.running, to_builtins(health)
