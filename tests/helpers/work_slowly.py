"""work.py as a program whose child processes take two seconds to import it, as those of large programs do."""

from __future__ import annotations

import runpy
import time

if __name__ == "__mp_main__":
    time.sleep(2)

if __name__ == "__main__":
    runpy.run_module("tests.helpers.work", run_name="__main__")
