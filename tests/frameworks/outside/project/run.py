"""Runs a test suite of another project: `python run.py SUITE REPORT`, with the names to leave out in REPORT.

REPORT is a JSON file, and has the outcome of each test afterwards. A process of its own, because the adapter replaces
names in modules of Django.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import django

Raised = tuple[type[BaseException], BaseException, TracebackType]


def main(suite: str, report: Path) -> None:
    """Run the suite, and write the report."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    django.setup()
    from django.core.management import call_command
    from django.test.utils import setup_test_environment

    setup_test_environment()
    call_command("migrate", verbosity=0)
    import adapters

    cases = list(_each(unittest.defaultTestLoader.loadTestsFromNames(adapters.SUITES[suite]())))
    left_out = set(json.loads(report.read_text()))
    outcomes = Outcomes()
    unittest.TestSuite(each for each in cases if name_of(each) not in left_out).run(outcomes)
    found = [name_of(each) for each in cases]
    report.write_text(json.dumps({"found": found, "outcomes": outcomes.of, "django": django.get_version()}))


def _each(suite: Any) -> Iterator[Any]:
    for each in suite:
        yield from _each(each) if isinstance(each, unittest.TestSuite) else (each,)


def name_of(test: unittest.TestCase) -> str:
    """The name of a test without its module: Class.method."""
    return ".".join(test.id().split(".")[-2:])


class Outcomes(unittest.TestResult):
    """The outcome of each test: "passed", "skipped: reason", or what was raised."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        """Begin each test with empty tables."""
        from dibs.django import tables

        tables.empty("default")
        super().startTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        """See TestResult."""
        self.of.setdefault(name_of(test), "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        """See TestResult."""
        self.of[name_of(test)] = f"skipped: {reason}"

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        """See TestResult. Also an error of `setUpClass`, whose test is named like the class."""
        self.of[name_of(test)] = "".join(traceback.format_exception(*err))

    addError = addFailure  # noqa: N815

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Raised | None) -> None:  # noqa: N802
        """See TestResult."""
        if err is not None:
            self.addFailure(test, err)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
