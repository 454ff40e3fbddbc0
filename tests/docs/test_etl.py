"""The small ETL among the examples: its data is right on each engine, and its steps are those on its page."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import dibs
from tests.cli.running import environment, run_dibs

PROGRAM = Path(__file__).parents[2] / "examples" / "etl" / "etl.py"
CENTS = {"cocoa": 2790, "coffee": 5000, "tea": 9800}
NAMES = ["extract", "load", "(finalizer)", "extract/east", "extract/north", "extract/south", "extract/west"]


def run(url: str, folder: Path) -> str:
    """What the program prints, in an empty folder and without a word of complaint."""
    command = [sys.executable, "-W", "error", str(PROGRAM)]
    done = subprocess.run(
        command, cwd=folder, env=environment(url), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_valid_order_is_loaded_once_and_added_to_the_sums(empty_url: str, tmp_path: Path) -> None:
    for _ in range(2):  # to load again is to replace
        said = run(empty_url, tmp_path)
        assert said.count("reading east.csv") == 1  # in two attempts
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary == {"title": "Sales by product", "cents": CENTS, "loaded": 11, "rejected": 2}
        with closing(sqlite3.connect(tmp_path / "warehouse.db")) as warehouse:
            assert dict(warehouse.execute("SELECT product, sum(cents) FROM sales GROUP BY product")) == CENTS


def test_the_steps_of_the_etl_example_are_those_on_its_page(empty_url: str, tmp_path: Path) -> None:
    run(empty_url, tmp_path)
    with dibs.Dibs(empty_url) as app:
        [workflow] = app.list_workflows()
        steps = {step.name: step for step in app.steps(workflow.id)}
        assert (workflow.state, sorted(steps)) == ("completed", sorted(NAMES))
        assert [name for name, step in steps.items() if step.attempts == 2] == ["extract/east"]
        assert list(app.checkpoints(steps["extract/east"].task_id)) == ["read"]
    drawn = run_dibs("workflows", "show", str(workflow.id), url=empty_url).out.partition("\n\n")[2]
    page = (PROGRAM.parent / "README.md").read_text(encoding="utf-8")
    assert "✓        load" in drawn
    assert without_times(drawn) in without_times(page)


def without_times(text: str) -> str:
    return re.sub(r" +(\d+ ms|\d+\.\d s|took)$", "", text, flags=re.MULTILINE)
