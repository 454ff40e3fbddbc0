"""`dibs demo`: run a server with its dashboard and three workers on sample tasks, then verify the history."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Output
from dibs.errors import DibsError
from dibs.redaction import redact_url

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.model.key import MintedKey

HOST, PORT = "127.0.0.1", 8787
POLL_INTERVAL = 0.1
START_TIMEOUT = 30.0
PAUSABLE = ("imports", "mail", "pictures")
WORKER_ARGS = ["worker", "dibs.demo:app", "--lease", "5", "--grace", "2", "--children", "1", "--log-level", "warning"]
WORKERS = {
    "worker-a": ["--concurrency", "5"],
    "worker-b": ["--concurrency", "5"],
    "worker-c": ["--concurrency", "4", "--queues", "video,orders"],
}


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="Stop after N seconds; default: run until Ctrl-C.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help=f"The port of the server; 0: any free port; default: {PORT}."),
    ] = None,
    top: Annotated[bool, typer.Option("--top", help="Show the live view of `dibs top` in this terminal.")] = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a server with its dashboard and three workers that process sample tasks.

    The tasks are in a new SQLite file in a temporary folder, unless --url names a store. The demo kills workers now
    and then, to show how their tasks are recovered.
    """
    before = ctx.find_root().params
    output = Output(as_json or bool(before.get("as_json")))
    with _folder() as folder:
        where = url or before.get("url")
        run = DemoRun(folder, where or f"sqlite:///{folder}/demo.db", output, alone=where is None, quiet=top)
        code = run.run(port, seconds, output if top and output.on_terminal else None)
    raise typer.Exit(code)


