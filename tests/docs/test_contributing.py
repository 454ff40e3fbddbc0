"""The page for contributors shows the current matrix."""

from __future__ import annotations

from pathlib import Path

from tests import matrix

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_page_shows_the_current_matrix() -> None:
    shown = PAGE.read_text(encoding="utf-8").partition("<!-- matrix -->\n")[2].partition("<!-- /matrix -->")[0]
    assert shown.strip() == "\n".join(matrix.table()).strip(), "put the output of `make matrix` there"


def test_every_test_file_has_a_group() -> None:
    for path in matrix.ROOT.rglob("test_*.py"):
        assert matrix.group_of(path), path
