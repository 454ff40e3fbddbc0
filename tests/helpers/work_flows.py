"""A worker for flows.py in a separate process, started like work.py."""

from __future__ import annotations

import json
import logging
import sys

from tests.helpers.flows import at

if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    with at(sys.argv[1]) as app:
        code = app.worker(**json.loads(sys.argv[2])).run()
    sys.exit(code)
