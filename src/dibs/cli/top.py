"""`dibs top`: a live view of the store in the terminal that limits its own load on the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from dibs.cli.context import open_client
from dibs.cli.options import JsonOption, UrlOption
from dibs.cli.output import Output

if TYPE_CHECKING:
    from rich.live import Live

    from dibs.cli.keyboard import WaitForKey
    from dibs.cli.snapshot import TopSnapshot
    from dibs.client import Dibs

MIN_INTERVAL = 1.0
PAUSE_FACTOR = 5
"""The pause after a snapshot, as a multiple of its duration: at most a sixth of the time is spent on reads."""

KEY_TIMEOUT = 0.2
"""Seconds to wait for a key; then the frame is drawn again, at the current size of the terminal."""


def top(ctx: typer.Context, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show a live view of the store: q quits, p pauses. Without a terminal or with --json, print one snapshot."""
    with open_client(ctx, url, as_json) as (client, output):
        from dibs.cli.snapshot import take_snapshot, to_json

        if output.as_json:
            output.print_json(to_json(take_snapshot(client)))
        elif output.on_terminal:
            Top(client, output).run()
        else:
            _print_once(output, take_snapshot(client))


def _print_once(output: Output, snapshot: TopSnapshot) -> None:
    from dibs.cli import layout

    output.print(f"{snapshot.url} at {snapshot.at:%Y-%m-%d %H:%M:%S} UTC")
    output.print(layout.depth(snapshot).plain.rstrip())
    output.print(layout.speed(snapshot).plain)
    for columns, rows in layout.sections(snapshot, layout.WIDE):
        if rows:
            output.print("")
            output.print_table(columns, rows)


def pause_after(took: float) -> float:
    """Return the seconds until the next snapshot, after one that took `took` seconds."""
    return max(MIN_INTERVAL, PAUSE_FACTOR * took)


class Top:
    """The live view: take a snapshot, draw it, wait for keys, repeat."""

    def __init__(self, client: Dibs, output: Output) -> None:
        from dibs.cli.snapshot import Throughput

        self._client = client
        self._console = output.console
        self._throughput = Throughput()
        self._paused = False

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until the user quits or `until` returns True."""
        from rich.live import Live

        from dibs.cli.keyboard import keys

        with keys() as wait_for_key, Live(console=self._console, screen=True, auto_refresh=False) as live:
            while not until() and self._round(live, wait_for_key):
                pass

    def _round(self, live: Live, wait_for_key: WaitForKey) -> bool:
        """Show one snapshot until the next is due; return False to quit."""
        from dibs.cli.snapshot import take_snapshot

        snapshot = take_snapshot(self._client)
        self._throughput.add(snapshot)
        next_at = time.monotonic() + pause_after(snapshot.took)
        while self._paused or time.monotonic() < next_at:
            self._draw(live, snapshot)
            match wait_for_key(KEY_TIMEOUT).lower():
                case "q":
                    return False
                case "p":
                    self._paused = not self._paused
        return True

    def _draw(self, live: Live, snapshot: TopSnapshot) -> None:
        from dibs.cli.layout import draw

        width, height = self._console.size
        frame = draw(snapshot, self._throughput.sparkline(), width, height, paused=self._paused)
        live.update(frame, refresh=True)
