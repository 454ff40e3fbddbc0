"""The SQL of an engine: `.sql` files by theme, each a list of named sections.

A section begins with `-- name: x` (a statement) or `-- fragment: x` (a part of statements); the comment lines before
the first section describe the file. The sections that all engines share are in `common/` beside this module, the others
in the `sql/` of each engine. A name is defined in one place only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, NamedTuple

Words = tuple[tuple[str, str], ...]
ParameterStyle = Literal["named", "pyformat"]
"""The names that DB-API 2.0 uses: `:name`, or `%(name)s` as psycopg expects."""

_HEADING = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n+")
_PLACEHOLDER = re.compile(r"\{\{(\w+)(?::\s+([^{}]*))?\}\}")
"""The innermost one: the argument of another may hold it."""

_PARAMETER = re.compile(r"""(?P<left_alone>'[^']*'|"[^"]*"|::)|:(?P<name>[a-z]\w*)""")


class Section(NamedTuple):
    """One statement or fragment. `file`: the name of its file. `sql`: its text without comments."""

    name: str
    kind: str
    file: str
    comment: str
    sql: str


class SqlFiles:
    """The statements of one engine by name.

    `{{word}}` is replaced by a given word, else by the fragment of that name; `{{name: text}}` passes a text to the
    fragment, which uses it as `{{argument}}`. The files write parameters as `:name`; `style` is that of the driver.
    """

    def __init__(self, package: str, style: ParameterStyle = "named", shared: str = __name__) -> None:
        self.package = package
        self._style = style
        self._folders = (files(shared).joinpath("common"), files(package).joinpath("sql"))
        self.text = cache(self._text)

    @cached_property
    def sections(self) -> dict[str, Section]:
        """Every statement and fragment, the shared ones first. ValueError where a name stands in two places."""
        found: dict[str, Section] = {}
        for section in (each for folder in self._folders for each in read_folder(folder)):
            if (other := found.get(section.name)) is not None:
                raise ValueError(f"The section {section.name!r} stands in {other.file} and in {section.file}.")
            found[section.name] = section
        return found

    def names(self) -> list[str]:
        """Every statement and fragment."""
        return sorted(self.sections)

    def read(self, name: str) -> str:
        """The text of a section as its file has it, without comments."""
        if name not in self.sections:
            raise LookupError(f"{self.package} has no SQL section {name!r}, and no such word was given.")
        return self.sections[name].sql

    def _text(self, name: str, words: Words = ()) -> str:
        text = self._fill(self.read(name), dict(words))
        return to_pyformat(text) if self._style == "pyformat" else text

    def _fill(self, text: str, words: dict[str, str]) -> str:
        def fill(match: re.Match[str]) -> str:
            word, argument = match[1], match[2]
            found = words[word] if word in words else self.read(word)
            return self._fill(found, words | {"argument": argument or ""})

        count = 1
        while count:
            text, count = _PLACEHOLDER.subn(fill, text)
        return text


def read_folder(folder: Traversable) -> Iterator[Section]:
    """The sections of every `.sql` file in the folder."""
    for path in sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name):
        yield from _read_sections(path.name, path.read_text(encoding="utf-8"))


def _read_sections(file: str, text: str) -> Iterator[Section]:
    _, *parts = _HEADING.split(text)
    for kind, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        sql = _BLANK.sub("\n", _COMMENT.sub("", body)).strip().rstrip(";")
        yield Section(name, kind, file, "\n".join(_COMMENT.findall(body)).strip(), sql)


def to_pyformat(text: str) -> str:
    """The text with `%(name)s` for `:name`. Quoted text and `::` stay as they are; `%` is doubled everywhere."""

    def write(match: re.Match[str]) -> str:
        return match["left_alone"] or f"%({match['name']})s"

    return _PARAMETER.sub(write, text.replace("%", "%%"))


def to_numbered(text: str, casts: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The text with `$1`, `$2` for `:name`, each with its cast, and the names in their order."""
    numbers: dict[str, int] = {}

    def write(match: re.Match[str]) -> str:
        if (name := match["name"]) is None:
            return match["left_alone"]
        return f"${numbers.setdefault(name, len(numbers) + 1)}{casts.get(name, '')}"

    return _PARAMETER.sub(write, text), tuple(numbers)
