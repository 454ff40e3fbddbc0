"""Prints the TypeScript types of the HTTP API, made from its OpenAPI document.

python -m tools.typescript > clients/typescript/src/types.ts
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from dibs.server.api.docs import description
from dibs.server.openapi.document import JSON
from dibs.server.openapi.schemas import REFS

HEAD = """\
// The types of the HTTP API. Made from its OpenAPI document by `python -m tools.typescript`; do not edit."""
PRIMITIVE = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}
PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
Schema = dict[str, Any]


def lines() -> Iterator[str]:
    document = description()
    yield HEAD
    for name, schema in document["components"]["schemas"].items():
        yield ""
        yield from _comment(schema, "")
        yield from _declaration(name, schema)
    yield ""
    yield "/** Each operation by its method and path: its query, its body, and its answer if it is not refused. */"
    yield "export interface Operations {"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(f"{method.upper()} {path}", operation)
    yield "}"


def type_of(schema: Schema) -> str:
    """The TypeScript type of a JSON Schema. Bounds and rules between fields are left to the server."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REFS)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(each) for each in schema["anyOf"]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"Array<{type_of(schema.get('items', {}))}>"
    if kind == "object":
        return _object(schema)
    return PRIMITIVE[kind] if kind else "JsonValue"


def _object(schema: Schema) -> str:
    if "properties" in schema:
        return "{ " + " ".join(_fields(schema)) + " }"
    values = schema.get("additionalProperties")
    return f"{{ [name: string]: {type_of(values)} }}" if isinstance(values, dict) else "JsonObject"


def _declaration(name: str, schema: Schema) -> Iterator[str]:
    if "properties" in schema:
        yield f"export interface {name} {{"
        for field, line in zip(schema["properties"].values(), _fields(schema), strict=True):
            yield from _comment(field, "  ")
            yield f"  {line}"
        yield "}"
    elif name == "JsonObject":  # an interface may refer to itself
        yield f"export interface {name} {type_of(schema)}"
    else:
        yield f"export type {name} = {type_of(schema)};"


def _fields(schema: Schema) -> Iterator[str]:
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        yield f"{_name(name)}{'' if name in required else '?'}: {type_of(field)};"


def _name(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _comment(schema: Schema, indent: str) -> Iterator[str]:
    if text := " ".join(schema.get("description", "").split()):
        yield f"{indent}/** {text.replace('*/', '* /')} */"


def _operation(name: str, operation: Schema) -> Iterator[str]:
    """The lines of an operation that answers with JSON."""
    answers = _answers(operation)
    if answers:
        yield f"  /** {operation['summary']}. */"
        yield f"  {json.dumps(name)}: {{"
        yield f"    query: {_query(operation)};"
        yield f"    body: {_body(operation)};"
        yield f"    answer: {' | '.join(answers)};"
        yield "  };"


def _answers(operation: Schema) -> list[str]:
    contents = [answer.get("content", {}) for status, answer in operation["responses"].items() if status < "300"]
    return list(dict.fromkeys(type_of(content[JSON]["schema"]) for content in contents if JSON in content))


def _query(operation: Schema) -> str:
    fields = [each for each in operation["parameters"] if each.get("in") == "query"]
    properties = {each["name"]: each["schema"] for each in fields}
    required = [each["name"] for each in fields if each["required"]]
    return _object({"properties": properties, "required": required}) if fields else "undefined"


def _body(operation: Schema) -> str:
    body = operation.get("requestBody")
    if body is None:
        return "undefined"
    return type_of(body["content"][JSON]["schema"]) + ("" if body["required"] else " | undefined")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines())
