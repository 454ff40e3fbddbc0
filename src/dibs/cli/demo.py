"""`dibs demo`: a server with its dashboard and three workers on a lively sample, and the books checked at the end."""

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

from dibs.cli.options import Json, Url
from dibs.cli.output import Output
from dibs.errors import DibsError
from dibs.redaction import redact_url

if TYPE_CHECKING:
    from dibs.client import Dibs
    from dibs.model.history import HistoryEntry
    from dibs.model.key import MintedKey

HOST, PORT = "127.0.0.1", 8787
LOOK_EVERY = 0.1
TO_START = 30.0
PAUSABLE = ("imports", "mail", "pictures")
WORKING = ["worker", "dibs.demo:app", "--lease", "5", "--grace", "2", "--children", "1", "--log-level", "warning"]
WORKERS = {
    "worker-a": ["--concurrency", "5"],
    "worker-b": ["--concurrency", "5"],
    "worker-c": ["--concurrency", "4", "--queues", "video,orders"],
}


def demo(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="N", help="End after so long; otherwise with Ctrl-C.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", help=f"The port of the server; 0 for any free one; default: {PORT}."),
    ] = None,
    top: Annotated[bool, typer.Option("--top", help="Show it in this terminal as well, like `dibs top`.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Start a server with its dashboard and three workers, and watch them work on a lively sample.

    The tasks are in a new SQLite file, in a temporary folder, unless --url names a store. Workers die on the way.
    """
    before = ctx.find_root().params
    output = Output(as_json or bool(before.get("as_json")))
    with _folder() as folder:
        where = url or before.get("url")
        play = Play(folder, where or f"sqlite:///{folder}/demo.db", output, alone=where is None, quiet=top)
        code = play.run(port, seconds, output if top and output.on_terminal else None)
    raise typer.Exit(code)


class Play:
    """One run of the demo. `alone`: the store is there for nothing else. `quiet`: nothing is told while it goes on."""

    def __init__(self, folder: Path, url: str, output: Output, *, alone: bool, quiet: bool) -> None:
        from dibs.cli.server import check_database
        from dibs.demo.processes import Crew

        check_database(url)
        self._url, self._output = url, output
        self._alone, self._quiet = alone, quiet
        self._crew = Crew(folder, {"DIBS_URL": url})  # not on their command lines, where everybody could read it
        self._signals = 0

    def run(self, port: int | None, seconds: float | None, screen: Output | None) -> int:
        """From the first process to the check of the books; the exit code."""
        from dibs import demo as sample
        from dibs.cli.follow import last_entry

        sample.app.use_url(self._url)
        with sample.app as app, self._hearing_signals():
            app.migrate()
            last = last_entry(app)
            with self._key(app) as key, contextlib.closing(_listen(port, self._output)) as listening:
                self._start(listening)
                self._introduce(listening, key)
                killed = self._go_on(app, seconds, screen)
            return self._sum_up(_history(app, last), killed)

    def _start(self, listening: socket.socket) -> None:
        from dibs.cli.server import LISTENING

        shared = {} if sys.platform == "win32" else {LISTENING: listening.fileno()}
        command = ["server", "--port", str(listening.getsockname()[1]), "--grace", "1", "--no-access-log"]
        if sys.platform == "win32":
            listening.close()
        self._crew.add("server", [*command, "--log-level", "warning"], **shared)
        for name, options in WORKERS.items():
            self._crew.add(name, [*WORKING, "--worker-id", name, *options])

    def _introduce(self, listening: socket.socket, key: MintedKey) -> None:
        place = f"http://{HOST}:{listening.getsockname()[1]}"
        link = f"{place}/signin#key={key.key}"
        self._wait_for_server(place)
        facts = {"url": place, "signin_url": link, "key": key.key, "store_url": redact_url(self._url)}
        words = f"A server and {len(WORKERS)} workers are at work.\n\n  Dashboard  {place}\n  Sign in    {link}\n"
        self._tell("started", f"{words}\nCtrl-C ends it.", **facts)

    def _wait_for_server(self, place: str) -> None:
        end = time.monotonic() + TO_START
        while not self._signals and not _answers(place):
            if time.monotonic() > end or not self._crew.is_up("server"):
                said = self._crew.log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
                self._crew.stop_now()
                raise DibsError("The server did not start.", hint=said or "It said nothing.")
            time.sleep(LOOK_EVERY)

    def _go_on(self, app: Dibs, seconds: float | None, screen: Output | None) -> int:
        """Until somebody ends it, or the time is over; how many workers were killed."""
        from dibs.demo.faults import Mishaps
        from dibs.demo.traffic import Visitors

        visitors = Visitors(tidy=self._alone)
        mishaps = Mishaps(app, self._crew, ("worker-a", "worker-b"), PAUSABLE, self._tell_of_mishap)
        visitors.start()
        try:
            self._watch(app, screen, self._until(seconds, mishaps.happen))
        finally:
            visitors.send_away()
            mishaps.end()
            self._quiet = False
            self._tell("stopping", "No more visitors. The workers may finish what they have begun …")
            self._crew.stop()
        return mishaps.killed

    def _until(self, seconds: float | None, each_time: Callable[[], None]) -> Callable[[], bool]:
        end = None if seconds is None else time.monotonic() + seconds

        def over() -> bool:
            if self._signals or (end is not None and time.monotonic() > end):
                return True
            self._crew.tend()
            each_time()
            return False

        return over

    def _watch(self, app: Dibs, screen: Output | None, over: Callable[[], bool]) -> None:
        if screen is not None:
            from dibs.cli.top import Top

            Top(app, screen).run(until=over)
            return
        while not over():
            time.sleep(LOOK_EVERY)

    def _sum_up(self, history: list[HistoryEntry], killed: int) -> int:
        from dibs.observe.verify import verify

        report = verify(history, complete=False)
        events = Counter(entry.event.value for entry in history)
        counted = ", ".join(f"{count:,} {event}" for event, count in events.most_common())
        facts = {"events": events, "killed": killed, "violations": [str(each) for each in report.violations]}
        words = f"{_workers(killed)} killed; {_tasks(events['recovered'])} taken back when the leases ended.\n"
        self._tell("ended", f"{words}In the history: {counted}.\nRead again by the checker: {report}", **facts)
        return 1 if report.violations else 0

    def _tell_of_mishap(self, words: str) -> None:
        self._tell("mishap", f"{time.strftime('%H:%M:%S')}  {words}", words=words)

    def _tell(self, event: str, words: str, /, **facts: Any) -> None:
        if self._output.as_json:
            self._output.answer_line({"event": event, **facts})
            sys.stdout.flush()
        elif not self._quiet or event != "mishap":
            self._output.say(words)
            sys.stdout.flush()

    @contextlib.contextmanager
    def _key(self, app: Dibs) -> Iterator[MintedKey]:
        """A key for this run."""
        key = app.create_key("demo", ["admin"], rate_limit="none")
        try:
            yield key
        finally:
            app.revoke_key(key.about.id)

    @contextlib.contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        """The first signal asks for the end, the second does not ask."""
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        before = {name: signal.signal(getattr(signal, name), self._hear) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _hear(self, number: int, frame: object) -> None:
        self._signals += 1
        if self._signals > 1:
            self._crew.stop_now()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dibs-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _listen(port: int | None, output: Output) -> socket.socket:
    """The port that was asked for; without a wish the usual one, or any other if it is taken."""
    from dibs.cli.server import need_server

    need_server()
    from dibs.server.run import CannotListen, listen

    if port is not None:
        return listen(HOST, port)
    try:
        return listen(HOST, PORT)
    except CannotListen:
        output.say(f"Port {PORT} is taken: this demo has another.")
        return listen(HOST, 0)


def _answers(place: str) -> bool:
    connection = HTTPConnection(place.removeprefix("http://"), timeout=2)
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


def _workers(count: int) -> str:
    return "One worker was" if count == 1 else f"{count or 'No'} workers were"


def _tasks(count: int) -> str:
    return "one task was" if count == 1 else f"{count or 'no'} tasks were"
