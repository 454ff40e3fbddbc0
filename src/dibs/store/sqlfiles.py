"""The `.sql` files of an engine: one for each operation, read once, put together from fragments."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n+")
_PLACEHOLDER = re.compile(r"\{\{(\w+)(?:: ([^}]*))?\}\}")

Words = tuple[tuple[str, str], ...]


class SqlFiles:
    """The statements of one engine by name.

    `{{word}}` stands for a given word, else for the fragment in the file of that name; `{{name: text}}` hands the
    fragment a text that it uses as `{{argument}}`.
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self._folder = files(package).joinpath("sql")
        self.text = cache(self._text)

    def names(self) -> list[str]:
        """Every statement and fragment."""
        return sorted(path.name.removesuffix(".sql") for path in self._folder.iterdir() if path.name.endswith(".sql"))

    def read(self, name: str) -> str:
        """The file without its comments."""
        text = self._folder.joinpath(f"{name}.sql").read_text(encoding="utf-8")
        return _BLANK.sub("\n", _COMMENT.sub("", text)).strip().rstrip(";")

    def _text(self, name: str, words: Words = ()) -> str:
        return self._fill(self.read(name), dict(words))

    def _fill(self, text: str, words: dict[str, str]) -> str:
        def fill(match: re.Match[str]) -> str:
            word, argument = match[1], match[2]
            found = words[word] if word in words else self.read(word)
            return self._fill(found, words | {"argument": argument or ""})

        return _PLACEHOLDER.sub(fill, text)
