"""Downloads the test suites of other projects: from the source distributions on the package index, with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tests.environments import ROOT

CACHE = ROOT / ".frameworks" / "outside"
"""The unpacked test suites, in a folder for each distribution. Never committed."""


def suite(requirement: str, folder: str) -> Path:
    """The folder of tests inside the source distribution. Without network the test is skipped; in CI it fails."""
    kept = CACHE / requirement
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            unpacked = _unpacked(_downloaded(requirement, Path(temporary)), folder)
            try:
                unpacked.rename(kept)
            except OSError:  # another process has downloaded the same one
                assert kept.exists()
    return kept


def _downloaded(requirement: str, into: Path) -> Path:
    """The file of the source distribution. The pip of another Python downloads what suits this Python."""
    pip = [os.environ["DIBS_TEST_PIP"], "-m", "pip", "--python", sys.executable]
    options = ["--no-binary", ":all:", "--no-deps", "--disable-pip-version-check", "--retries", "1", "-q"]
    done = subprocess.run(
        [*pip, "download", *options, "-d", str(into), requirement], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = f"pip cannot download the source distribution of {requirement}: {done.stderr[-500:]}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    [file] = into.glob("*.tar.gz")
    return file


def _unpacked(file: Path, folder: str) -> Path:
    """Only the folder of tests is unpacked."""
    with tarfile.open(file) as archive:
        wanted = [each for each in archive if each.name.partition("/")[2].startswith(f"{folder}/")]
        archive.extractall(file.parent, members=wanted, filter="data")
    [top] = (each for each in file.parent.iterdir() if each.is_dir())
    return shutil.move(top / folder, file.parent / "suite")
