"""Pages of metrics: requested, parsed, and checked by promtool."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families


def needed(tool: str) -> str:
    """The tool, if it is here; it must be, where every change is checked."""
    if shutil.which(tool) is None and os.environ.get("CI"):
        pytest.fail(f"Metrics and alerts cannot be tested without {tool} (Debian: apt-get install prometheus).")
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return tool


def page_at(url: str, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(page: str) -> dict[str, float]:
    """Every sample of a page: `name value of label …` -> number."""
    return {
        " ".join([sample.name, *(sample.labels[name] for name in sorted(sample.labels))]): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def check(page: str) -> None:
    """Nothing that promtool complains of."""
    done = subprocess.run(
        [needed("promtool"), "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
