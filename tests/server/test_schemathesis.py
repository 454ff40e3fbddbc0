"""The API conforms to its description: Schemathesis makes valid and invalid requests from the description, and checks
every response against it.

`make stress` does the same for longer: STRESS_EXAMPLES for each operation, with a seed that it prints and that
STRESS_SEED repeats.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs.server import rate_limits

LIMIT = "limit-of-the-test"

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("STRESS_EXAMPLES", "0"))
SEED = int(os.environ.get("STRESS_SEED", "0")) or (random.SystemRandom().randrange(1, 10**6) if EXAMPLES else 1)

NOT_ASKED = ["/api/events"]
"""An answer that never ends (server-sent events); it has tests of its own."""

SHORT = {"sqlite": ("examples,coverage,fuzzing,stateful", 6), "postgres": ("examples,fuzzing", 3)}
"""The phases and the number of examples for each operation in the suite: PostgreSQL has a shorter round."""


@pytest.mark.timeout(36_000 if EXAMPLES else 300)
def test_every_response_conforms_to_the_description(
    engine: str, serve: Callable[..., Any], app: dibs.Dibs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Schemathesis asks each operation without a key, too; an address that does so often is refused before it is asked.
    monkeypatch.setattr(rate_limits, "MAX_FAILURES", 10**9)
    app.set_limit(LIMIT, max=1000)
    server = serve(keys=True)
    key = server.key("admin")
    phases, examples = ("examples,coverage,fuzzing,stateful", EXAMPLES) if EXAMPLES else SHORT[engine]

    run = schemathesis(tmp_path, server.url, key, "--phases", phases, "--max-examples", str(examples))

    print(run.stdout[-20_000:], run.stderr[-2000:])
    assert run.returncode == 0
    assert next(each for each in app.keys() if each.id == key.about.id).live  # noqa: SIM118 - a method
    assert app.stats().by_type, "the run enqueued nothing"


def schemathesis(folder: Path, url: str, key: dibs.MintedKey, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of Schemathesis with all its checks and a key with all scopes."""
    # One worker: with several a seed repeats nothing, and ast.parse in several threads fails on Python 3.11.
    excluded = [word for path in NOT_ASKED for word in ("--exclude-path", path)]
    return subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "schemathesis.cli",
                "run",
                f"{url}/api/openapi.json",
                "-H",
                f"X-API-Key: {key.key}",
            ),
            *("--checks", "all", "--mode", "all", "--seed", str(SEED), "--no-color", "--workers", "1"),
            *("--continue-on-failure", *excluded, *options),
        ],
        cwd=folder,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks",
            "DIBS_TEST_OWN_KEY": key.about.id,
            "DIBS_TEST_LIMIT": LIMIT,
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
