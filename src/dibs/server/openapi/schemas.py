"""The JSON Schemas of what the API takes and answers, made from the very models that decode and encode it.

Rules that stand in code, because no type says them, are written here in the words of JSON Schema, so that what the
description allows is what the server accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from dibs.codec import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER
from dibs.wire.errors import Refusal

Schema = dict[str, Any]
REFS = "#/components/schemas/"

JSON_RULES: dict[str, Schema] = {
    "JsonText": {
        "type": "string",
        "pattern": "^[^\\u0000]*$",
        "description": "Any text without NUL.",
    },
    "JsonValue": {
        "description": "Any JSON value: texts without NUL, integers of 64 bits, numbers that a double can hold, at "
        f"most {MAX_DEPTH} levels of arrays and objects. (A number with a fraction or an exponent may also lie beyond "
        "the bounds given here; JSON Schema cannot tell it from an integer.)",
        "anyOf": [
            {"type": "null"},
            {"type": "boolean"},
            {"type": "number", "minimum": MIN_INTEGER, "maximum": MAX_INTEGER},
            {"$ref": f"{REFS}JsonText"},
            {"type": "array", "items": {"$ref": f"{REFS}JsonValue"}},
            {"$ref": f"{REFS}JsonObject"},
        ],
    },
    "JsonObject": {
        "description": "Any JSON object, of values as in JsonValue.",
        "type": "object",
        "propertyNames": {"$ref": f"{REFS}JsonText"},
        "additionalProperties": {"$ref": f"{REFS}JsonValue"},
    },
}
"""What `codec` accepts as params, results and metadata."""


class Schemas:
    """The schemas of all models, each under its name."""

    def __init__(self, taken: Iterable[Any], answered: Iterable[Any]) -> None:
        taken, answered = list(taken), [Refusal, *answered]
        self._schemas, asked = _components(taken)
        more, told = _components(answered)
        self._schemas.update(more)
        self.components: Mapping[str, Schema] = {
            **{name: _plain(schema) for name, schema in told.items()},
            **{name: _strict(_plain(schema), _rules(taken, name)) for name, schema in asked.items()},
            **JSON_RULES,
        }
        _describe_refusals(self.components, answered)

    def of(self, model: Any) -> Schema:
        """The schema of a model: mostly a reference."""
        return self._schemas[model]

    def resolved(self, schema: Schema) -> Schema:
        """The schema that a reference stands for."""
        return self.components[schema["$ref"].removeprefix(REFS)] if "$ref" in schema else schema


def not_null(schema: Schema) -> Schema:
    """The schema of what is given, where null is as good as nothing."""
    some = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not some:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**rest, **some[0]} if len(some) == 1 else {**rest, "anyOf": some}


def _components(models: list[Any]) -> tuple[dict[Any, Schema], dict[str, Schema]]:
    schemas, components = msgspec.json.schema_components(models, ref_template=f"{REFS}{{name}}")
    return {model: _plain(schema) for model, schema in zip(models, schemas, strict=True)}, components


def _plain(schema: Any) -> Any:
    """The schema in the API's names, without what says nothing."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if "enum" in plain and "type" not in plain and all(isinstance(each, str) for each in plain["enum"]):
        plain["type"] = "string"
    return plain


def _strict(schema: Schema, rules: list[Schema]) -> Schema:
    """The schema of what is taken: where any JSON goes, the JSON that dibs stores; and the rules of its model."""
    properties = {name: _json(field) for name, field in schema.get("properties", {}).items()}
    strict = {**schema, "properties": properties} if properties else schema
    return {**strict, "allOf": rules} if rules else strict


def _json(field: Schema) -> Schema:
    about: Schema = {key: field[key] for key in ("description", "default", "examples") if key in field}
    if set(field) == set(about):
        return {"$ref": f"{REFS}JsonValue", **about}
    if field.get("type") == "object" and "properties" not in field and "additionalProperties" not in field:
        return {"$ref": f"{REFS}JsonObject", **about}
    if "anyOf" in field:
        return {**field, "anyOf": [_json(each) for each in field["anyOf"]]}
    return field


def _rules(models: list[Any], name: str) -> list[Schema]:
    """What the model of this name says of itself beyond its fields."""
    model = next((each for each in _structs(models) if each.__name__ == name), None)
    return list(getattr(model, "rules", ()))


def _describe_refusals(components: Mapping[str, Schema], models: list[Any]) -> None:
    """Lists that answer to each of many things on its own hold refusals as well; msgspec knows these as Any."""
    for model in _structs(models):
        for name, hint in get_type_hints(model).items():
            if get_origin(hint) is list and Any in get_args(get_args(hint)[0]):
                shapes = [each.__name__ for each in get_args(get_args(hint)[0]) if each is not Any]
                items = {"anyOf": [{"$ref": f"{REFS}{each}"} for each in (*shapes, "Refusal")]}
                components[model.__name__]["properties"][name]["items"] = items


def _structs(models: Iterable[Any]) -> list[type[msgspec.Struct]]:
    """The structs among the models, and those that their fields are made of."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting = list(models)
    while waiting:
        model = waiting.pop()
        if isinstance(model, type) and issubclass(model, msgspec.Struct):
            if model not in found:
                found[model] = None
                waiting.extend(get_type_hints(model).values())
        else:
            waiting.extend(get_args(model))
    return list(found)
