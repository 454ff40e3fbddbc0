"""Fencing by construction: take one fence out of one statement, and the suite must fail.

`python -m tests.mutate --check` tries every fence of every fenced statement on both engines, two at a time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.helpers import memory, postgres
from tests.helpers.mutation import Mutation, mutations

SUITE = "tests/contract/test_fencing.py"
FINALIZATION = "tests/workflow/test_finalization.py"
SUITES = {
    "asked": "tests/contract/test_request_ids.py",
    "claim_finalization": FINALIZATION,
    "finalize": FINALIZATION,
    "keep_checkpoint": "tests/workflow/test_checkpoints.py",
    "open_children": "tests/workflow/test_growing.py",
    "release_finalization": FINALIZATION,
    "renew_finalization": FINALIZATION,
    "settle_steps": FINALIZATION,
}
"""Where the promise of a statement is tested, if not in SUITE."""


def main() -> int:
    """0 if the suite passes as it is and fails with every mutation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="try every mutation")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    options = parser.parse_args()
    if options.list or not options.check:
        print(*mutations(), sep="\n")
        return 0
    memory.keep_files_there()
    os.environ.setdefault("DIBS_TEST_PGDATA", postgres.new_data_folder())
    postgres.start()  # one server for all runs
    return check()


def check() -> int:
    """Run the fencing tests once as they are, then once for each mutation."""
    engines = ("sqlite", "postgres")
    survived = []
    with ThreadPoolExecutor(2) as pool:
        for engine, passed in zip(engines, pool.map(lambda engine: passes(engine, None), engines), strict=True):
            if not passed:
                print(f"The suite fails on {engine} without any mutation: nothing can be concluded.")
                return 1
        for mutation, alive in zip(mutations(), pool.map(survives, mutations()), strict=True):
            print(f"{mutation!s:32} {'SURVIVED' if alive else 'caught'}", flush=True)
            survived += [mutation] if alive else []
    print(f"{len(mutations()) - len(survived)} of {len(mutations())} mutations caught.")
    return 1 if survived else 0


def survives(mutation: Mutation) -> bool:
    """True if the suite does not notice that the fence is gone."""
    return passes(mutation.engine, mutation)


def passes(engine: str, mutation: Mutation | None) -> bool:
    """True if the fencing tests pass; anything but passing and failing is an error."""
    suites = [SUITES.get(mutation.statement, SUITE)] if mutation else [SUITE, *sorted(set(SUITES.values()))]
    options = ["-x", "-q", "-p", "no:randomly", "-k", f"{engine} and not async and not http"]
    command = [sys.executable, "-m", "pytest", *suites, *options]
    environment = os.environ | {"DIBS_TEST_SUITE": "stress"}  # every test in every way
    environment |= {"DIBS_TEST_MUTATION": str(mutation)} if mutation else {}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode} for {mutation}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
