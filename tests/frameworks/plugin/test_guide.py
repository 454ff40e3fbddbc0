"""The tests in the guide to testing pass, in the project that the guide describes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.environments import ROOT
from tests.frameworks.plugin.project import Project

GUIDE = (ROOT / "docs" / "guides" / "testing-your-tasks.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r'^dibs_app = "(.*)"$', re.MULTILINE)


def test_the_tests_of_the_guide_pass(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "")
    project.write(**dict(FILE.findall(GUIDE)))
    [app] = SETTING.findall(GUIDE)
    project.settings(f"dibs_app = {app}\n")
    assert "4 passed" in project.run("-n", "2")
