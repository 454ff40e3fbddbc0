"""Fencing by construction: take one fence out of one statement, and the suite must fail.

`python -m tests.mutate --check` tries every fence of every fenced statement on both engines, two at a time. Each run is
a fork of a process that has imported pytest and the tests: to import them takes longer than to run them.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import pytest

from tests.helpers import memory, postgres
from tests.helpers.mutation import Mutation, mutations

SUITE = "tests/contract/test_fencing.py"
FINALIZATION = "tests/workflow/test_finalization.py"
KEYS = "tests/contract/test_key_fences.py"
SUITES = {
    "change_tasks": "tests/contract/test_change.py",
    "claims_of_request": "tests/contract/test_request_ids.py",
    "claim_finalization": FINALIZATION,
    "finalize": FINALIZATION,
    "end_keys": KEYS,
    "keep_checkpoint": "tests/workflow/test_checkpoints.py",
    "open_children": "tests/workflow/test_growing.py",
    "release_finalization": FINALIZATION,
    "renew_finalization": FINALIZATION,
    "replace": KEYS,
    "decide_steps": FINALIZATION,
}
"""Where the promise of a statement is tested, if not in SUITE."""

ALL = (SUITE, *sorted(set(SUITES.values())))
OPTIONS = ("-x", "-q", "-p", "no:randomly")
AT_ONCE = 2
INTERNAL_ERROR = int(pytest.ExitCode.INTERNAL_ERROR)


class Run(NamedTuple):
    """The tests of one engine, with a mutation or without."""

    engine: str
    mutation: Mutation | None = None

    @property
    def arguments(self) -> list[str]:
        """The arguments of pytest."""
        engine = ("-k", f"{self.engine} and not async and not http")
        if self.mutation is None:
            return [*ALL, *OPTIONS, *engine]
        return [SUITES.get(self.mutation.statement, SUITE), *OPTIONS, *engine, "--tb=no"]


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
    os.environ["DIBS_TEST_SUITE"] = "stress"  # every test in every way
    postgres.start()  # one server for all runs
    return check()


def check() -> int:
    """Run the fencing tests once as they are, then once for each mutation."""
    import_tests()
    if failing := [run.engine for run, passed in outcomes([Run("sqlite"), Run("postgres")]) if not passed]:
        print(f"The suite fails on {' and on '.join(failing)} without any mutation: nothing can be concluded.")
        return 1
    survived = 0
    for run, passed in outcomes([Run(mutation.engine, mutation) for mutation in mutations()]):
        print(f"{run.mutation!s:32} {'SURVIVED' if passed else 'caught'}", flush=True)
        survived += passed
    print(f"{len(mutations()) - survived} of {len(mutations())} mutations caught.")
    return 1 if survived else 0


def import_tests() -> None:
    """Import in this process what all runs need. Statements are read when a run begins to use them, after its mutation
    was applied."""
    with tempfile.TemporaryFile("w+") as output:
        with contextlib.redirect_stdout(output):
            code = pytest.main([*ALL, *OPTIONS, "--collect-only"])
        if code != pytest.ExitCode.OK:
            raise RuntimeError(f"pytest cannot collect the tests:\n{text_of(output)}")
    gc.collect()
    gc.freeze()  # or the garbage collector of each run would copy all the memory of this process


def outcomes(runs: list[Run]) -> Iterator[tuple[Run, bool]]:
    """Each run, as soon as it has ended, and True if its tests passed."""
    waiting, running = iter(runs), dict[int, tuple[Run, IO[str]]]()
    with contextlib.ExitStack() as files:
        while True:
            for run in itertools.islice(waiting, AT_ONCE - len(running)):
                output = files.enter_context(tempfile.TemporaryFile("w+"))
                running[fork(run, output)] = run, output
            if not running:
                return
            child, status = os.wait()
            if child in running:
                run, output = running.pop(child)
                yield run, has_passed(run, os.waitstatus_to_exitcode(status), output)


def has_passed(run: Run, code: int, output: IO[str]) -> bool:
    """True if the tests passed; anything but passing and failing is an error."""
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code} for {run}:\n{text_of(output)}")
    if code and run.mutation is None:
        print(text_of(output))
    return code == pytest.ExitCode.OK


def fork(run: Run, output: IO[str]) -> int:
    """The process id of a child that runs the tests, and ends without the clean-up that its parent will do."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    code = INTERNAL_ERROR
    try:
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
        if run.mutation:
            os.environ["DIBS_TEST_MUTATION"] = str(run.mutation)
        code = int(pytest.main(run.arguments))
        sys.stdout.flush()
    finally:
        os._exit(code)


def text_of(output: IO[str]) -> str:
    """Everything in the file."""
    output.seek(0)
    return output.read()


if __name__ == "__main__":
    sys.exit(main())
