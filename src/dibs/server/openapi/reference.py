"""The API's reference for people: the same description that programs read, as one page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dibs.server.openapi.schemas import REFS, not_null

Part = dict[str, Any]
JSON = "application/json"
SAMPLES = {
    "/api/schedules/": "nightly-report",
    "/api/keys/": "mfqxk4tcmezd",
    "/api/task-types/": "youtube_video_scrape",
}
"""A name to show in paths that begin like this."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: a parameter, a field, a header."""

    name: str
    kind: Markup
    text: Markup
    required: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One status that an operation answers with."""

    status: str
    phrase: str
    text: Markup
    kind: Markup
    codes: list[str]
    headers: list[str]
    example: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    id: str
    method: str
    path: str
    summary: Markup
    text: Markup
    scopes: list[str]
    parameters: list[Row]
    fields: list[Row]
    answers: list[Said]
    refusals: list[Said]
    curl: str


@dataclass(frozen=True, slots=True)
class Section:
    """What belongs together."""

    name: str
    text: str
    operations: list[Operation] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Where it stands on the page."""
        return self.name.replace(" ", "-")


def render(document: Part, origin: str) -> str:
    """The page, for readers who came to this origin."""
    info = document["info"]
    return _template().render(  # type: ignore[no-any-return]
        title=info["title"],
        version=info["version"],
        intro=prose(info["description"]),
        sections=list(sections(document, origin)),
        shapes=list(shapes(document)),
        origin=origin,
    )


def sections(document: Part, origin: str) -> Iterator[Section]:
    """The operations by tag, in the order of the tags."""
    for tag in document["tags"]:
        found = [
            operation(document, path, method, about, origin)
            for path, methods in document["paths"].items()
            for method, about in methods.items()
            if about["tags"] == [tag["name"]]
        ]
        yield Section(tag["name"], tag["description"], found)


def operation(document: Part, path: str, method: str, about: Part, origin: str) -> Operation:
    """What the page tells of one operation."""
    body = about.get("requestBody", {}).get("content", {}).get(JSON, {})
    said = [answer(document, status, response) for status, response in about["responses"].items()]
    lead = about["description"].rpartition("\n\n")[0]  # what follows tells the scope, which stands beside the path
    taken = _resolve(document, body.get("schema", {}))
    return Operation(
        about["operationId"], method.upper(), path, words(about["summary"]),
        prose(lead),
        about["x-scope"] if len(about["x-scope"]) < 4 else ["any"],
        [parameter(each) for each in about["parameters"] if "in" in each], list(fields(document, _given(taken))),
        [each for each in said if each.status < "300" or not each.codes], [each for each in said if each.codes],
        curl(path, method, about, origin),
    )  # fmt: skip


def shapes(document: Part) -> Iterator[tuple[str, Markup, list[Row], Markup]]:
    """The schemas that are referred to by name; those of bodies stand with their operations."""
    answered = [about["responses"] for methods in document["paths"].values() for about in methods.values()]
    needed = set(re.findall(rf'"{REFS}(\w+)"', json.dumps([answered, document["components"]])))
    for name, schema in document["components"]["schemas"].items():
        if name in needed:
            kind = Markup() if "properties" in schema else _kind(schema)
            yield name, words(schema.get("description", "")), list(fields(document, schema)), kind


def parameter(about: Part) -> Row:
    """A line about a parameter; the introduction tells of those that all operations share."""
    text = about.get("description") or about["schema"].get("description", "")
    return Row(about["name"], _kind(about["schema"]), words(text), about.get("required", False), about["in"])


def fields(document: Part, schema: Part) -> Iterator[Row]:
    """The lines about an object's fields, those that must be given first."""
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    for name in sorted(properties, key=lambda each: each not in required):
        yield Row(name, _kind(properties[name]), words(_description(document, properties[name])), name in required)


def answer(document: Part, status: str, response: Part) -> Said:
    """A line about an answer."""
    shared = "$ref" in response
    if shared:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    media, content = next(iter(response["content"].items()))
    schema = content["schema"]
    codes = schema["allOf"][1]["properties"]["code"]["enum"] if "allOf" in schema else []
    kind = Markup() if codes else _kind(schema) if media == JSON else Markup("<code>{}</code>").format(media)
    example = content.get("example")
    return Said(
        status, HTTPStatus(int(status)).phrase, words(response["description"]), kind, codes,
        list(response.get("headers", {})), "" if example is None else json.dumps(example, indent=2, ensure_ascii=False),
        shared
    )  # fmt: skip