class DemoRun:
    """One run of the demo. `alone`: only the demo uses the store. `quiet`: print no faults while the demo runs."""

    def __init__(self, folder: Path, url: str, output: Output, *, alone: bool, quiet: bool) -> None:
        from dibs.cli.server import check_database
        from dibs.demo.processes import DemoProcesses

        check_database(url)
        self._url, self._output = url, output
        self._alone, self._quiet = alone, quiet
        environment = {"DIBS_URL": url}  # not on the command line: every user of the machine can read that
        self._processes = DemoProcesses(folder, environment)
        self._signals = 0

    def run(self, port: int | None, seconds: float | None, screen: Output | None) -> int:
        """Start the processes, wait for the end, verify the history; return the exit code."""
        from dibs import demo as sample
        from dibs.cli.follow import last_entry

        sample.app.use_url(self._url)
        with sample.app as app, self._handling_signals():
            app.migrate()
            last = last_entry(app)
            with self._key(app) as key, contextlib.closing(_listen(port, self._output)) as listening:
                self._start(listening)
                self._print_start(listening, key)
                killed = self._run_until_stopped(app, seconds, screen)
            return self._print_summary(_history(app, last), killed)

    def _start(self, listening: socket.socket) -> None:
        from dibs.cli.server import LISTENING

        shared = {} if sys.platform == "win32" else {LISTENING: listening.fileno()}
        command = ["server", "--port", str(listening.getsockname()[1]), "--grace", "1", "--no-access-log"]
        if sys.platform == "win32":
            listening.close()
        self._processes.add("server", [*command, "--log-level", "warning"], **shared)
        for name, options in WORKERS.items():
            self._processes.add(name, [*WORKER_ARGS, "--worker-id", name, *options])

    def _print_start(self, listening: socket.socket, key: MintedKey) -> None:
        server_url = f"http://{HOST}:{listening.getsockname()[1]}"
        link = f"{server_url}/signin#key={key.key}"
        self._wait_for_server(server_url)
        facts = {"url": server_url, "signin_url": link, "key": key.key, "store_url": redact_url(self._url)}
        message = (
            f"A server and {len(WORKERS)} workers are running.\n\n  Dashboard  {server_url}\n  Sign in    {link}\n"
        )
        self._report("started", f"{message}\nPress Ctrl-C to stop the demo.", **facts)

    def _wait_for_server(self, server_url: str) -> None:
        end = time.monotonic() + START_TIMEOUT
        while not self._signals and not _is_ready(server_url):
            if time.monotonic() > end or not self._processes.is_up("server"):
                log = self._processes.log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
                self._processes.stop_now()
                raise DibsError("The server did not start.", hint=log or "The server logged nothing.")
            time.sleep(POLL_INTERVAL)

    def _run_until_stopped(self, app: Dibs, seconds: float | None, screen: Output | None) -> int:
        """Run until the time is over or a signal arrives; return the number of killed workers."""
        from dibs.demo.faults import Faults
        from dibs.demo.traffic import Traffic

        traffic = Traffic(tidy=self._alone)
        faults = Faults(app, self._processes, ("worker-a", "worker-b"), PAUSABLE, self._report_fault)
        traffic.start()
        try:
            self._watch(app, screen, self._until(seconds, faults.inject_due))
        finally:
            traffic.stop()
            faults.end()
            self._quiet = False
            self._report("stopping", "No more requests. The workers finish the tasks that they hold …")
            self._processes.stop()
        return faults.killed

    def _until(self, seconds: float | None, on_each_check: Callable[[], None]) -> Callable[[], bool]:
        end = None if seconds is None else time.monotonic() + seconds

        def over() -> bool:
            if self._signals or (end is not None and time.monotonic() > end):
                return True
            self._processes.restart_ended()
            on_each_check()
            return False

        return over

    def _watch(self, app: Dibs, screen: Output | None, over: Callable[[], bool]) -> None:
        if screen is not None:
            from dibs.cli.top import Top

            Top(app, screen).run(until=over)
            return
        while not over():
            time.sleep(POLL_INTERVAL)

    def _print_summary(self, history: list[HistoryEntry], killed: int) -> int:
        from dibs.observe.verify import verify

        report = verify(history, complete=False)
        events = Counter(entry.event.value for entry in history)
        counted = ", ".join(f"{count:,} {event}" for event, count in events.most_common())
        facts = {"events": events, "killed": killed, "violations": [str(each) for each in report.violations]}
        message = (
            f"{_count_workers(killed)} killed; {_count_tasks(events['recovered'])} recovered when the leases expired.\n"
        )
        self._report("ended", f"{message}In the history: {counted}.\nVerified: {report}", **facts)
        return 1 if report.violations else 0

    def _report_fault(self, message: str) -> None:
        self._report("mishap", f"{time.strftime('%H:%M:%S')}  {message}", words=message)

    def _report(self, event: str, message: str, /, **facts: Any) -> None:
        if self._output.as_json:
            self._output.print_json_line({"event": event, **facts})
            sys.stdout.flush()
        elif not self._quiet or event != "mishap":
            self._output.print(message)
            sys.stdout.flush()

    @contextlib.contextmanager
    def _key(self, app: Dibs) -> Iterator[MintedKey]:
        """Create an API key for this run, and revoke it afterwards."""
        key = app.create_key("demo", ["admin"], rate_limit="none")
        try:
            yield key
        finally:
            app.revoke_key(key.about.id)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Handle signals: the first stops the demo, the second kills its processes at once."""
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self._on_signal) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            self._processes.stop_now()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dibs-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _listen(port: int | None, output: Output) -> socket.socket:
    """Listen on the given port; by default on the usual port, or on any free port if that is in use."""
    from dibs.cli.server import check_server_installed

    check_server_installed()
    from dibs.server.run import CannotListen, listen

    if port is not None:
        return listen(HOST, port)
    try:
        return listen(HOST, PORT)
    except CannotListen:
        output.print(f"Port {PORT} is in use: the demo uses another port.")
        return listen(HOST, 0)


def _is_ready(server_url: str) -> bool:
    connection = HTTPConnection(server_url.removeprefix("http://"), timeout=2)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _history(app: Dibs, after: int) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    while page := app.history_after(after):
        entries += page
        after = page[-1].id
    return entries


def _count_workers(count: int) -> str:
    return "One worker was" if count == 1 else f"{count or 'No'} workers were"


def _count_tasks(count: int) -> str:
    return "one task was" if count == 1 else f"{count or 'no'} tasks were"
