"""The JSON Schemas of requests and answers, created from the wire structs that decode and encode them.

Rules that the server checks in code are added here as JSON Schema, so that the document allows what the server accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from dibs.json_values import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER
from dibs.wire.errors import Refusal

JsonSchema = dict[str, Any]
REFS = "#/components/schemas/"

JSON_VALUES: dict[str, JsonSchema] = {
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
"""The JSON that `json_values` accepts as params, results and metadata."""


class Schemas:
    """The schemas of all models by name."""

    def __init__(self, requests: Iterable[Any], answers: Iterable[Any]) -> None:
        requests, answers = list(requests), [Refusal, *answers]
        self._schemas, of_requests = _components(requests)
        schemas, of_answers = _components(answers)
        self._schemas.update(schemas)
        self.components: Mapping[str, JsonSchema] = {
            **{name: _plain(schema) for name, schema in of_answers.items()},
            **{name: _strict(_plain(schema), _rules(requests, name)) for name, schema in of_requests.items()},
            **JSON_VALUES,
        }
        _describe_refusals(self.components, answers)

    def of(self, model: Any) -> JsonSchema:
        """Return the schema of a model, usually a reference to a component."""
        return self._schemas[model]

    def resolved(self, schema: JsonSchema) -> JsonSchema:
        """Return the component that a reference points to; a schema without a reference is returned as it is."""
        return self.components[schema["$ref"].removeprefix(REFS)] if "$ref" in schema else schema


def not_null(schema: JsonSchema) -> JsonSchema:
    """Return the schema without null, for a value that is omitted instead of null."""
    some = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not some:
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**rest, **some[0]} if len(some) == 1 else {**rest, "anyOf": some}


def _components(models: list[Any]) -> tuple[dict[Any, JsonSchema], dict[str, JsonSchema]]:
    schemas, components = msgspec.json.schema_components(models, ref_template=f"{REFS}{{name}}")
    return {model: _plain(schema) for model, schema in zip(models, schemas, strict=True)}, components


def _plain(schema: Any) -> Any:
    """Return the schema without `default: null`, and with a type for enums of texts."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _plain(value) for key, value in schema.items() if (key, value) != ("default", None)}
    if "enum" in plain and "type" not in plain and all(isinstance(each, str) for each in plain["enum"]):
        plain["type"] = "string"
    return plain


def _strict(schema: JsonSchema, rules: list[JsonSchema]) -> JsonSchema:
    """Return the schema of a request with the rules of its model. Fields for any JSON get the limits of JsonValue."""
    properties = {name: _json(field) for name, field in schema.get("properties", {}).items()}
    strict = {**schema, "properties": properties} if properties else schema
    return {**strict, "allOf": rules} if rules else strict


def _json(field: JsonSchema) -> JsonSchema:
    about: JsonSchema = {key: field[key] for key in ("description", "default", "examples") if key in field}
    if set(field) == set(about):
        return {"$ref": f"{REFS}JsonValue", **about}
    if field.get("type") == "object" and "properties" not in field and "additionalProperties" not in field:
        return {"$ref": f"{REFS}JsonObject", **about}
    if "anyOf" in field:
        return {**field, "anyOf": [_json(each) for each in field["anyOf"]]}
    return field


def _rules(models: list[Any], name: str) -> list[JsonSchema]:
    """Return the `rules` of the model with this name: JSON Schemas in addition to its fields."""
    model = next((each for each in _structs(models) if each.__name__ == name), None)
    return list(getattr(model, "rules", ()))


def _describe_refusals(components: Mapping[str, JsonSchema], models: list[Any]) -> None:
    """Add Refusal to the items of answer lists: they are declared as Any, which msgspec does not describe."""
    for model in _structs(models):
        for name, hint in get_type_hints(model).items():
            if get_origin(hint) is list and Any in get_args(get_args(hint)[0]):
                structs = [each.__name__ for each in get_args(get_args(hint)[0]) if each is not Any]
                items = {"anyOf": [{"$ref": f"{REFS}{each}"} for each in (*structs, "Refusal")]}
                components[model.__name__]["properties"][name]["items"] = items


def _structs(models: Iterable[Any]) -> list[type[msgspec.Struct]]:
    """Return the structs among the models, and the structs of their fields."""
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