def curl(path: str, method: str, about: Part, origin: str) -> str:
    """A command that makes the request as it stands."""
    lines = ["curl" if method == "get" else f"curl -X {method.upper()}"]
    lines[0] += f" {origin}{_filled(path)}"
    if about["security"]:
        lines.append('-H "X-API-Key: $DIBS_API_KEY"')
    content = about.get("requestBody", {}).get("content", {}).get(JSON)
    if content and (example := next(iter(content.get("examples", {}).values()), None)):
        told = _json(example["value"]).replace("'", "'\\''")
        lines += ["-H 'Content-Type: application/json'", f"-d '{told}'"]
    return " \\\n  ".join(lines)


def prose(text: str) -> Markup:
    """Paragraphs."""
    return Markup("\n").join(Markup("<p>{}</p>").format(words(each)) for each in text.split("\n\n") if each.strip())


def words(text: str) -> Markup:
    """A text with its `code` and its **emphasis**, everything else as it is."""
    safe = str(escape(text))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe))  # noqa: S704 - escaped two lines above


def _json(value: Any) -> str:
    """On one line if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) < 60 else json.dumps(value, ensure_ascii=False, indent=2)


def _filled(path: str) -> str:
    name = next((sample for start, sample in SAMPLES.items() if path.startswith(start)), "default")
    return path.replace("{name}", name).replace("{id}", name if path.startswith("/api/keys/") else "1")


def _resolve(document: Part, schema: Part) -> Part:
    name = _reference(schema)
    found: Part = document["components"]["schemas"][name] if name else schema
    return found


def _given(schema: Part) -> Part:
    """A body's schema without null: whoever may say null may as well say nothing."""
    properties = {name: not_null(field) for name, field in schema.get("properties", {}).items()}
    return {**schema, "properties": properties}


def _reference(schema: Part) -> str | None:
    return schema["$ref"].removeprefix(REFS) if "$ref" in schema else None


def _description(document: Part, schema: Part) -> str:
    """Its own, or that of the first thing it may be."""
    if "description" in schema:
        return str(schema["description"])
    if _reference(schema):
        return _description(document, _resolve(document, schema))
    return next((text for each in schema.get("anyOf", ()) if (text := _description(document, each))), "")


def _kind(schema: Part) -> Markup:
    """What a value is, in a few words."""
    base = _base(schema)
    extra = [each for each in (_bounds(schema), _default(schema)) if each]
    if not extra:
        return base
    text = ", ".join(extra)
    return Markup("{} <small>{}</small>").format(base, f"; {text}" if "</small>" in base else text)


def _base(schema: Part) -> Markup:
    if name := _reference(schema):
        return Markup('<a href="#shape-{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return Markup(" · ").join(Markup("<code>{}</code>").format(each) for each in values)
    return _typed(schema)


def _typed(schema: Part) -> Markup:
    kind = schema.get("type", "any")
    if kind == "array":
        return Markup("list of {}").format(_kind(schema.get("items", {})))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return Markup("object of {}").format(_kind(schema["additionalProperties"]))
    if schema.get("format") == "date-time":
        return Markup("time")
    return escape("any" if isinstance(kind, list) else {"string": "text"}.get(kind, kind))


POWERS = {2**63 - 1: "2⁶³-1", -(2**63): "-2⁶³", 2**31 - 1: "2³¹-1", 1 - 2**31: "-2³¹+1"}
BOUNDS = (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " of them"))


def _bounds(schema: Part) -> str:
    for least, most, unit in BOUNDS:
        low, high = schema.get(least), schema.get(most)
        if high is not None:
            return f"{_number(low)} to {_number(high)}{unit}" if low is not None else f"up to {_number(high)}{unit}"
        if low is not None:
            return f"at least {_number(low)}{unit}"
    return ""


def _number(value: float) -> str:
    return next((text for power, text in POWERS.items() if power == value), f"{value:,}")


def _default(schema: Part) -> str:
    return f"default {json.dumps(schema['default'])}" if "default" in schema and schema["default"] != {} else ""


@lru_cache(1)
def _template() -> Any:
    loader = PackageLoader("dibs.server.openapi", "")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("reference.html")
