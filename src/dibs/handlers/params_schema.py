"""The JSON Schema of a handler's params, by which clients in other languages are checked.

The schema accepts all params that the handler accepts from Python, and what the conversion writes. Where JSON Schema
and Python differ it says less: regular expressions, formats and fractions are checked by the handler alone. Nothing in
it depends on the process that makes it (defaults, the order of a set), so that an unchanged handler has an unchanged
schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from msgspec import inspect as info

from dibs.handlers.custom_types import is_model
from dibs.handlers.model_schemas import schemas_of_models
from dibs.handlers.storable import MAPPINGS, Fields, parts_of

_Schema = dict[str, Any]


def params_schema(required: Mapping[str, Any], optional: Mapping[str, Any], *, open_ended: bool) -> _Schema:
    """The schema of params with these types. `open_ended`: further params are accepted."""
    types = {name: info.type_info(kind) for name, kind in (*required.items(), *optional.items())}
    writer = _Writer(list(types.values()))
    schema: _Schema = {"type": "object", "properties": {name: writer.schema(each) for name, each in types.items()}}
    if required:
        schema["required"] = list(required)
    if not open_ended:
        schema["additionalProperties"] = False
    if writer.definitions:
        schema["$defs"] = writer.definitions
    return schema


class _Writer:
    """Writes the schemas of several types, which share the definitions of their classes."""

    def __init__(self, types: Sequence[info.Type]) -> None:
        parts = [part for each in types for part in parts_of(each)]
        models = {part.cls: None for part in parts if isinstance(part, info.CustomType) and is_model(part.cls)}
        self._models, self.definitions = schemas_of_models(list(models))
        self._names: dict[Any, str] = {}

    def schema(self, part: info.Type) -> _Schema:
        """The schema of a type."""
        if isinstance(part, info.Metadata):
            return {**(part.extra_json_schema or {}), **self.schema(part.type)}
        if isinstance(part, (*_CLASSES, info.EnumType)):
            return self._reference(part)
        for kind, write in _WRITERS.items():
            if isinstance(part, kind):
                return write(self, part)
        return {}

    def _reference(self, part: Any) -> _Schema:
        """A reference to the definition of a class, which is written at its first use."""
        if (name := self._names.get(part.cls)) is None:
            name = self._names[part.cls] = self._new_name(part.cls)
            self.definitions[name] = {}  # a class may contain itself
            self.definitions[name] = _enum(part) if isinstance(part, info.EnumType) else self._fields(part)
        return {"$ref": f"#/$defs/{name}"}

    def _new_name(self, kind: Any) -> str:
        name = first = re.sub(r"\W", "_", (get_origin(kind) or kind).__name__, flags=re.ASCII)
        number = 1
        while name in self.definitions:
            number += 1
            name = f"{first}_{number}"
        return name

    def _fields(self, part: Any) -> _Schema:
        fields = {field.encode_name: self.schema(field.type) for field in part.fields}
        required = [field.encode_name for field in part.fields if field.required]
        title = (get_origin(part.cls) or part.cls).__name__
        if isinstance(part, info.NamedTupleType):
            return {"title": title, **_array(list(fields.values()), len(required), len(fields))}
        if isinstance(part, info.StructType):
            return {"title": title, **_struct(part, fields, required)}
        return {"title": title, "type": "object", "properties": fields, "required": required}

    def union(self, part: info.UnionType) -> _Schema:
        """One of several types."""
        return {"anyOf": [self.schema(each) for each in part.types]}

    def collection(self, part: info.CollectionType) -> _Schema:
        """An array. A set may be given with an item twice."""
        bounds = {"minItems": part.min_length, "maxItems": part.max_length}
        if isinstance(part, (info.SetType, info.FrozenSetType)):
            bounds["maxItems"] = None
        return {"type": "array", "items": self.schema(part.item_type), **_given(bounds)}

    def tuple(self, part: info.TupleType) -> _Schema:
        """An array with an item of each type."""
        items = [self.schema(each) for each in part.item_types]
        return _array(items, len(items), len(items))

    def mapping(self, part: info.DictType) -> _Schema:
        """An object. Its names are checked by the handler."""
        bounds = _given({"minProperties": part.min_length, "maxProperties": part.max_length})
        return {"type": "object", "additionalProperties": self.schema(part.value_type), **bounds}

    def custom(self, part: info.CustomType) -> _Schema:
        """A Pydantic model, or a path."""
        return self._models[part.cls] if is_model(part.cls) else {"type": "string"}


_CLASSES = get_args(Fields)


def _struct(part: info.StructType, fields: Mapping[str, _Schema], required: list[str]) -> _Schema:
    if part.array_like:
        tag = [{"const": part.tag}] if part.tag_field is not None else []
        least = max((place + 1 for place, field in enumerate(part.fields) if field.required), default=0)
        most = len(tag) + len(fields) if part.forbid_unknown_fields else None
        return _array([*tag, *fields.values()], len(tag) + least, most)
    tag_field = {} if part.tag_field is None else {part.tag_field: {"const": part.tag}}
    closed = {"additionalProperties": False} if part.forbid_unknown_fields else {}
    return {"type": "object", "properties": {**tag_field, **fields}, "required": required, **closed}


def _array(items: list[_Schema], least: int, most: int | None) -> _Schema:
    prefix = {"prefixItems": items} if items else {}
    return {"type": "array", **prefix, "minItems": least, **_given({"maxItems": most})}


def _enum(part: info.EnumType) -> _Schema:
    """The values of an enum. An enum with values of its own making (a Flag, `_missing_`) accepts others."""
    if getattr(part.cls._missing_, "__func__", None) is not Enum._missing_.__func__:  # type: ignore[attr-defined]
        return {"title": part.cls.__name__}
    return {"title": part.cls.__name__, "enum": sorted(each.value for each in part.cls)}


def _number(kind: str) -> Callable[[_Writer, Any], _Schema]:
    def write(_: _Writer, part: Any) -> _Schema:
        bounds = {
            "minimum": part.ge,
            "exclusiveMinimum": part.gt,
            "maximum": part.le,
            "exclusiveMaximum": part.lt,
            "multipleOf": part.multiple_of if kind == "integer" else None,
        }
        return {"type": kind, **_given(bounds)}

    return write


def _text(_: _Writer, part: info.StrType) -> _Schema:
    return {"type": "string", **_given({"minLength": part.min_length, "maxLength": part.max_length})}


def _fixed(schema: _Schema) -> Callable[[_Writer, Any], _Schema]:
    return lambda _, __: dict(schema)


def _literal(_: _Writer, part: info.LiteralType) -> _Schema:
    return {"enum": list(part.values)}


def _given(keywords: Mapping[str, Any]) -> _Schema:
    return {name: value for name, value in keywords.items() if value is not None}


_BINARY = {"type": "string", "contentEncoding": "base64"}

_WRITERS: dict[Any, Callable[[_Writer, Any], _Schema]] = {
    info.NoneType: _fixed({"type": "null"}),
    info.BoolType: _fixed({"type": "boolean"}),
    info.IntType: _number("integer"),
    info.FloatType: _number("number"),
    info.StrType: _text,
    (info.BytesType, info.ByteArrayType, info.MemoryViewType): _fixed(_BINARY),
    info.DateTimeType: _fixed({"type": "string", "format": "date-time"}),
    info.DateType: _fixed({"type": "string", "format": "date"}),
    info.TimeType: _fixed({"type": "string", "format": "time"}),
    info.TimeDeltaType: _fixed({"type": "string", "format": "duration"}),
    info.UUIDType: _fixed({"type": "string", "format": "uuid"}),
    info.DecimalType: _fixed({"type": ["string", "number"], "format": "decimal"}),
    info.LiteralType: _literal,
    info.UnionType: _Writer.union,
    info.CollectionType: _Writer.collection,
    info.TupleType: _Writer.tuple,
    MAPPINGS: _Writer.mapping,
    info.CustomType: _Writer.custom,
}
