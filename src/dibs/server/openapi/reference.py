"""The HTML reference of the HTTP API: the OpenAPI document as one page."""

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

from dibs.server.openapi.document import JsonObject
from dibs.server.openapi.schemas import REFS, not_null

JSON = "application/json"
SAMPLES = {
    "/api/schedules/": "nightly-report",
    "/api/keys/": "mfqxk4tcmezd",
    "/api/task-types/": "youtube_video_scrape",
}
"""Sample names for path parameters, by the start of the path."""


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """A row of a table: a parameter or a field."""

    name: str
    kind: Markup
    text: Markup
    required: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class ReferenceResponse:
    """A response of an operation. `codes`: the codes of a refusal. `shared`: other operations have it too."""

    status: str
    phrase: str
    text: Markup
    kind: Markup
    codes: list[str]
    headers: list[str]
    example: str
    shared: bool


@dataclass(frozen=True, slots=True)
class ReferenceOperation:
    """One method of one path."""

    id: str
    method: str
    path: str
    summary: Markup
    text: Markup
    scopes: list[str]
    parameters: list[ReferenceRow]
    fields: list[ReferenceRow]
    answers: list[ReferenceResponse]
    refusals: list[ReferenceResponse]
    curl: str


@dataclass(frozen=True, slots=True)
class ReferenceSection:
    """The operations of one tag."""

    name: str
    text: str
    operations: list[ReferenceOperation] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The HTML id of the section."""
        return self.name.replace(" ", "-")


def render(document: JsonObject, origin: str) -> str:
    """Return the page. `origin`: the scheme and host of the server, for the sample commands."""
    info = document["info"]
    return _template().render(  # type: ignore[no-any-return]
        title=info["title"],
        version=info["version"],
        intro=prose(info["description"]),
        sections=list(sections(document, origin)),
        components=list(components(document)),
        origin=origin,
    )


def sections(document: JsonObject, origin: str) -> Iterator[ReferenceSection]:
    """Yield the operations by tag, in the order of the tags."""
    for tag in document["tags"]:
        found = [
            operation(document, path, method, about, origin)
            for path, methods in document["paths"].items()
            for method, about in methods.items()
            if about["tags"] == [tag["name"]]
        ]
        yield ReferenceSection(tag["name"], tag["description"], found)


def operation(document: JsonObject, path: str, method: str, about: JsonObject, origin: str) -> ReferenceOperation:
    """Return the texts and tables of one operation."""
    body = about.get("requestBody", {}).get("content", {}).get(JSON, {})
    responses = [response(document, status, found) for status, found in about["responses"].items()]
    lead = about["description"].rpartition("\n\n")[0]  # the last paragraph is the scope, which is shown beside the path
    schema = _resolve(document, body.get("schema", {}))
    return ReferenceOperation(
        about["operationId"], method.upper(), path, words(about["summary"]),
        prose(lead),
        about["x-scope"] if len(about["x-scope"]) < 4 else ["any"],
        [parameter(each) for each in about["parameters"] if "in" in each],
        list(fields(document, _without_null(schema))),
        [each for each in responses if each.status < "300" or not each.codes],
        [each for each in responses if each.codes],
        curl(path, method, about, origin),
    )  # fmt: skip


def components(document: JsonObject) -> Iterator[tuple[str, Markup, list[ReferenceRow], Markup]]:
    """Yield the named schemas. The schemas of request bodies are shown with their operations instead."""
    responses = [about["responses"] for methods in document["paths"].values() for about in methods.values()]
    needed = set(re.findall(rf'"{REFS}(\w+)"', json.dumps([responses, document["components"]])))
    for name, schema in document["components"]["schemas"].items():
        if name in needed:
            kind = Markup() if "properties" in schema else _kind(schema)
            yield name, words(schema.get("description", "")), list(fields(document, schema)), kind


def parameter(about: JsonObject) -> ReferenceRow:
    """Return the row of a parameter."""
    text = about.get("description") or about["schema"].get("description", "")
    return ReferenceRow(about["name"], _kind(about["schema"]), words(text), about.get("required", False), about["in"])


def fields(document: JsonObject, schema: JsonObject) -> Iterator[ReferenceRow]:
    """Yield the rows of an object's fields, required fields first."""
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    for name in sorted(properties, key=lambda each: each not in required):
        yield ReferenceRow(
            name, _kind(properties[name]), words(_description(document, properties[name])), name in required
        )


