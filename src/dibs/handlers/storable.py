"""Which annotations can be converted to JSON and back, which stay plain JSON, and which are refused.

An annotation is refused if none of its values, or only some, could be stored and come back as the annotated type: a
socket, a function, a union of two dataclasses. An annotation that dibs cannot check, but that JSON values fit
(`Iterable[int]`, a Protocol, a subclass of str), means plain JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache
from typing import Any, get_args, get_origin

from msgspec import inspect as info

from dibs.handlers.custom_types import is_model, is_path

JSON_TYPES = (str, bool, int, float, list, dict, type(None))

Fields = info.DataclassType | info.StructType | info.TypedDictType | info.NamedTupleType

MAPPINGS = (info.DictType, getattr(info, "FrozenDictType", info.DictType))  # since msgspec 0.22

HINT = "Use a dataclass, an attrs class, a msgspec.Struct, a Pydantic model or plain JSON."


class NotStorable(Exception):
    """Values of an annotation cannot be stored as JSON: why, and what to do."""

    def __init__(self, reason: str, hint: str = HINT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def convertible(annotation: Any) -> Any:
    """The annotation if its values are converted; Any if they stay plain JSON. Raises NotStorable."""
    try:
        found = info.type_info(annotation)
    except TypeError as error:
        return _plain_or_refuse(annotation, str(error))
    except Exception:  # a name in the annotations of a class that only a type checker can resolve
        return Any
    converted = [_convertible(each) for each in parts_of(found)]  # all of them: each may be refused
    return annotation if all(converted) else Any


def parts_of(found: info.Type) -> list[info.Type]:
    """The type and all types inside of it, each class once."""
    parts: list[info.Type] = []
    seen: set[int] = set()
    left = [found]
    while left:
        part = left.pop()
        if isinstance(part, Fields):
            if id(part.cls) in seen:
                continue
            seen.add(id(part.cls))
        parts.append(part)
        left += inner_types(part)
    return parts


def inner_types(part: info.Type) -> list[info.Type]:
    """The types directly inside of a type."""
    if isinstance(part, Fields):
        return [field.type for field in part.fields]
    if isinstance(part, info.Metadata):
        return [part.type]
    if isinstance(part, info.CollectionType):
        return [part.item_type]
    if isinstance(part, info.TupleType):
        return list(part.item_types)
    if isinstance(part, MAPPINGS):
        return [part.key_type, part.value_type]
    return list(part.types) if isinstance(part, info.UnionType) else []


def bare(part: info.Type) -> info.Type:
    """The type without its metadata."""
    while isinstance(part, info.Metadata):
        part = part.type
    return part


def has_models(annotation: Any) -> bool:
    """True if values of the annotation, which is convertible, contain Pydantic models."""
    classes = [each.cls for each in parts_of(info.type_info(annotation)) if isinstance(each, info.CustomType)]
    return any(is_model(each) for each in classes)


def has_sets(annotation: Any) -> bool:
    """True if values of the annotation, which is convertible, contain sets."""
    sets = (info.SetType, info.FrozenSetType)
    return any(isinstance(each, sets) for each in parts_of(info.type_info(annotation)))


def _convertible(part: info.Type) -> bool:
    """False if values of this type stay plain JSON. Raises NotStorable."""
    if isinstance(part, info.CustomType):
        return _convertible_class(get_origin(part.cls) or part.cls)
    if isinstance(part, MAPPINGS):
        _check_key(bare(part.key_type))
    elif isinstance(part, info.SetType | info.FrozenSetType):
        _check_item(bare(part.item_type))
    elif isinstance(part, info.DataclassType):
        _check_fields(part.cls)
    return True


def _convertible_class(kind: Any) -> bool:
    if is_model(kind):
        _check_model(kind)
        return True
    if is_path(kind):
        return True
    if not _may_be_json(kind):
        raise _refused(kind)
    return False


def _may_be_json(kind: Any) -> bool:
    """True for a class of which JSON values are instances, and for a subclass of a JSON type."""
    try:
        return any(issubclass(each, kind) or issubclass(kind, each) for each in JSON_TYPES)
    except TypeError:  # a Protocol with attributes
        return True


def _refused(kind: Any) -> NotStorable:
    name = getattr(kind, "__qualname__", str(kind))
    if kind is Callable or issubclass(kind, type):
        return NotStorable(
            "functions and classes cannot be stored", "Pass a name, and look the function up in the handler."
        )
    if issubclass(kind, (Iterator, AsyncIterator, Awaitable)):
        return NotStorable(f"{name} is consumed while it is read, and cannot be stored", "Use a list.")
    return NotStorable(f"{_full_name(kind)} is not a type that dibs can store as JSON")


def _full_name(kind: Any) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _check_key(key: info.Type) -> None:
    """The names of a JSON object are text: keys must be read from text without doubt."""
    if isinstance(key, info.CustomType) and not (is_model(key.cls) or is_path(key.cls)):
        return  # examined as a type
    numbers_and_text = isinstance(key, info.UnionType) or (
        isinstance(key, info.LiteralType) and len({type(each) for each in key.values}) > 1
    )
    if numbers_and_text or isinstance(key, (*_NO_KEYS, info.CustomType)):
        raise NotStorable(
            "the keys of a dict must be of one type that is text or a number in JSON",
            "Use str, int, an enum, UUID or a date as the type of the keys, or a list of tuples.",
        )


_NO_KEYS = (info.BoolType, info.NoneType, info.CollectionType, info.TupleType, info.DictType, *get_args(Fields))


def _check_item(item: info.Type) -> None:
    kind = getattr(item, "cls", object)
    if isinstance(item, info.CollectionType | info.DictType) and not isinstance(item, _HASHABLE):
        raise NotStorable("a set cannot contain lists, sets or dicts", "Use a list, or tuples and frozensets in it.")
    if kind.__hash__ is None:
        raise NotStorable(f"a set cannot contain {_full_name(kind)}, which is not hashable", "Use a list.")


_HASHABLE = (info.VarTupleType, info.FrozenSetType)


def _check_fields(kind: Any) -> None:
    """msgspec does not write the fields of attrs classes that begin with an underscore."""
    for field in getattr(get_origin(kind) or kind, "__attrs_attrs__", ()):
        if field.init and field.name.startswith("_"):
            raise NotStorable(
                f"the field {field.name!r} of {_full_name(kind)} is private, and is not stored",
                "Name the field without an underscore, or take it out of __init__ (init=False).",
            )


@cache
def _check_model(kind: Any) -> None:
    """Refuse a model whose fields would silently come back with other values."""
    if kind.__pydantic_decorators__.field_serializers or kind.__pydantic_decorators__.model_serializers:
        return
    for name, field in kind.model_fields.items():
        if any(getattr(each, "__name__", "") in ("SecretStr", "SecretBytes") for each in _arguments(field.annotation)):
            raise NotStorable(
                f"the secret in the field {name!r} of {_full_name(kind)} would be stored as asterisks",
                "Store the name of the secret, and read the secret in the handler.",
            )


def _arguments(annotation: Any) -> list[Any]:
    """The annotation and the arguments inside of it."""
    return [annotation, *(inner for each in get_args(annotation) for inner in _arguments(each))]


def _plain_or_refuse(annotation: Any, error: str) -> Any:
    """Any for an annotation that JSON values fit although msgspec does not know it. Raises NotStorable."""
    if error.startswith("Type unions"):
        custom = [each for each in _arguments(annotation) if _is_custom(each)]
        converted = [_convertible_class(get_origin(each) or each) for each in custom]
        if custom and not any(converted):
            return Any
        raise NotStorable(f"JSON cannot tell the types of a union apart: {error}", _UNION_HINT)
    if error.startswith(("Enums", "dataclasses")):
        raise NotStorable(error)
    return Any


_UNION_HINT = (
    "Use one of the types (for a Path, a str is accepted too), msgspec.Structs with tags, or a Pydantic model with the "
    "union in a field."
)


def _is_custom(kind: Any) -> bool:
    try:
        return isinstance(info.type_info(kind), info.CustomType)
    except TypeError:
        return False
