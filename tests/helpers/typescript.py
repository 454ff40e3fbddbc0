"""The TypeScript client, compiled once in a test session, together with the Node programs that import it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT

PARTS = ("clients/typescript", "examples/node-worker", "tests/server/jobs.mjs")
NPM = ("npm", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")


def need_tools(what: str, *tools: str) -> None:
    """Skip the test if a tool is not installed; fail where every change is checked."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        skip_or_fail(f"{what} cannot be tested without {', '.join(missing)}.")


def skip_or_fail(reason: str) -> None:
    """Skip the test, or fail it in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def compiled(tree: Path) -> Path:
    """A copy of the client and of the programs that import it, with the client compiled. Processes share the copy."""
    tree.mkdir(exist_ok=True)
    with (tree / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (tree / "result").exists():
            (tree / "result").write_text(_compile(tree))
    if problem := (tree / "result").read_text():
        skip_or_fail(problem)
    return tree


def _compile(tree: Path) -> str:
    """Install the compiler and compile. Returns the reason if the compiler cannot be installed."""
    for part in PARTS:
        _copy(ROOT / part, tree / part)
    client = tree / "clients/typescript"
    _save_example(client)
    try:
        installed = _run(client, *NPM, "install")
    except subprocess.TimeoutExpired:
        return "npm could not install the TypeScript compiler in time."
    if installed.returncode != 0:
        errors = [line for line in installed.stderr.splitlines() if line.startswith("npm error")]
        return f"npm could not install the TypeScript compiler: {' '.join(errors[:3])}"
    built = _run(client, "npm", "run", "build")
    assert built.returncode == 0, built.stdout
    return ""


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def _save_example(client: Path) -> None:
    """Save the example of the README beside the sources, so that it is compiled with them."""
    [example] = re.findall(r"^```ts\n(.*?)^```", (client / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (client / "src/readme_example.ts").write_text(example)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules", "dist"), dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
