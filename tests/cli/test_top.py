"""`dibs top`: live figures of the store, in a terminal of any size."""

from __future__ import annotations

import pytest

import dibs
from dibs.cli.layout import share
from dibs.cli.top import pause_after
from tests.cli.running import Run
from tests.helpers.tasks import task_in
from tests.helpers.terminal import Terminal


@pytest.fixture
def busy(client: dibs.Dibs) -> dibs.Dibs:
    """A store with something in every part of the picture."""
    client.heartbeat("worker-1")
    for state in ("scheduled", "completed", "failed"):
        task_in(client, state)
    client.enqueue("transcode", queue="media", priority=9)
    claim = client.claim("worker-1")
    assert claim is not None
    client.progress(claim, 40, "frame 4")
    client.enqueue("mail", queue="slow")
    client.pause("slow")
    return client


def test_top_shows_queues_workers_running_tasks_and_failures(url: str, busy: dibs.Dibs) -> None:
    with Terminal("top", "--url", url) as terminal:
        text = terminal.shows(r"failed +type")
        assert "1 scheduled   1 pending   1 claimed   1 completed   1 failed" in text
        assert terminal.lines[0].startswith(f"dibs top  {url.split('?', maxsplit=1)[0][:20]}")
        for line in (
            r"^slow +paused +0 +1 +0 +0 +0$",
            r"^worker-1 +active +.* +\d+$",
            r"^ +\d+  transcode  worker-1 .*████░░░░░░  40 % frame 4$",
            r"^ +\d+  resize .* Error: broken$",
        ):
            terminal.shows(f"(?m){line}")
        assert terminal.colour_of("paused") == "brown"
        terminal.press("q")
        assert terminal.ends() == 0


def test_top_updates_its_figures(url: str, busy: dibs.Dibs) -> None:
    with Terminal("top", "--url", url) as terminal:
        terminal.shows("1 pending")
        busy.enqueue_many([dibs.NewTask("resize") for _ in range(41)])
        terminal.shows("42 pending")
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_key_p_freezes_top_until_it_is_pressed_again(url: str, busy: dibs.Dibs) -> None:
    with Terminal("top", "--url", url) as terminal:
        terminal.shows("1 pending")
        terminal.press("p")
        terminal.shows("paused: press p to resume")
        busy.enqueue("resize")
        terminal.press("p")
        terminal.shows("2 pending")
        assert "paused: press p to resume" not in terminal.text
        terminal.interrupt()
        assert terminal.ends() == 130


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (60, 15)])
def test_top_fits_every_terminal_size_and_follows_a_resize(url: str, busy: dibs.Dibs, columns: int, rows: int) -> None:
    for number in range(40):
        busy.heartbeat(f"worker-{number}")
        busy.enqueue("resize", queue=f"queue-{number:02}")
    with Terminal("top", "--url", url, columns=100, rows=30) as terminal:
        terminal.shows("… .. more")
        terminal.resize(columns, rows)
        terminal.shows(rf"(?s)^.{{{columns - 30},}}q quits\n")
        text = terminal.shows(r"failed +type .*\n.*Error: broken")
        assert text.startswith("dibs top")
        assert all(len(line) <= columns for line in text.splitlines())


def test_top_restores_the_screen_when_it_ends(url: str, busy: dibs.Dibs) -> None:
    with Terminal("top", "--url", url) as terminal:
        terminal.shows("q quits")
        terminal.press("q")
        assert terminal.ends() == 0
    assert terminal.raw.count("\x1b[?1049h") == terminal.raw.count("\x1b[?1049l") == 1
    assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l")


def test_top_prints_one_snapshot_for_scripts_and_pipes(run: Run, busy: dibs.Dibs) -> None:
    seen = run("top", "--json").json
    assert seen["stats"]["depth"]["pending"] == 1
    assert [task["task_type"] for task in seen["claimed"]] == ["transcode"]
    assert [task["error"]["message"] for task in seen["failures"]] == ["broken"]
    assert [queue["name"] for queue in seen["queues"]] == ["default", "media", "slow"]
    plain = run("top")
    assert (plain.code, "\x1b" in plain.out, "transcode" in plain.out) == (0, False, True)


def test_top_spends_at_most_a_fifth_of_the_time_in_the_database() -> None:
    assert pause_after(0.001) == 1.0
    for took in (0.3, 2.0, 60.0):
        assert took / (took + pause_after(took)) <= 1 / 5


@pytest.mark.parametrize(
    ("height", "wanted", "room"),
    [
        (21, [4, 12, 8, 3], [4, 3, 3, 3]),
        (100, [4, 12, 8, 3], [4, 12, 8, 3]),
        (21, [1, 0, 0, 0], [1, 0, 0, 0]),
        (21, [99, 0, 0, 0], [19, 0, 0, 0]),
        (3, [4, 4, 4, 4], [1, 1, 1, 1]),
    ],
)
def test_top_shares_the_lines_of_the_screen_between_its_tables(height: int, wanted: list[int], room: list[int]) -> None:
    assert share(height, wanted) == room
