"""work.py with one more handler, which has a schedule: in the other programs its ticks would disturb the tests."""

from __future__ import annotations

import runpy

from tests.helpers.handlers import app


@app.task(schedule="* * * * *", catch_up="all", priority=4)
def tick() -> None: ...


if __name__ == "__main__":
    runpy.run_module("tests.helpers.work", run_name="__main__")