def response(document: JsonObject, status: str, response: JsonObject) -> ReferenceResponse:
    """Return the texts of a response."""
    shared = "$ref" in response
    if shared:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    media, content = next(iter(response["content"].items()))
    schema = content["schema"]
    codes = schema["allOf"][1]["properties"]["code"]["enum"] if "allOf" in schema else []
    kind = Markup() if codes else _kind(schema) if media == JSON else Markup("<code>{}</code>").format(media)
    example = content.get("example")
    return ReferenceResponse(
        status, HTTPStatus(int(status)).phrase, words(response["description"]), kind, codes,
        list(response.get("headers", {})), "" if example is None else json.dumps(example, indent=2, ensure_ascii=False),
        shared
    )  # fmt: skip


def curl(path: str, method: str, about: JsonObject, origin: str) -> str:
    """Return a curl command for a sample request."""
    lines = ["curl" if method == "get" else f"curl -X {method.upper()}"]
    lines[0] += f" {origin}{_filled(path)}"
    if about["security"]:
        lines.append('-H "X-API-Key: $DIBS_API_KEY"')
    content = about.get("requestBody", {}).get("content", {}).get(JSON)
    if content and (example := next(iter(content.get("examples", {}).values()), None)):
        data = _json(example["value"]).replace("'", "'\\''")
        lines += ["-H 'Content-Type: application/json'", f"-d '{data}'"]
    return " \\\n  ".join(lines)


def prose(text: str) -> Markup:
    """Return a text as HTML paragraphs."""
    return Markup("\n").join(Markup("<p>{}</p>").format(words(each)) for each in text.split("\n\n") if each.strip())


def words(text: str) -> Markup:
    """Return a text as HTML, with `code` and **emphasis**; everything else is escaped."""
    safe = str(escape(text))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", safe))  # noqa: S704 - escaped two lines above


def _json(value: Any) -> str:
    """Return a value as JSON, on one line if it is short."""
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) < 60 else json.dumps(value, ensure_ascii=False, indent=2)


def _filled(path: str) -> str:
    name = next((sample for start, sample in SAMPLES.items() if path.startswith(start)), "default")
    return path.replace("{name}", name).replace("{id}", name if path.startswith("/api/keys/") else "1")


def _resolve(document: JsonObject, schema: JsonObject) -> JsonObject:
    name = _reference(schema)
    found: JsonObject = document["components"]["schemas"][name] if name else schema
    return found


def _without_null(schema: JsonObject) -> JsonObject:
    """Return the schema of a body without null: a field that may be null can be omitted instead."""
    properties = {name: not_null(field) for name, field in schema.get("properties", {}).items()}
    return {**schema, "properties": properties}


def _reference(schema: JsonObject) -> str | None:
    return schema["$ref"].removeprefix(REFS) if "$ref" in schema else None


def _description(document: JsonObject, schema: JsonObject) -> str:
    """Return the description of a schema, or of the first of its alternatives that has one."""
    if "description" in schema:
        return str(schema["description"])
    if _reference(schema):
        return _description(document, _resolve(document, schema))
    return next((text for each in schema.get("anyOf", ()) if (text := _description(document, each))), "")


def _kind(schema: JsonObject) -> Markup:
    """Return the type of a value as HTML, with its bounds and its default."""
    base = _base(schema)
    extra = [each for each in (_bounds(schema), _default(schema)) if each]
    if not extra:
        return base
    text = ", ".join(extra)
    return Markup("{} <small>{}</small>").format(base, f"; {text}" if "</small>" in base else text)


def _base(schema: JsonObject) -> Markup:
    if name := _reference(schema):
        return Markup('<a href="#schema-{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return Markup(" · ").join(Markup("<code>{}</code>").format(each) for each in values)
    return _typed(schema)


def _typed(schema: JsonObject) -> Markup:
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


def _bounds(schema: JsonObject) -> str:
    for least, most, unit in BOUNDS:
        low, high = schema.get(least), schema.get(most)
        if high is not None:
            return f"{_number(low)} to {_number(high)}{unit}" if low is not None else f"up to {_number(high)}{unit}"
        if low is not None:
            return f"at least {_number(low)}{unit}"
    return ""


def _number(value: float) -> str:
    return next((text for power, text in POWERS.items() if power == value), f"{value:,}")


def _default(schema: JsonObject) -> str:
    return f"default {json.dumps(schema['default'])}" if "default" in schema and schema["default"] != {} else ""


@lru_cache(1)
def _template() -> Any:
    loader = PackageLoader("dibs.server.openapi", "")
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("reference.html")
