"""The source files of a program, and the changes in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dibs import source_files
from dibs.source_files import SourceWatch, files_after_failure, states_of


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SourceWatch, Path]:
    """A watch of one file and its folder that looks at each call."""
    monkeypatch.setattr(source_files, "POLL_INTERVAL", 0.0)
    file = tmp_path / "program.py"
    file.write_text("one")
    loaded = states_of([str(file), str(tmp_path)])
    watch = SourceWatch(loaded.items)
    assert watch.changed() == []
    return watch, file


def test_a_change_counts_once_when_the_file_no_longer_changes(watched: tuple[SourceWatch, Path]) -> None:
    watch, file = watched
    for text in ("longer", "longer still"):
        file.write_text(text)
        assert watch.changed() == []
    assert watch.changed() == [str(file)]
    assert watch.changed() == []


def test_a_change_between_the_import_and_the_first_look_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "POLL_INTERVAL", 0.0)
    file = tmp_path / "program.py"
    file.write_text("one")
    loaded = states_of([str(file)])
    file.write_text("longer")
    watch = SourceWatch(loaded.items)
    assert [watch.changed(), watch.changed(), watch.changed()] == [[], [str(file)], []]


def test_a_deleted_file_and_a_new_file_are_changes_and_other_files_are_not(watched: tuple[SourceWatch, Path]) -> None:
    watch, file = watched
    file.with_name("notes.txt").touch()
    assert [watch.changed(), watch.changed()] == [[], []]
    file.with_name("module.py").touch()
    assert [watch.changed(), watch.changed()] == [[], [str(file.parent)]]
    file.unlink()
    assert [watch.changed(), watch.changed()] == [[], [str(file.parent), str(file)]]


def test_only_files_of_the_program_are_watched() -> None:
    files = source_files.source_files()
    assert __file__ in files
    assert not [file for file in files if "site-packages" in file or file == os.__file__ or "/src/dibs/" in file]


def test_after_a_failure_the_places_of_the_error_and_their_folders_are_watched(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def broken(:\n")
    with pytest.raises(SyntaxError) as error:
        compile(broken.read_text(), str(broken), "exec")
    wrapped = ValueError("it cannot be imported")
    wrapped.__context__ = error.value
    assert {str(broken), str(tmp_path), str(Path.cwd())} <= set(files_after_failure(wrapped))
