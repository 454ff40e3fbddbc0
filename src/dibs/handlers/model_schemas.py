"""The JSON Schemas of Pydantic models, as Pydantic writes them, less what other validators understand differently."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

_Schema = dict[str, Any]

NAMED = ("properties", "patternProperties", "$defs", "dependentSchemas")
"""Keywords with a schema for each name."""

INNER = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")

LEFT_OUT = ("default", "pattern", "uniqueItems", "examples")
"""Keywords that are left out. A default may differ from process to process, and regular expressions between languages;
a set may be given with an item twice."""


def schemas_of_models(models: Sequence[Any]) -> tuple[dict[Any, _Schema], dict[str, _Schema]]:
    """The schema of each model, and the definitions that they refer to."""
    usable = [model for model in models if _is_usable(model)]
    schemas: dict[Any, _Schema] = {model: {} for model in models}
    if not usable:
        return schemas, {}
    from pydantic.json_schema import models_json_schema  # the program has imported Pydantic, which has the models

    found, whole = models_json_schema([(model, "validation") for model in usable], schema_generator=_generator())
    schemas.update({model: portable(schema) for (model, _), schema in found.items()})
    return schemas, {name: portable(each) for name, each in whole.get("$defs", {}).items()}


def portable(schema: Any) -> Any:
    """The schema without the keywords that are left out."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: _inner(key, value) for key, value in schema.items() if key not in LEFT_OUT}
    if isinstance(kept.get("multipleOf"), float):
        del kept["multipleOf"]  # validators round differently
    if kept.get("format") == "regex":
        del kept["format"]
    return kept


def _inner(key: str, value: Any) -> Any:
    if key in NAMED and isinstance(value, dict):
        return {name: portable(each) for name, each in value.items()}
    if key in LISTS and isinstance(value, list):
        return [portable(each) for each in value]
    return portable(value) if key in INNER else value


def _is_usable(model: Any) -> bool:
    """True if Pydantic has a schema of the model that also accepts what the model writes: a model with serializers of
    its own may write another type than its annotations say."""
    try:
        read, written = (
            portable(model.model_json_schema(mode=mode, schema_generator=_generator()))
            for mode in ("validation", "serialization")
        )
    except Exception:  # a type without a schema
        return False
    return bool(_comparable(read) == _comparable(written))


def _comparable(schema: Any) -> Any:
    """The schema without the fields that are only written, and without what a default changes."""
    if isinstance(schema, list):
        return [_comparable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "required" or not isinstance(value, list)}
    return {key: _comparable(each) for key, each in kept.items() if not _is_computed(each)}


def _is_computed(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("readOnly") is True


@cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        """Pydantic's generator; decimals are text or numbers, whether they are read or written."""

        def decimal_schema(self, schema: Any) -> _Schema:
            return {"type": ["string", "number"], "format": "decimal"}

    return Generator
